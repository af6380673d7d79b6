//! Vectors of 64 bytes for processors with AVX-512 F, VL, DQ and BW.
#![allow(unsafe_code)]

use super::half::{BF16, F16, Half};
use super::vector::{Divide, Max, Min, Operator, Product, Sum, Vector, x86_vector};
use std::arch::x86_64::*;

macro_rules! vector {
    ($name:ident, $element:ty, $mask:ty, $masked_load:ident, $masked_store:ident, $($operators:tt)*) => {
        x86_vector!(
            $name(__m512i),
            $element,
            [_mm512_loadu_si512 _mm512_storeu_si512 _mm512_stream_si512],
            |from, n| $masked_load(((1u32 << n) - 1) as $mask, from.cast()),
            |to, n, value| $masked_store(to.cast(), ((1u32 << n) - 1) as $mask, value),
            $($operators)*
        );
    };
}

macro_rules! words_of_4_bytes {
    ($name:ident, $element:ty, $($rest:tt)*) => {
        vector!($name, $element, __mmask16, _mm512_maskz_loadu_epi32, _mm512_mask_storeu_epi32, $($rest)*);
    };
}
macro_rules! words_of_8_bytes {
    ($name:ident, $element:ty, $($rest:tt)*) => {
        vector!($name, $element, __mmask8, _mm512_maskz_loadu_epi64, _mm512_mask_storeu_epi64, $($rest)*);
    };
}
words_of_4_bytes!(
    I32,
    i32,
    |a, b| _mm512_add_epi32(a, b),
    _mm512_mullo_epi32(a, b),
    _mm512_min_epi32(a, b),
    _mm512_max_epi32(a, b)
);
words_of_4_bytes!(
    U32,
    u32,
    |a, b| _mm512_add_epi32(a, b),
    _mm512_mullo_epi32(a, b),
    _mm512_min_epu32(a, b),
    _mm512_max_epu32(a, b)
);
words_of_8_bytes!(
    I64,
    i64,
    |a, b| _mm512_add_epi64(a, b),
    _mm512_mullo_epi64(a, b),
    _mm512_min_epi64(a, b),
    _mm512_max_epi64(a, b)
);
words_of_8_bytes!(
    U64,
    u64,
    |a, b| _mm512_add_epi64(a, b),
    _mm512_mullo_epi64(a, b),
    _mm512_min_epu64(a, b),
    _mm512_max_epu64(a, b)
);

/// Float operators of one width, on registers that travel as integers.
///
/// The range instruction orders -0 below +0; 4 and 5 ask it for minimum and maximum with the sign of the result.
macro_rules! floats {
    ($width:ident, $to:ident, $back:ident, $quiet_nan:expr, $add:ident, $mul:ident, $range:ident, $compare:ident,
     $replace:ident) => {
        mod $width {
            use std::arch::x86_64::*;

            macro_rules! operator {
                ($name:ident, |$a:ident, $b:ident| $value:expr, $left:expr, $right:expr) => {
                    /// # Safety
                    /// AVX-512 F and DQ are present.
                    #[inline(always)]
                    pub(super) unsafe fn $name(a: __m512i, b: __m512i) -> __m512i {
                        // SAFETY: AVX-512 F and DQ are present.
                        unsafe {
                            let ($a, $b) = ($to(a), $to(b));
                            let value = $value;
                            let unordered = $compare::<_CMP_UNORD_Q>($left(value, $a), $right(value, $b));
                            $back($replace(value, unordered, $quiet_nan))
                        }
                    }
                };
            }
            // A sum or product is canonical by its own NaN, a minimum or maximum by those of its operands.
            operator!(sum, |a, b| $add(a, b), |v, _| v, |v, _| v);
            operator!(product, |a, b| $mul(a, b), |v, _| v, |v, _| v);
            operator!(min, |a, b| $range::<4>(a, b), |_, a| a, |_, b| b);
            operator!(max, |a, b| $range::<5>(a, b), |_, a| a, |_, b| b);
        }
    };
}
floats!(
    single,
    _mm512_castsi512_ps,
    _mm512_castps_si512,
    _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc0_0000)),
    _mm512_add_ps,
    _mm512_mul_ps,
    _mm512_range_ps,
    _mm512_cmp_ps_mask,
    _mm512_mask_mov_ps
);
floats!(
    double,
    _mm512_castsi512_pd,
    _mm512_castpd_si512,
    _mm512_castsi512_pd(_mm512_set1_epi64(0x7ff8_0000_0000_0000)),
    _mm512_add_pd,
    _mm512_mul_pd,
    _mm512_range_pd,
    _mm512_cmp_pd_mask,
    _mm512_mask_mov_pd
);
words_of_4_bytes!(F32, f32, |a, b| single::sum(a, b), single::product(a, b), single::min(a, b), single::max(a, b));
words_of_8_bytes!(F64, f64, |a, b| double::sum(a, b), double::product(a, b), double::min(a, b), double::max(a, b));

impl Operator<F32> for Divide {
    #[inline(always)]
    unsafe fn apply(left: F32, right: F32) -> F32 {
        // SAFETY: the caller has AVX-512.
        F32(unsafe { _mm512_castps_si512(_mm512_div_ps(_mm512_castsi512_ps(left.0), _mm512_castsi512_ps(right.0))) })
    }
}

impl Half<F32> for F16 {
    #[inline(always)]
    unsafe fn widen(from: *const u8) -> F32 {
        // SAFETY: the caller may read 32 bytes and has AVX-512.
        F32(unsafe { _mm512_castps_si512(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))) })
    }
    #[inline(always)]
    unsafe fn narrow(vector: F32, to: *mut u8) {
        // SAFETY: the caller may write 32 bytes and has AVX-512.
        unsafe {
            let value = _mm512_castsi512_ps(vector.0);
            let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value);
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
            _mm256_storeu_si256(to.cast(), _mm256_mask_mov_epi16(halves, nan, _mm256_set1_epi16(0x7e00)));
        }
    }
}

impl Half<F32> for BF16 {
    #[inline(always)]
    unsafe fn widen(from: *const u8) -> F32 {
        // SAFETY: the caller may read 32 bytes and has AVX-512.
        F32(unsafe { _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()))) })
    }
    #[inline(always)]
    unsafe fn narrow(vector: F32, to: *mut u8) {
        // SAFETY: the caller may write 32 bytes and has AVX-512.
        unsafe {
            let value = _mm512_castsi512_ps(vector.0);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(vector.0), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(vector.0, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
            let bits = _mm512_mask_mov_epi32(_mm512_srli_epi32::<16>(rounded), nan, _mm512_set1_epi32(0x7fc0));
            _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(bits));
        }
    }
}
