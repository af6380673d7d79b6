//! Collective operations that know processes never arrive together.
#![forbid(unsafe_code)]
pub use earlybird_shm::{Algorithm, DType, Element, Error, FoldOrder, Op, WaitPreset};

#[cfg(feature = "cli")]
pub mod launch;
pub mod pattern;
