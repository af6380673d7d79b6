//! Collective calls that are started now and waited for later, calls that are started again and again, and messages of two ranks.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../hier/tests/common/conformance.rs"]
mod conformance;

mod forms;
mod immediate;
mod open;
mod owners;
mod pairs;
mod persistent;
mod point_to_point;
mod progress;
mod shared;
