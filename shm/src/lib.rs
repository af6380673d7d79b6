//! The node layer of earlybird: processes of one node reduce through shared memory, early arrivals working.

pub mod config;
pub mod error;
pub mod kernels;
pub mod op;

pub use config::{Algorithm, WaitPreset};
pub use error::Error;
pub use op::{DType, Element, FoldOrder, Op};
