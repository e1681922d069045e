//! The one place that deals with short transfers and interruptions.
//!
//! A backend may move fewer bytes than asked, or none and say `Interrupted`. Everything above these
//! loops sees whole transfers or an error. Interruptions are not counted as failures (a storm of them
//! is legal); a write that stores no byte is tried `ZERO_WRITES_MAX` times and is then an error.

use super::{File, FileName, IoError, IoErrorKind, IoResult, OpenMode, ReadRequest, Vfs};

/// How often a write may store nothing before it counts as failed.
const ZERO_WRITES_MAX: u32 = 3;

/// The buffer of [`copy_file`]: large enough that calls cost little beside the bytes.
const COPY_BUFFER_BYTES: usize = 256 * 1024;

/// Fills `buffer` from `offset`; `UnexpectedEof` if the file ends before.
#[inline]
pub fn read_exact_at(file: &dyn File, buffer: &mut [u8], offset: u64) -> IoResult<()> {
    match read_up_to_at(file, buffer, offset)? {
        read if read == buffer.len() => Ok(()),
        _ => Err(IoError::new(IoErrorKind::UnexpectedEof)),
    }
}

/// Fills as much of `buffer` as the file has from `offset` on; returns how much.
#[inline]
pub fn read_up_to_at(file: &dyn File, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count.min(buffer.len() - done),
            Err(error) if error.kind == IoErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Makes several reads in one call and fills every buffer: what comes short is read on alone. A result is then
/// the buffer's length or an error; `UnexpectedEof` if the file ends before.
pub fn read_many_exact_at(file: &dyn File, requests: &mut [ReadRequest<'_>]) {
    file.read_many(requests);
    for request in requests {
        let done = match request.result {
            Ok(count) => count.min(request.buffer.len()),
            Err(error) if error.kind == IoErrorKind::Interrupted => 0,
            Err(_) => continue,
        };
        let rest = &mut request.buffer[done..];
        let more = match rest.is_empty() {
            true => Ok(()),
            false => read_exact_at(file, rest, request.offset + done as u64),
        };
        request.result = more.map(|()| request.buffer.len());
    }
}

/// Writes all of `buffer` at `offset`.
pub fn write_all_at(file: &dyn File, buffer: &[u8], offset: u64) -> IoResult<()> {
    let mut done = 0;
    let mut zero_writes = 0;
    while done < buffer.len() {
        match file.write_at(&buffer[done..], offset + done as u64) {
            Ok(0) => {
                zero_writes += 1;
                if zero_writes == ZERO_WRITES_MAX {
                    return Err(IoError::new(IoErrorKind::WriteZero));
                }
            }
            Ok(count) => {
                done += count.min(buffer.len() - done);
                zero_writes = 0;
            }
            Err(error) if error.kind == IoErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Calls again while the call was interrupted. For open, sync, rename and the like.
pub fn uninterrupted<T>(mut call: impl FnMut() -> IoResult<T>) -> IoResult<T> {
    loop {
        match call() {
            Err(error) if error.kind == IoErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Copies `name` into `target`, where it must not exist, and syncs the copy. What a failed copy has
/// written is removed again.
pub fn copy_file(source: &dyn Vfs, name: FileName, target: &dyn Vfs) -> IoResult<()> {
    let from = uninterrupted(|| source.open(name, OpenMode::Read))?;
    let to = uninterrupted(|| target.create_new(name))?;
    let copied =
        copy_bytes(from.as_ref(), to.as_ref()).and_then(|()| uninterrupted(|| to.sync_data()));
    if copied.is_err() {
        // The first error is the one to report; the target holds no file that anything names.
        let _ = uninterrupted(|| target.unlink(name));
    }
    copied
}

fn copy_bytes(from: &dyn File, to: &dyn File) -> IoResult<()> {
    let mut buffer = vec![0; COPY_BUFFER_BYTES];
    let mut offset = 0;
    loop {
        let count = read_up_to_at(from, &mut buffer, offset)?;
        write_all_at(to, &buffer[..count], offset)?;
        offset += count as u64;
        if count < buffer.len() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;

    /// What the next call does.
    #[derive(Clone, Copy, Debug)]
    enum Turn {
        /// Moves at most so many bytes.
        Move(usize),
        /// Fails.
        Fail(IoErrorKind),
    }

    /// A file whose transfers follow a script: so many times each turn, then whole transfers.
    #[derive(Debug)]
    struct Scripted {
        bytes: Mutex<Vec<u8>>,
        script: Mutex<Vec<(u32, Turn)>>,
        calls: Mutex<u32>,
    }

    impl Scripted {
        fn new(bytes: &[u8], script: &[(u32, Turn)]) -> Self {
            let mut script = script.to_vec();
            script.reverse();
            Self {
                bytes: Mutex::new(bytes.to_vec()),
                script: Mutex::new(script),
                calls: Mutex::new(0),
            }
        }

        fn turn(&self) -> IoResult<usize> {
            *self.calls.lock() += 1;
            let mut script = self.script.lock();
            let Some((times, turn)) = script.last_mut() else {
                return Ok(usize::MAX);
            };
            let turn = *turn;
            *times -= 1;
            if *times == 0 {
                script.pop();
            }
            match turn {
                Turn::Move(count) => Ok(count),
                Turn::Fail(kind) => Err(IoError::new(kind)),
            }
        }

        fn calls(&self) -> u32 {
            *self.calls.lock()
        }
    }

    impl File for Scripted {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
            let most = self.turn()?;
            let bytes = self.bytes.lock();
            let rest = bytes.get(offset as usize..).unwrap_or(&[]);
            let count = most.min(rest.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }
        fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
            let count = self.turn()?.min(buffer.len());
            let mut bytes = self.bytes.lock();
            let end = offset as usize + count;
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[offset as usize..end].copy_from_slice(&buffer[..count]);
            Ok(count)
        }
        fn sync_data(&self) -> IoResult<()> {
            self.turn().map(drop)
        }
        fn set_len(&self, _: u64) -> IoResult<()> {
            Ok(())
        }
        fn allocate(&self, _: u64) -> IoResult<()> {
            Ok(())
        }
        fn len(&self) -> IoResult<u64> {
            Ok(self.bytes.lock().len() as u64)
        }
    }

    const TEXT: &[u8] = b"short transfers are legal";

    #[test]
    fn short_reads_are_joined() {
        let file = Scripted::new(TEXT, &[(3, Turn::Move(1)), (2, Turn::Move(4))]);
        let mut buffer = [0; 19];
        read_exact_at(&file, &mut buffer, 6).expect("19 bytes are there");
        assert_eq!(&buffer[..19], &TEXT[6..]);
    }

    #[test]
    fn several_reads_are_whole_or_fail_each_by_itself() {
        let script = [
            (1, Turn::Move(2)),
            (1, Turn::Fail(IoErrorKind::Interrupted)),
            (1, Turn::Fail(IoErrorKind::Other)),
            (4, Turn::Move(3)),
        ];
        let file = Scripted::new(TEXT, &script);
        let mut buffers = [[0; 5]; 4];
        let places = [(0, 0), (1, 6), (2, 0), (3, TEXT.len() as u64 - 2)];
        let mut requests: Vec<_> = buffers
            .iter_mut()
            .zip(places)
            .map(|(buffer, (_, offset))| ReadRequest {
                offset,
                buffer,
                result: Ok(0),
            })
            .collect();
        read_many_exact_at(&file, &mut requests);
        let results: Vec<_> = requests.into_iter().map(|request| request.result).collect();
        let failed = |kind| Err(IoError::new(kind));
        let wanted = [
            Ok(5),
            Ok(5),
            failed(IoErrorKind::Other),
            failed(IoErrorKind::UnexpectedEof),
        ];
        assert_eq!(results, wanted);
        assert_eq!((&buffers[0], &buffers[1]), (b"short", b"trans"));
    }

    #[test]
    fn reads_stop_at_the_end_of_the_file() {
        let file = Scripted::new(TEXT, &[(1, Turn::Move(2))]);
        let mut buffer = [9; 40];
        assert_eq!(read_up_to_at(&file, &mut buffer, 0), Ok(TEXT.len()));
        assert_eq!(&buffer[..TEXT.len()], TEXT);
        assert!(buffer[TEXT.len()..].iter().all(|byte| *byte == 9));
        let eof = IoError::new(IoErrorKind::UnexpectedEof);
        assert_eq!(read_exact_at(&file, &mut buffer, 0), Err(eof));
        assert_eq!(read_up_to_at(&file, &mut buffer, 1 << 40), Ok(0));
    }

    #[test]
    fn short_writes_are_joined() {
        let file = Scripted::new(b"", &[(2, Turn::Move(1)), (1, Turn::Move(5))]);
        write_all_at(&file, TEXT, 3).expect("writes");
        assert_eq!(file.bytes.lock()[3..], *TEXT);
        assert_eq!(file.calls(), 4);
    }

    #[test]
    fn a_storm_of_interruptions_is_not_a_failure() {
        let storm = [
            (10_000, Turn::Fail(IoErrorKind::Interrupted)),
            (1, Turn::Move(2)),
            (10_000, Turn::Fail(IoErrorKind::Interrupted)),
        ];
        let file = Scripted::new(TEXT, &storm);
        let mut buffer = vec![0; TEXT.len()];
        read_exact_at(&file, &mut buffer, 0).expect("reads through it");
        assert_eq!(buffer, TEXT);
        let file = Scripted::new(b"", &storm);
        write_all_at(&file, TEXT, 0).expect("writes through it");
        assert_eq!(*file.bytes.lock(), TEXT);
        assert_eq!(file.calls(), 20_002);
        let file = Scripted::new(b"", &storm[2..]);
        uninterrupted(|| file.sync_data()).expect("syncs through it");
    }

    #[test]
    fn a_write_that_stores_nothing_fails_in_the_end() {
        let zero = IoError::new(IoErrorKind::WriteZero);
        let file = Scripted::new(b"", &[(ZERO_WRITES_MAX, Turn::Move(0))]);
        assert_eq!(write_all_at(&file, TEXT, 0), Err(zero));
        assert_eq!(file.calls(), ZERO_WRITES_MAX);
        // One fewer, twice, with progress between: not a failure.
        let stutter = (ZERO_WRITES_MAX - 1, Turn::Move(0));
        let file = Scripted::new(b"", &[stutter, (1, Turn::Move(1)), stutter]);
        write_all_at(&file, TEXT, 0).expect("it makes progress");
        assert_eq!(*file.bytes.lock(), TEXT);
    }

    #[test]
    fn other_errors_end_the_loop_at_once() {
        let full = IoError::new(IoErrorKind::NoSpace);
        let script = [(1, Turn::Move(3)), (9, Turn::Fail(IoErrorKind::NoSpace))];
        let file = Scripted::new(b"", &script);
        assert_eq!(write_all_at(&file, TEXT, 0), Err(full));
        assert_eq!(file.calls(), 2);
        let file = Scripted::new(TEXT, &script);
        assert_eq!(read_exact_at(&file, &mut [0; 9], 0), Err(full));
        assert_eq!(uninterrupted(|| file.sync_data()), Err(full));
    }
}
