//! The truth that an engine is compared with: all its states, by sequence.
//!
//! A key's history is a list of (sequence, value); the state at `n` is each key's last entry at or
//! below `n`. Thousands of states cost what the operations cost.
//!
//! The one rule about crashes: the engine says how far it recovered, and then
//! `durable <= recovered <= issued` and `content = state[recovered]`. What was issued beyond that is
//! forgotten, and what was recovered is durable from then on.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealstone::types::KeyspaceKind;

/// One operation: a value, or none for a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Index of the keyspace.
    pub keyspace: usize,
    /// The key.
    pub key: Vec<u8>,
    /// The value; `None` deletes.
    pub value: Option<Vec<u8>>,
}

impl Op {
    /// Sets a key.
    pub fn put(keyspace: usize, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self {
            keyspace,
            key: key.into(),
            value: Some(value.into()),
        }
    }

    /// Deletes a key.
    pub fn delete(keyspace: usize, key: impl Into<Vec<u8>>) -> Self {
        Self {
            keyspace,
            key: key.into(),
            value: None,
        }
    }
}

/// A violated rule, with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `S1` to `S22`.
    pub rule: &'static str,
    /// What was seen and what was right.
    pub what: String,
}

impl Violation {
    /// A violation of `rule`.
    pub fn new(rule: &'static str, what: impl Into<String>) -> Self {
        Self {
            rule,
            what: what.into(),
        }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// What a batch will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It takes a sequence.
    Commit,
    /// It changes nothing and takes none.
    NoOp,
    /// It is refused: a write-once key has another value.
    Conflict,
}

type Value = Option<Arc<[u8]>>;
/// A key's values, each with the sequence that set it, in order.
type History = Vec<(u64, Value)>;

/// The model of one store.
#[derive(Clone, Debug)]
pub struct Model {
    kinds: Vec<KeyspaceKind>,
    keys: BTreeMap<(usize, Vec<u8>), History>,
    /// The last sequence that was given out.
    pub issued: u64,
    /// The last sequence that no crash may lose.
    pub durable: u64,
    /// The last sequence that readers see.
    pub visible: u64,
}

impl Model {
    /// An empty store with keyspaces of these kinds.
    pub fn new(kinds: &[KeyspaceKind]) -> Self {
        Self {
            kinds: kinds.to_vec(),
            keys: BTreeMap::new(),
            issued: 0,
            durable: 0,
            visible: 0,
        }
    }

    /// One more keyspace; returns its index.
    pub fn add_keyspace(&mut self, kind: KeyspaceKind) -> usize {
        self.kinds.push(kind);
        self.kinds.len() - 1
    }

    /// Number of keyspaces.
    pub fn keyspaces(&self) -> usize {
        self.kinds.len()
    }

    /// The kind of a keyspace.
    pub fn kind(&self, keyspace: usize) -> KeyspaceKind {
        self.kinds[keyspace]
    }

    /// A key's value in the state at `sequence`.
    pub fn get(&self, keyspace: usize, key: &[u8], sequence: u64) -> Option<&[u8]> {
        let history = self.keys.get(&(keyspace, key.to_vec()))?;
        at(history, sequence)
    }

    /// A keyspace in the state at `sequence`, in key order.
    pub fn scan(
        &self,
        keyspace: usize,
        sequence: u64,
    ) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.keys
            .range((keyspace, Vec::new())..(keyspace + 1, Vec::new()))
            .filter_map(move |((_, key), history)| Some((&key[..], at(history, sequence)?)))
    }

    /// Every key that was ever written, deleted ones too.
    pub fn known_keys(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.keys
            .keys()
            .map(|(keyspace, key)| (*keyspace, &key[..]))
    }

    /// What `ops` will do, applied in order after everything issued.
    pub fn verdict(&self, ops: &[Op]) -> Verdict {
        let mut overlay: BTreeMap<(usize, &[u8]), Option<&[u8]>> = BTreeMap::new();
        let mut verdict = Verdict::NoOp;
        for op in ops {
            let place = (op.keyspace, &op.key[..]);
            let stored = self.get(op.keyspace, &op.key, self.issued);
            let now = overlay.get(&place).copied().unwrap_or(stored);
            if self.kinds[op.keyspace] == KeyspaceKind::WriteOnce
                && let (Some(now), Some(new)) = (now, &op.value)
            {
                if now != &new[..] {
                    return Verdict::Conflict;
                }
                continue;
            }
            verdict = Verdict::Commit;
            overlay.insert(place, op.value.as_deref());
        }
        verdict
    }

    /// Gives the batch the next sequence.
    pub fn issue(&mut self, ops: &[Op]) -> u64 {
        self.issued += 1;
        for op in ops {
            let history = self.keys.entry((op.keyspace, op.key.clone())).or_default();
            let value = op.value.as_deref().map(Arc::from);
            match history.last_mut() {
                Some(last) if last.0 == self.issued => last.1 = value,
                _ => history.push((self.issued, value)),
            }
        }
        self.issued
    }

    /// Takes everything after `sequence` back.
    pub fn retract_after(&mut self, sequence: u64) {
        for history in self.keys.values_mut() {
            let kept = history.partition_point(|(at, _)| *at <= sequence);
            history.truncate(kept);
        }
        self.issued = self.issued.min(sequence);
        self.visible = self.visible.min(sequence);
    }

    /// A commit was acknowledged.
    pub fn acknowledge(&mut self, sequence: u64, synced: bool) {
        self.visible = self.visible.max(sequence);
        if synced {
            self.durable = self.durable.max(sequence);
        }
    }

    /// A store was opened on what a crash left and recovered that far.
    ///
    /// # Errors
    /// S1 with S2 (an acknowledged commit is gone) or S3 (a commit that nobody made).
    pub fn recover(&mut self, recovered: u64) -> Result<(), Violation> {
        if recovered < self.durable {
            let what = format!(
                "acknowledged through {}, recovered {recovered}",
                self.durable
            );
            return Err(Violation::new("S2", what));
        }
        if recovered > self.issued {
            let what = format!("issued through {}, recovered {recovered}", self.issued);
            return Err(Violation::new("S3", what));
        }
        self.retract_after(recovered);
        self.durable = recovered;
        self.visible = recovered;
        Ok(())
    }

    /// `rule`, or S4 if what a read found had been deleted.
    fn rule_for(
        &self,
        rule: &'static str,
        (keyspace, key): (usize, &[u8]),
        sequence: u64,
    ) -> &'static str {
        let history = self.keys.get(&(keyspace, key.to_vec()));
        let count = history.map_or(0, |h| h.partition_point(|(at, _)| *at <= sequence));
        let last = history.and_then(|history| history[..count].last());
        match last {
            Some((_, None)) if rule == "S7" => "S4",
            _ => rule,
        }
    }

    /// Compares one answer with the state at `sequence`.
    ///
    /// # Errors
    /// `rule`, or S4 instead of S7 if a deleted key came back, with what is wrong.
    pub fn check_get(
        &self,
        rule: &'static str,
        (keyspace, key): (usize, &[u8]),
        sequence: u64,
        answer: Option<&[u8]>,
    ) -> Result<(), Violation> {
        let right = self.get(keyspace, key, sequence);
        if right == answer {
            return Ok(());
        }
        let what = format!(
            "keyspace {keyspace} key {} at {sequence}: got {}, right is {}",
            show(key),
            answer.map_or("nothing".into(), show),
            right.map_or("nothing".into(), show)
        );
        let rule = self.rule_for(rule, (keyspace, key), sequence);
        Err(Violation::new(rule, what))
    }

    /// Compares a whole scan with the state at `sequence`.
    ///
    /// # Errors
    /// `rule`, with the first difference.
    pub fn check_scan(
        &self,
        rule: &'static str,
        (keyspace, reverse): (usize, bool),
        sequence: u64,
        answer: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), Violation> {
        self.check_part(rule, (keyspace, reverse), sequence, &|_| true, answer)
    }

    /// Compares a scan of the keys that `part` says with the state at `sequence`.
    ///
    /// # Errors
    /// `rule`, with the first difference.
    pub fn check_part(
        &self,
        rule: &'static str,
        (keyspace, reverse): (usize, bool),
        sequence: u64,
        part: &dyn Fn(&[u8]) -> bool,
        answer: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), Violation> {
        let forward = self.scan(keyspace, sequence).filter(|(key, _)| part(key));
        let forward: Vec<(&[u8], &[u8])> = forward.collect();
        let count = forward.len();
        let right = |index: usize| {
            let index = if reverse {
                count.checked_sub(index + 1)?
            } else {
                index
            };
            forward.get(index).copied()
        };
        for index in 0..count.max(answer.len()) {
            let got = answer.get(index).map(|(key, value)| (&key[..], &value[..]));
            if got != right(index) {
                let text = |item: Option<(&[u8], &[u8])>| {
                    item.map_or("the end".into(), |(k, v)| {
                        format!("{} = {}", show(k), show(v))
                    })
                };
                let what = format!(
                    "scan of keyspace {keyspace} at {sequence}, reverse {reverse}, item {index}: \
                     got {}, right is {}",
                    text(got),
                    text(right(index))
                );
                let found = got.map_or(&[][..], |(key, _)| key);
                let rule = match got.is_some() {
                    true => self.rule_for(rule, (keyspace, found), sequence),
                    false => rule,
                };
                return Err(Violation::new(rule, what));
            }
        }
        Ok(())
    }
}

fn at(history: &[(u64, Value)], sequence: u64) -> Option<&[u8]> {
    let count = history.partition_point(|(at, _)| *at <= sequence);
    history[..count].last()?.1.as_deref()
}

/// Bytes for people.
pub fn show(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(24)];
    let rest = bytes.len() - shown.len();
    let text: String = shown.escape_ascii().map(char::from).collect();
    if rest == 0 {
        format!("\"{text}\"")
    } else {
        format!("\"{text}\" and {rest} more")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        Model::new(&[KeyspaceKind::WriteOnce, KeyspaceKind::Mutable])
    }

    #[test]
    fn every_state_stays() {
        let mut model = model();
        model.issue(&[Op::put(1, "a", "1"), Op::put(1, "b", "1")]);
        model.issue(&[Op::put(1, "a", "2"), Op::delete(1, "b")]);
        model.issue(&[Op::put(1, "b", "x"), Op::put(1, "b", "3")]);
        let state = |n| model.scan(1, n).map(|(_, v)| v[0]).collect::<Vec<u8>>();
        assert_eq!(
            (0..4).map(state).collect::<Vec<_>>(),
            [&b""[..], b"11", b"2", b"23"]
        );
        assert_eq!(model.scan(0, 3).count(), 0);
    }

    #[test]
    fn write_once_verdicts() {
        let mut model = model();
        model.issue(&[Op::put(0, "a", "1")]);
        let verdict = |ops: &[Op]| model.verdict(ops);
        assert_eq!(verdict(&[Op::put(0, "a", "1")]), Verdict::NoOp);
        assert_eq!(verdict(&[Op::put(0, "a", "2")]), Verdict::Conflict);
        assert_eq!(
            verdict(&[Op::delete(0, "a"), Op::put(0, "a", "2")]),
            Verdict::Commit
        );
        assert_eq!(
            verdict(&[Op::put(0, "b", "1"), Op::put(0, "b", "1")]),
            Verdict::Commit
        );
        assert_eq!(
            verdict(&[Op::put(0, "b", "1"), Op::put(0, "b", "2")]),
            Verdict::Conflict
        );
        assert_eq!(
            verdict(&[Op::put(1, "b", "1"), Op::put(1, "b", "2")]),
            Verdict::Commit
        );
    }

    #[test]
    fn recovery_is_bounded_and_forgets() {
        let mut model = model();
        for value in ["1", "2", "3"] {
            let sequence = model.issue(&[Op::put(1, "a", value)]);
            model.acknowledge(sequence, sequence == 2);
        }
        assert_eq!(model.clone().recover(1).unwrap_err().rule, "S2");
        assert_eq!(model.clone().recover(4).unwrap_err().rule, "S3");
        model.recover(2).unwrap();
        assert_eq!((model.issued, model.durable, model.visible), (2, 2, 2));
        assert_eq!(model.get(1, b"a", 9), Some(&b"2"[..]));
        assert!(model.check_get("S7", (1, b"a"), 2, Some(b"2")).is_ok());
        assert_eq!(
            model.check_get("S7", (1, b"a"), 2, None).unwrap_err().rule,
            "S7"
        );
    }

    #[test]
    fn a_deleted_key_that_comes_back_has_its_own_rule() {
        let mut model = model();
        model.issue(&[Op::put(1, "a", "1")]);
        model.issue(&[Op::delete(1, "a")]);
        let get = |at, answer| model.check_get("S7", (1, b"a"), at, answer);
        assert_eq!(get(2, Some(b"1")).unwrap_err().rule, "S4");
        assert_eq!(get(1, Some(b"2")).unwrap_err().rule, "S7");
        assert_eq!(get(1, None).unwrap_err().rule, "S7");
        let scan = [(b"a".to_vec(), b"1".to_vec())];
        let scan = |rule, at| model.check_scan(rule, (1, false), at, &scan);
        assert_eq!(scan("S7", 2).unwrap_err().rule, "S4");
        assert_eq!(scan("S8", 2).unwrap_err().rule, "S8");
        assert_eq!(scan("S7", 0).unwrap_err().rule, "S7");
    }

    #[test]
    fn scans_are_compared_both_ways() {
        let mut model = model();
        model.issue(&[Op::put(1, "a", "1"), Op::put(1, "b", "2")]);
        let (a, b) = (
            (b"a".to_vec(), b"1".to_vec()),
            (b"b".to_vec(), b"2".to_vec()),
        );
        let check = |reverse, items: &[_]| model.check_scan("S7", (1, reverse), 1, items);
        assert!(check(false, &[a.clone(), b.clone()]).is_ok());
        assert!(check(true, &[b.clone(), a.clone()]).is_ok());
        assert!(check(true, &[a.clone(), b.clone()]).is_err());
        assert!(check(false, std::slice::from_ref(&a)).is_err());
        assert!(check(false, &[a, b.clone(), b]).is_err());
    }
}
