//! The `sealstone-sim` command.
fn main() {}
