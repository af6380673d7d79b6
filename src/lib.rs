//! Collective operations (allreduce and others) for processes that arrive at different times.
//!
//! A [`Communicator`] has the collectives under rsmpi's names; [`Communicator::process_at_rank`] has those with a root.
//! Every rank makes the same calls in the same order, and every failure is an [`Error`] that all ranks get.
//!
//! ```
//! use earlybird::{Communicator, Op};
//!
//! let comm = Communicator::from_env()?; // under earlybird run, mpirun, srun, torchrun, or alone
//! let mut sums = [1.0f32, 2.0];
//! comm.all_reduce_in_place(&mut sums, Op::Sum)?;
//! assert_eq!(sums, [comm.size() as f32, 2.0 * comm.size() as f32]);
//! # Ok::<(), earlybird::Error>(())
//! ```
#![cfg_attr(not(feature = "mpi"), forbid(unsafe_code))]

mod choice;
mod communicator;
mod config;
mod costs;
mod hierarchy;
mod identity;
mod interpose;
#[doc(hidden)]
#[cfg(feature = "launch")]
pub mod launch;
pub mod messages;
#[cfg(feature = "mpi")]
pub mod mpi;
mod nodes;
#[doc(hidden)]
pub mod pattern;
mod plans;
mod size_table;
mod tails;
#[doc(hidden)]
pub mod trace;
#[doc(hidden)]
pub mod transport;
mod tuning;
#[doc(hidden)]
pub mod units;

pub use choice::Choice;
pub use communicator::{
    Alternative, CallReport, Communicator, CommunicatorBuilder, Delivery, Explanation, JobShape, NodeStep, Persistent,
    PointToPoint, Request, Root, Transfer, explain, progress, wait_all,
};
pub use config::Config;
pub use costs::Costs;
#[doc(hidden)]
pub use earlybird_shm::op::{Datatype, OpIdentity};
#[doc(hidden)]
pub use earlybird_shm::text::panic_text;
#[doc(hidden)]
pub use earlybird_shm::user_op::ReduceFn;
pub use earlybird_shm::{
    Algorithm, BufferOwner, BytesOp, Collective, CollectiveArgs, Counts, DType, Element, Error, FoldOrder, Grouped,
    Indexed, IntoCallBuffers, IntoReduceOp, Op, OwnedArgs, Progress, SharedBuffer, SharedView, UserOp, WaitPreset,
};
#[doc(hidden)]
pub use earlybird_shm::{
    BorrowedBytes, CallBuffers, CallOptions, MemoryKeeper, OwnedBytes, ReduceOp, SharedReduceOp, Side, probe,
};
pub use identity::{Identity, Launcher};
#[doc(hidden)]
pub use interpose::{Carrier, Carriers, Interpose};
pub use nodes::RanksPerNode;
pub use size_table::{SizeTable, Tables};
pub use tuning::Tuning;

/// The examples of the README and of the guide, as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/guide.md")]
struct Examples;

#[cfg(test)]
mod test_support {
    use crate::Error;

    /// The sentence of a usage error; anything else fails the test.
    pub fn usage<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
        match result {
            Err(Error::Usage { message }) => message,
            other => panic!("expected a usage error, got {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_and_buffers_may_move_between_threads() {
        fn is_send<T: Send>() {}
        fn is_send_and_sync<T: Send + Sync>() {}
        is_send::<CommunicatorBuilder>();
        is_send::<Request<'_, Vec<f32>>>();
        is_send::<Persistent<'_, Vec<f32>>>();
        is_send_and_sync::<Communicator>();
        is_send_and_sync::<SharedBuffer<f32>>();
        is_send_and_sync::<SharedView<'_, f32>>();
        is_send_and_sync::<UserOp<f32, fn(&f32, &f32) -> f32>>();
        is_send_and_sync::<Error>();
    }
}
