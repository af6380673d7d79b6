//! The node layer of earlybird: processes of one node reduce through shared memory, early arrivals working.

pub mod error;
pub mod op;
#[cfg(not(earlybird_loom))]
pub mod segment;

pub use error::Error;
pub use op::{DType, Element, FoldOrder, Op};
