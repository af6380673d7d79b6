//! The algorithms: how the ranks of a node carry out one operation, each in a file of its own.

pub(super) mod announced;
pub(super) mod announced_gather;
pub(super) mod announced_scatter;
pub(super) mod chain;
pub(super) mod exchange;
pub(super) mod flat;
pub(super) mod leader;
pub(super) mod registered;
pub(super) mod shared_result;
pub(super) mod single_copy;
pub(super) mod slices;
pub(super) mod static_leader;
