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
    /// True if [`stream`](Vector::stream) differs from [`store`](Vector::store).
    const STREAMS: bool;

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

/// Implements [`Vector`] for a register of x86, by its loads and stores, and the operators by expressions in `a` and `b`. The
/// masked load and store touch only the first `n` elements.
#[cfg(target_arch = "x86_64")]
macro_rules! x86_vector {
    ($name:ident($register:ty), $element:ty, [$load:ident $store:ident $stream:ident],
     |$from:ident, $n:ident| $load_first:expr, |$to:ident, $m:ident, $value:ident| $store_first:expr,
     |$a:ident, $b:ident| $sum:expr, $product:expr, $min:expr, $max:expr) => {
        #[derive(Clone, Copy)]
        pub(super) struct $name($register);

        // SAFETY: whole vectors are loaded and stored unaligned; masked ones touch only the lanes of the mask.
        unsafe impl Vector for $name {
            const LANES: usize = size_of::<$register>() / size_of::<$element>();
            const ELEMENT_BYTES: usize = size_of::<$element>();
            const STREAMS: bool = true;

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: the caller may read a vector and has the level's features.
                unsafe { $name($load(from.cast())) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: the caller may write a vector and has the level's features.
                unsafe { $store(to.cast(), self.0) }
            }
            #[inline(always)]
            unsafe fn stream(self, to: *mut u8) {
                // SAFETY: the caller may write a vector at this address, a multiple of its size, and has the level's features.
                unsafe { $stream(to.cast(), self.0) }
            }
            #[inline(always)]
            unsafe fn fence() {
                // SAFETY: every level includes SSE.
                unsafe { _mm_sfence() }
            }
            #[inline(always)]
            unsafe fn load_first($from: *const u8, $n: usize) -> Self {
                debug_assert!($n < Self::LANES);
                // SAFETY: the mask covers the n elements that the caller may read; the level's features are present.
                unsafe { $name($load_first) }
            }
            #[inline(always)]
            unsafe fn store_first(self, $to: *mut u8, $m: usize) {
                debug_assert!($m < Self::LANES);
                let $value = self.0;
                // SAFETY: the mask covers the n elements that the caller may write; the level's features are present.
                unsafe { $store_first }
            }
        }
        x86_vector!(@ $name, Sum, |$a, $b| $sum);
        x86_vector!(@ $name, Product, |$a, $b| $product);
        x86_vector!(@ $name, Min, |$a, $b| $min);
        x86_vector!(@ $name, Max, |$a, $b| $max);
    };
    (@ $name:ident, $operator:ident, |$a:ident, $b:ident| $result:expr) => {
        impl Operator<$name> for $operator {
            #[inline(always)]
            unsafe fn apply(left: $name, right: $name) -> $name {
                let ($a, $b) = (left.0, right.0);
                // SAFETY: the caller has the level's features.
                $name(unsafe { $result })
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use x86_vector;
