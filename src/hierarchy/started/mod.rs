//! Calls over several nodes that are started now and completed later.
//!
//! A started call is a future over the steps of the blocking one (`begin.rs`). The communicator polls those that may have something to
//! do (`due.rs`) in every `test`, `wait` and later call, and so does the progress engine while a thread waits in another call. A future
//! never waits itself. Its data are copies, so that its owner's buffers are there whatever happens.
//!
//! ```text
//! in the node     collect 0 | collect 1              started one after the other as the calls are
//! between leaders             ~~ 0 ~~ ~~ 1 ~~        one at a time
//! in the node                     deliver 0 | deliver 1   started in the order of calls, in a group of their own
//! ```
//!
//! So every rank of a node starts the same operations in the same order in either group, whatever is complete when, and leaders
//! exchange in the order of calls. A rank that has started a call and computes has contributed what the others of its node
//! need; a leader that is in no call of the library holds up the exchange, as in a blocking call. A blocking call begins when all
//! calls started before have ended.

mod begin;
mod due;
mod multi_node_comm;
mod persistent_allreduce;
mod prepared;
mod steps;

pub(crate) use multi_node_comm::MultiNodeComm;
pub(crate) use prepared::Prepared;
pub(super) use steps::Steps;
