//! The deterministic simulator of sealstone: a disk that lies as real disks lie, a model, and
//! runners that drive an engine through crashes and compare every answer.

pub mod age;
pub mod choices;
pub mod command;
pub mod corpus;
pub mod disk;
pub mod env;
pub mod explore;
pub mod faults;
pub mod heap;
pub mod help;
pub mod life;
pub mod mini;
pub mod model;
pub mod plan;
pub mod plants;
pub mod pool;
pub mod real;
pub mod records;
pub mod script;
pub mod shrink;
pub mod store;
pub mod subject;
pub mod sweep;
pub mod workers;
