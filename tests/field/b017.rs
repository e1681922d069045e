//! B017. Elsewhere a key was compared with one content and stored with another, because the caller had used
//! its buffer again. Here a borrowed buffer can't be touched before the batch is submitted (a compile-fail
//! example of `Batch` shows it), and an owned one belongs to the batch.

use sealstone::env::Env;
use sealstone::{Batch, Durability, Job, Keyspace};

use crate::support::{compact, flush, get, killed, mutable, open};

fn check(map: &Keyspace) {
    assert_eq!(map.iter().unwrap().count(), 100);
    for i in 0..100_u64 {
        assert_eq!(get(map, i.to_be_bytes()), Some(i.to_be_bytes().to_vec()));
    }
    assert_eq!(get(map, [0xAA; 8]), None);
    assert_eq!(get(map, [0xEE; 8]), None);
}

#[test]
fn b017_the_caller_uses_its_buffers_again() {
    for flush_between in [false, true] {
        let env = Env::in_memory();
        let store = open(&env, compact());
        let map = mutable(&store, "map");
        let mut buffer = [0; 8];
        let mut batch = Batch::new();
        for i in 0..100_u64 {
            buffer = i.to_be_bytes();
            if flush_between {
                // Submitted one by one: the bytes are taken at once, while a flush is half-way.
                let mut one = Batch::new();
                one.put(&map, &buffer[..], &buffer[..]);
                if store.runnable().contains(&Job::SpareLog) || i % 25 == 1 {
                    store.drain().unwrap();
                }
                let ticket = store.submit(one, Durability::Buffered).unwrap();
                buffer.fill(0xAA);
                store.commit_step().unwrap();
                drop(ticket);
                if i % 25 == 0 {
                    store.seal().unwrap();
                }
                for job in store.runnable().into_iter().take(1) {
                    store.run(job, 1).unwrap();
                }
            } else {
                batch.put(&map, buffer.to_vec(), buffer.to_vec());
                buffer.fill(0xAA);
            }
        }
        store.write(batch, Durability::Synced).unwrap();
        buffer.fill(0xEE);
        assert_eq!(buffer, [0xEE; 8]);
        check(&map);
        flush(&store);
        check(&map);
        let again = open(&killed(&env), compact());
        check(&mutable(&again, "map"));
    }
}
