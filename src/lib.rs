//! Collective operations that know processes never arrive together.
#![cfg_attr(not(feature = "mpi"), forbid(unsafe_code))]

mod choice;
mod communicator;
mod config;
mod costs;
mod hierarchy;
mod identity;
mod interpose;
#[cfg(feature = "cli")]
pub mod launch;
pub mod messages;
#[cfg(feature = "mpi")]
pub mod mpi;
mod nodes;
pub mod pattern;
mod plans;
mod size_table;
pub mod transport;
mod tuning;
pub mod units;

pub use choice::Choice;
pub use communicator::{CallReport, Communicator, Persistent, Request, Root, progress};
pub use config::Config;
pub use costs::Costs;
#[doc(hidden)]
pub use earlybird_shm::op::Datatype;
pub use earlybird_shm::{
    Algorithm, BytesOp, CallBuffers, CallOptions, Collective, CollectiveArgs, Counts, DType, Element, Error, FoldOrder,
    Indexed, IntoReduceOp, Op, Progress, ReduceOp, SharedBuffer, SharedView, UserOp, WaitPreset, algorithms,
};
pub use identity::{Identity, Launcher};
pub use interpose::{Carrier, Carriers, Interpose};
pub use nodes::RanksPerNode;
pub use size_table::{SizeTable, Tables};
pub use tuning::Tuning;

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
