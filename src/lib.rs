//! Collective operations that know processes never arrive together.
#![forbid(unsafe_code)]
pub use earlybird_shm::{DType, Element, Error, FoldOrder, Op};
