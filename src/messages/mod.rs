//! Nodes that reach each other through somebody else's messages: what such a library must have, and the communicator,
//! the transport and the word of failure that are built on it. MPI is the one that is there: by rsmpi in `src/mpi`, by its
//! profiling names in `preload/`.

mod communicator;
mod line;
mod notice;
mod transport;

pub use communicator::Layout;
pub use earlybird_hier::exec::Failure;
pub(crate) use line::MessageLine;
pub use transport::{MessageOptions, MessageTransport};

use std::fmt::Debug;

/// Messages between the ranks of a job that meet nobody else's: of one sender and one tag they come in the order in which
/// they were sent. Dropped after its last message is complete or taken back, and without a word to the other ranks.
pub trait Messages: Debug + Send {
    /// This process's rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Whether the library runs and this thread may call it.
    ///
    /// # Errors
    /// [`Failure::Transport`] that says what to do.
    fn may_call(&self) -> Result<(), Failure>;

    /// Whether threads may call the library at the same time. Where not, what is posted goes on only while the thread waits
    /// that was inside a call of its communicator last.
    fn is_concurrent(&self) -> bool {
        false
    }

    /// Starts sending the whole of `buffer`.
    ///
    /// # Errors
    /// What the library reports.
    fn send(&self, to: usize, tag: i32, buffer: Vec<u8>) -> Result<Box<dyn Message>, Failure>;

    /// Starts receiving at most `buffer.len()` bytes from `from`, or from anybody.
    ///
    /// # Errors
    /// What the library reports.
    fn receive(&self, from: Option<usize>, tag: i32, buffer: Vec<u8>) -> Result<Box<dyn Message>, Failure>;

    /// Messages of the ranks that give one color, ordered by key. Collective.
    ///
    /// # Errors
    /// What the library reports.
    fn split(&self, color_and_key: Option<(usize, usize)>) -> Result<Option<Box<dyn Messages>>, Failure>;

    /// Messages may still come that nobody takes, and must meet nobody else: what tells these from others is never given
    /// back, even when dropped.
    fn abandon(&mut self);
}

/// A message under way, with its buffer. Dropped before it is complete, a receive is taken back.
pub trait Message: Debug + Send {
    /// Whether it is complete: bytes received, or 0 for a send. Drives the library's progress.
    ///
    /// # Errors
    /// What the library reports.
    fn test(&mut self) -> Result<Option<usize>, Failure>;

    /// The buffer of a complete message.
    fn contents(&self) -> &[u8];

    /// The buffer, for the next message; call it once this one is complete.
    fn into_buffer(self: Box<Self>) -> Vec<u8>;
}
