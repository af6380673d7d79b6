//! Collective calls that block, on one node: right on every path, in every form, for every type and operator.

#[path = "../common/mod.rs"]
mod common;

mod all_reduce;
mod announced_gather;
mod announced_scatter;
mod early_leave;
mod forms;
mod grouped;
mod large_counts;
mod large_deposits;
mod long_blocks;
mod operations;
mod result_bits;
mod scan;
mod single_copy;
mod user_operators;
