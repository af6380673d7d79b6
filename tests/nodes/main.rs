//! Communicators that span nodes: the same calls by node, exchange and node, their plans and their errors.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../hier/tests/common/conformance.rs"]
mod conformance;

mod across;
mod driven;
mod endpoints;
mod plans;
mod prepared_across;
mod three_phase;
