//! Accumulators that are wider than the message, and the last step from an accumulator to a result.
#![allow(unsafe_code)]

use super::reference::elements;
use super::{Buffer, COUNTS, levels};
use crate::kernels::kernels_at;
use crate::{DType, Op};

const HALVES: [DType; 2] = [DType::F16, DType::BF16];
const OPS: [Op; 3] = [Op::Sum, Op::Product, Op::Average];

/// By the conversions of the crate `half`.
fn to_f32(dtype: DType, bits: u128) -> f32 {
    match dtype {
        DType::F16 => half::f16::from_bits(bits as u16).to_f32(),
        _ => half::bf16::from_bits(bits as u16).to_f32(),
    }
}

fn from_f32(dtype: DType, value: f32) -> u128 {
    match dtype {
        DType::F16 if value.is_nan() => 0x7e00,
        DType::BF16 if value.is_nan() => 0x7fc0,
        DType::F16 => u128::from(half::f16::from_f32(value).to_bits()),
        _ => u128::from(half::bf16::from_f32(value).to_bits()),
    }
}

fn folded(op: Op, left: f32, right: f32) -> f32 {
    if op == Op::Product { left * right } else { left + right }
}

#[test]
fn halves_are_folded_in_f32_and_rounded_once() {
    for level in levels() {
        for dtype in HALVES {
            for op in OPS {
                let kernels = kernels_at(level, dtype, op).unwrap();
                assert_eq!(kernels.accumulator_bytes, 4);
                let (widen, finish) = (kernels.widen.unwrap(), kernels.finish.unwrap());
                for (salt, count) in COUNTS.into_iter().enumerate() {
                    for ranks in [2, 3, 7] {
                        let sources: Vec<_> =
                            (0..ranks).map(|r| elements(dtype, count, (salt * 8 + r) as u64)).collect();
                        let mut sum = Buffer::of(4, &vec![0; count], salt);
                        for (rank, source) in sources.iter().enumerate() {
                            let mut source = Buffer::new(dtype, source, rank * 3);
                            let (s, x) = (sum.pointer(), source.pointer());
                            // SAFETY: both hold `count` elements and are different allocations.
                            match rank {
                                // SAFETY: as above.
                                0 => unsafe { widen(s, x, count) },
                                // SAFETY: as above.
                                _ => unsafe { (kernels.fold)(s, s, x, count) },
                            }
                        }
                        let mut result = Buffer::new(dtype, &vec![0; count], 5);
                        // SAFETY: both hold `count` elements and are different allocations.
                        unsafe { finish(result.pointer(), sum.pointer(), count, ranks) };
                        let expected: Vec<u128> = (0..count)
                            .map(|i| {
                                let values = sources.iter().map(|s| to_f32(dtype, s[i]));
                                let sum = values.reduce(|a, b| folded(op, a, b)).unwrap();
                                from_f32(dtype, if op == Op::Average { sum / ranks as f32 } else { sum })
                            })
                            .collect();
                        assert_eq!(result.elements(count), expected, "{level:?} {dtype:?} {op:?} {ranks} x {count}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_half_survives_the_way_there_and_back() {
    for level in levels() {
        for dtype in HALVES {
            let kernels = kernels_at(level, dtype, Op::Sum).unwrap();
            let all: Vec<u128> = (0..=0xffff).collect();
            let mut source = Buffer::new(dtype, &all, 0);
            let (mut sum, mut back) = (Buffer::of(4, &vec![0; all.len()], 0), Buffer::new(dtype, &all, 0));
            // SAFETY: all hold as many elements and are different allocations.
            unsafe {
                kernels.widen.unwrap()(sum.pointer(), source.pointer(), all.len());
                kernels.finish.unwrap()(back.pointer(), sum.pointer(), all.len(), 1);
            }
            let expected: Vec<u128> = all.iter().map(|bits| from_f32(dtype, to_f32(dtype, *bits))).collect();
            assert_eq!(back.elements(all.len()), expected, "{level:?} {dtype:?}");
        }
    }
}

#[test]
fn rounding_is_to_nearest_and_ties_to_even() {
    // Around every border between two halves of some exponents, and beyond the largest.
    let mut values: Vec<u128> = Vec::new();
    for top in (0..0x8000u32).step_by(0x40) {
        for low in [0u32, 1, 0x0fff, 0x1000, 0x1001, 0x1fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff] {
            values.extend([u128::from(top << 16 | low), u128::from(top << 16 | low | 1 << 31)]);
        }
    }
    for level in levels() {
        for dtype in HALVES {
            let mut sum = Buffer::of(4, &values, 0);
            let mut result = Buffer::new(dtype, &vec![0; values.len()], 0);
            let finish = kernels_at(level, dtype, Op::Sum).unwrap().finish.unwrap();
            // SAFETY: both hold as many elements and are different allocations.
            unsafe { finish(result.pointer(), sum.pointer(), values.len(), 1) };
            let expected: Vec<u128> = values.iter().map(|bits| from_f32(dtype, f32::from_bits(*bits as u32))).collect();
            assert_eq!(result.elements(values.len()), expected, "{level:?} {dtype:?}");
        }
    }
}

#[test]
fn averages_divide_and_bools_are_0_or_1() {
    for level in levels() {
        for count in COUNTS {
            let run = |dtype: DType, op: Op, ranks: usize| {
                let source = elements(dtype, count, 77);
                let (mut from, mut to) = (Buffer::new(dtype, &source, 1), Buffer::new(dtype, &vec![0; count], 2));
                let finish = kernels_at(level, dtype, op).unwrap().finish.unwrap();
                // SAFETY: both hold `count` elements and are different allocations.
                unsafe { finish(to.pointer(), from.pointer(), count, ranks) };
                (source, to.elements(count))
            };
            let single = |x: u128| {
                let quotient = f32::from_bits(x as u32) / 3.0;
                u128::from(if quotient.is_nan() { 0x7fc0_0000 } else { quotient.to_bits() })
            };
            let double = |x: u128| {
                let quotient = f64::from_bits(x as u64) / 3.0;
                u128::from(if quotient.is_nan() { 0x7ff8 << 48 } else { quotient.to_bits() })
            };
            let (source, result) = run(DType::F32, Op::Average, 3);
            assert_eq!(result, source.into_iter().map(single).collect::<Vec<_>>());
            let (source, result) = run(DType::F64, Op::Average, 3);
            assert_eq!(result, source.into_iter().map(double).collect::<Vec<_>>());
            let (source, result) = run(DType::ComplexF32, Op::Average, 3);
            let both = |x: u128| single(x >> 32) << 32 | single(x & 0xffff_ffff);
            assert_eq!(result, source.into_iter().map(both).collect::<Vec<_>>());
            let (source, result) = run(DType::ComplexF64, Op::Average, 3);
            let both = |x: u128| double(x >> 64) << 64 | double(x & u128::from(u64::MAX));
            assert_eq!(result, source.into_iter().map(both).collect::<Vec<_>>());
            let (source, result) = run(DType::Bool, Op::LogicalXor, 3);
            assert_eq!(result, source.into_iter().map(|x| u128::from(x != 0)).collect::<Vec<_>>());
        }
    }
}
