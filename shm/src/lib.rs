//! The node layer of earlybird: processes of one node reduce through shared memory, early arrivals working.

pub mod config;
pub mod error;
pub mod kernels;
#[cfg(earlybird_loom)]
pub mod model;
pub mod op;
pub mod protocol;
pub mod sync;

pub use config::{Algorithm, WaitPreset};
pub use error::Error;
pub use op::{DType, Element, FoldOrder, Op};
