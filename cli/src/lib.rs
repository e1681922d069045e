//! What of the `sealstone` command can be reached from outside: the dump text, so that its reader can be
//! fuzzed.

pub mod text;
