//! Nodes that reach each other through another library's messages: the operations that such a library must have, the transport
//! and the reports of failures that are built on it. MPI is one: by rsmpi in `src/mpi`, by its profiling names in `preload/`. Where
//! there is none, TCP carries the messages.

mod handshake;
mod job_transport;
mod node;
mod notice;
mod tcp;
mod transport;

pub use earlybird_hier::exec::Failure;
pub use handshake::TOKEN_BYTES;
pub(crate) use job_transport::JobTransport;
pub use node::node_name;
pub use tcp::TcpMessages;
#[doc(hidden)]
pub use transport::{MessageOptions, MessageTransport};

use std::fmt::Debug;

/// The placement of a job's ranks, known to all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The ranks of every node, each rank once: those that have one [`node_name`], or fewer. The first of a node leads it.
    pub nodes: Vec<Vec<usize>>,
    /// Process id and host of every rank, for errors.
    pub processes: Vec<(u32, String)>,
    /// Ranks on the machine of this one: more than its node has where nodes are virtual.
    pub here: usize,
}

/// Messages between the ranks of a job, separate from all others: of one sender and one tag they come in the order in which
/// they were sent. Dropped after its last message is complete or cancelled, without communication.
pub trait Messages: Debug + Send {
    /// This process's rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Checks that the library runs and that this thread may call it.
    ///
    /// # Errors
    /// [`Failure::Transport`] that says what to do.
    fn may_call(&self) -> Result<(), Failure>;

    /// Returns true if threads may call the library at the same time. If not, started calls make progress only while the
    /// thread waits that was inside a call of its communicator last.
    fn is_concurrent(&self) -> bool {
        false
    }

    /// Starts sending the whole of `buffer`.
    ///
    /// # Errors
    /// The errors that the library reports.
    fn send(&self, to: usize, tag: i32, buffer: Vec<u8>) -> Result<Box<dyn Message>, Failure>;

    /// Starts receiving at most `buffer.len()` bytes from `from`, or from any rank.
    ///
    /// # Errors
    /// The errors that the library reports.
    fn receive(&self, from: Option<usize>, tag: i32, buffer: Vec<u8>) -> Result<Box<dyn Message>, Failure>;

    /// Messages of the ranks that give one color, ordered by key. Collective.
    ///
    /// # Errors
    /// The errors that the library reports.
    fn split(&self, color_and_key: Option<(usize, usize)>) -> Result<Option<Box<dyn Messages>>, Failure>;

    /// Keeps the number of this communicator from ever being used again, even when dropped: messages may still arrive and must not
    /// reach other receivers.
    fn abandon(&mut self);
}

/// A message under way, with its buffer. Dropping it before it is complete cancels a receive.
pub trait Message: Debug + Send {
    /// Returns the bytes received, or 0 for a send, if it is complete. Drives the library's progress.
    ///
    /// # Errors
    /// The errors that the library reports.
    fn test(&mut self) -> Result<Option<usize>, Failure>;

    /// The buffer of a complete message.
    fn contents(&self) -> &[u8];

    /// The buffer, for the next message; call it once this one is complete.
    fn into_buffer(self: Box<Self>) -> Vec<u8>;
}
