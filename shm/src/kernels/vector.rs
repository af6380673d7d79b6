//! The traits of a vector of one element type at one instruction-set level, and the operators by name.
//!
//! The operators are commutative bit for bit, so that ranks which fold the same pair in either role agree:
//! integers wrap, a float result that is a NaN is the one canonical quiet NaN, and minimum and maximum order
//! -0 below +0. No fused multiply-add: every result is rounded once, the same at every level.
#![allow(unsafe_code)]

/// A few elements that one instruction handles.
///
/// All methods are `inline(always)` and are called only from functions compiled for the level's features.
///
/// # Safety
/// Every method must be called with the level's features present. `load` and `store` touch exactly
/// `LANES` elements at an address of any alignment, `load_first` and `store_first` exactly the first `n < LANES`,
/// `stream` exactly `LANES` elements at an address that the vector's size divides.
pub(super) unsafe trait Vector: Copy {
    /// Elements per vector.
    const LANES: usize;
    /// Bytes per element.
    const ELEMENT_BYTES: usize;

    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    /// Stores past the caches, where the level can; [`fence`](Vector::fence) orders it.
    unsafe fn stream(self, to: *mut u8);
    /// Orders streamed stores before everything that follows.
    unsafe fn fence();
    unsafe fn load_first(from: *const u8, n: usize) -> Self;
    unsafe fn store_first(self, to: *mut u8, n: usize);
}

/// An operator on vectors; a type, so that each kernel is compiled for its operator.
pub(super) trait Operator<V> {
    /// # Safety
    /// The features of the vector's level are present.
    unsafe fn apply(left: V, right: V) -> V;
}

/// The operator on one element: its definition.
pub(super) trait Scalar<T> {
    fn one(left: T, right: T) -> T;
}

macro_rules! operators {
    ($($name:ident)*) => {$(
        pub(super) struct $name;
    )*};
}
operators!(Sum Product Divide Min Max BitAnd BitOr BitXor LogicalAnd LogicalOr LogicalXor MinIndex MaxIndex);
