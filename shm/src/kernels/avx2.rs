//! Vectors of 32 bytes for processors with AVX2.
//!
//! AVX2 lacks some 64-bit integer instructions; those are built from 32-bit multiplies and signed comparisons.
#![allow(unsafe_code)]

use super::half::{BF16, F16, Half};
use super::vector::{Divide, Max, Min, Operator, Product, Sum, Vector, x86_vector};
use std::arch::x86_64::*;

/// Reads 8 masks of 4 bytes from `8 - n`: the first `n` are all ones.
static FIRST_OF_4_BYTES: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// All ones in the first `n` words of 4 bytes.
///
/// # Safety
/// AVX2 is present and `n <= 8`.
#[inline(always)]
unsafe fn first_words(n: usize) -> __m256i {
    debug_assert!(n <= 8);
    // SAFETY: 8 - n ..= 15 - n lies within the 16 masks.
    unsafe { _mm256_loadu_si256(FIRST_OF_4_BYTES.as_ptr().add(8 - n).cast()) }
}

/// The low 64 bits of each product: low x low plus both cross products, shifted.
///
/// # Safety
/// AVX2 is present.
#[inline(always)]
unsafe fn multiply_64(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: AVX2 is present.
    unsafe {
        let cross = _mm256_mullo_epi32(a, _mm256_shuffle_epi32::<0b10_11_00_01>(b));
        let high = _mm256_slli_epi64::<32>(_mm256_add_epi32(cross, _mm256_srli_epi64::<32>(cross)));
        _mm256_add_epi64(_mm256_mul_epu32(a, b), high)
    }
}

/// All ones where `a > b`, for lanes of 64 bits; `flip` is xored into both first (the sign bit for unsigned).
///
/// # Safety
/// AVX2 is present.
#[inline(always)]
unsafe fn greater_64(a: __m256i, b: __m256i, flip: i64) -> __m256i {
    // SAFETY: AVX2 is present.
    unsafe {
        let flip = _mm256_set1_epi64x(flip);
        _mm256_cmpgt_epi64(_mm256_xor_si256(a, flip), _mm256_xor_si256(b, flip))
    }
}

macro_rules! vector {
    ($name:ident, $element:ty, $($operators:tt)*) => {
        x86_vector!(
            $name(__m256i),
            $element,
            [_mm256_loadu_si256 _mm256_storeu_si256 _mm256_stream_si256],
            |from, n| _mm256_maskload_epi32(from.cast(), first_words(n * size_of::<$element>() / 4)),
            |to, n, value| _mm256_maskstore_epi32(to.cast(), first_words(n * size_of::<$element>() / 4), value),
            $($operators)*
        );
    };
}

vector!(
    I32,
    i32,
    |a, b| _mm256_add_epi32(a, b),
    _mm256_mullo_epi32(a, b),
    _mm256_min_epi32(a, b),
    _mm256_max_epi32(a, b)
);
vector!(
    U32,
    u32,
    |a, b| _mm256_add_epi32(a, b),
    _mm256_mullo_epi32(a, b),
    _mm256_min_epu32(a, b),
    _mm256_max_epu32(a, b)
);
vector!(
    I64,
    i64,
    |a, b| _mm256_add_epi64(a, b),
    multiply_64(a, b),
    _mm256_blendv_epi8(a, b, greater_64(a, b, 0)),
    _mm256_blendv_epi8(b, a, greater_64(a, b, 0))
);
vector!(
    U64,
    u64,
    |a, b| _mm256_add_epi64(a, b),
    multiply_64(a, b),
    _mm256_blendv_epi8(a, b, greater_64(a, b, i64::MIN)),
    _mm256_blendv_epi8(b, a, greater_64(a, b, i64::MIN))
);

/// Float operators of one width, on registers that travel as integers.
///
/// The machine's minimum returns its second operand for equal values, so both orders differ only for +0 and -0:
/// OR keeps that sign (minimum), AND drops it (maximum).
macro_rules! floats {
    ($width:ident, $to:ident, $back:ident, $quiet_nan:expr, $add:ident, $mul:ident, $minimum:ident, $maximum:ident,
     $or:ident, $and:ident, $compare:ident, $blend:ident) => {
        mod $width {
            use std::arch::x86_64::*;

            macro_rules! operator {
                ($name:ident, |$a:ident, $b:ident| $value:expr, $left:expr, $right:expr) => {
                    /// # Safety
                    /// AVX2 is present.
                    #[inline(always)]
                    pub(super) unsafe fn $name(a: __m256i, b: __m256i) -> __m256i {
                        // SAFETY: AVX2 is present.
                        unsafe {
                            let ($a, $b) = ($to(a), $to(b));
                            let value = $value;
                            let unordered = $compare::<_CMP_UNORD_Q>($left(value, $a), $right(value, $b));
                            $back($blend(value, $quiet_nan, unordered))
                        }
                    }
                };
            }
            // A sum or product is canonical by its own NaN, a minimum or maximum by those of its operands.
            operator!(sum, |a, b| $add(a, b), |v, _| v, |v, _| v);
            operator!(product, |a, b| $mul(a, b), |v, _| v, |v, _| v);
            operator!(min, |a, b| $or($minimum(a, b), $minimum(b, a)), |_, a| a, |_, b| b);
            operator!(max, |a, b| $and($maximum(a, b), $maximum(b, a)), |_, a| a, |_, b| b);
        }
    };
}
floats!(
    single,
    _mm256_castsi256_ps,
    _mm256_castps_si256,
    _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc0_0000)),
    _mm256_add_ps,
    _mm256_mul_ps,
    _mm256_min_ps,
    _mm256_max_ps,
    _mm256_or_ps,
    _mm256_and_ps,
    _mm256_cmp_ps,
    _mm256_blendv_ps
);
floats!(
    double,
    _mm256_castsi256_pd,
    _mm256_castpd_si256,
    _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff8_0000_0000_0000)),
    _mm256_add_pd,
    _mm256_mul_pd,
    _mm256_min_pd,
    _mm256_max_pd,
    _mm256_or_pd,
    _mm256_and_pd,
    _mm256_cmp_pd,
    _mm256_blendv_pd
);
vector!(F32, f32, |a, b| single::sum(a, b), single::product(a, b), single::min(a, b), single::max(a, b));
vector!(F64, f64, |a, b| double::sum(a, b), double::product(a, b), double::min(a, b), double::max(a, b));

impl Operator<F32> for Divide {
    #[inline(always)]
    unsafe fn apply(left: F32, right: F32) -> F32 {
        // SAFETY: the caller has AVX2.
        F32(unsafe { _mm256_castps_si256(_mm256_div_ps(_mm256_castsi256_ps(left.0), _mm256_castsi256_ps(right.0))) })
    }
}

impl Half<F32> for F16 {
    #[inline(always)]
    unsafe fn widen(from: *const u8) -> F32 {
        // SAFETY: the caller may read 16 bytes and has F16C.
        F32(unsafe { _mm256_castps_si256(_mm256_cvtph_ps(_mm_loadu_si128(from.cast()))) })
    }
    #[inline(always)]
    unsafe fn narrow(vector: F32, to: *mut u8) {
        // SAFETY: the caller may write 16 bytes and has AVX2 and F16C.
        unsafe {
            let value = _mm256_castsi256_ps(vector.0);
            let quiet_nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc0_0000));
            let value = _mm256_blendv_ps(value, quiet_nan, _mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
            _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value));
        }
    }
}

impl Half<F32> for BF16 {
    #[inline(always)]
    unsafe fn widen(from: *const u8) -> F32 {
        // SAFETY: the caller may read 16 bytes and has AVX2.
        F32(unsafe { _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()))) })
    }
    #[inline(always)]
    unsafe fn narrow(vector: F32, to: *mut u8) {
        // SAFETY: the caller may write 16 bytes and has AVX2.
        unsafe {
            let value = _mm256_castsi256_ps(vector.0);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(vector.0), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(vector.0, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
            let bits = _mm256_blendv_epi8(_mm256_srli_epi32::<16>(rounded), _mm256_set1_epi32(0x7fc0), nan);
            // Packing works within halves of the register: the two results are put together.
            let packed = _mm256_permute4x64_epi64::<0b10_00>(_mm256_packus_epi32(bits, bits));
            _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed));
        }
    }
}
