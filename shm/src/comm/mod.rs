//! The collectives of one node as a caller sees them: checked arguments in, one named error out.

mod alltoallv;
mod cached;
mod call_cache;
mod dropped_calls;
mod errors;
mod execute;
mod listed_scatter;
mod node_comm;
mod other_length;
mod outside;
mod registered;
mod registered_buffers;
mod requests;
mod send_memory;
mod shared_results;
mod split;
mod unequal_buffers;
mod unequal_request;
mod unequal_row;
mod views;

pub use node_comm::{JoinOptions, NodeComm};
pub use requests::{Completion, InactiveRequest};
pub use views::Draft;
