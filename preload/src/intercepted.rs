//! A communicator whose calls are intercepted.

use crate::handles::{PredefinedHandles, TypeOpTable};
use crate::selection::Selection;
use earlybird::Communicator;

/// A communicator whose calls are intercepted. The fields that a small call reads come first, in one cache line.
#[repr(C, align(64))]
pub struct InterceptedComm {
    pub type_ops: &'static TypeOpTable,
    pub selection: Selection,
    pub comm: Communicator,
    pub rank: usize,
    pub size: usize,
    pub handles: &'static PredefinedHandles,
}
