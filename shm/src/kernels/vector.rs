//! What the loops need from a vector of one element type at one instruction-set level, and the four operators.
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

    unsafe fn sum(self, right: Self) -> Self;
    unsafe fn product(self, right: Self) -> Self;
    unsafe fn min(self, right: Self) -> Self;
    unsafe fn max(self, right: Self) -> Self;
}

/// Which of the four; a type, so that each kernel is compiled for its operator.
pub(super) trait Operator {
    /// # Safety
    /// The features of the vector's level are present.
    unsafe fn apply<V: Vector>(left: V, right: V) -> V;
}

macro_rules! operators {
    ($($name:ident $method:ident),*) => {$(
        pub(super) struct $name;
        impl Operator for $name {
            #[inline(always)]
            unsafe fn apply<V: Vector>(left: V, right: V) -> V {
                // SAFETY: the caller has the features of the level.
                unsafe { left.$method(right) }
            }
        }
    )*};
}
operators!(Sum sum, Product product, Min min, Max max);
