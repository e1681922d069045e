//! Cases from the field that a plan can't tell: threads, processes, real files, giant lengths, and sweeps
//! that have to tell several right outcomes apart. One module a case, named by its number; the rest are
//! plans in `corpus/plans/field/`.

#[path = "../support/mod.rs"]
mod support;

mod allocations;
mod b006;
mod b014;
mod b017;
mod b021;
mod b033;
mod b034;
mod b039;
mod b042;
mod b044;
mod b050;
mod b057;
mod b058;
