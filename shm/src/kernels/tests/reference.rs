//! The definition of `left op right` by the documentation, on the bits of the elements, and values to test it with.

use crate::{DType, Op};

/// All ones in the bytes of one element.
pub fn mask(dtype: DType) -> u128 {
    u128::MAX >> (128 - 8 * dtype.size())
}

fn integer(op: Op, a: i128, b: i128) -> i128 {
    match op {
        Op::Sum => a + b,
        Op::Product => a.wrapping_mul(b),
        Op::Min => std::cmp::Ord::min(a, b),
        Op::Max => std::cmp::Ord::max(a, b),
        Op::BitAnd => a & b,
        Op::BitOr => a | b,
        Op::BitXor => a ^ b,
        Op::LogicalAnd => i128::from(a != 0 && b != 0),
        Op::LogicalOr => i128::from(a != 0 || b != 0),
        Op::LogicalXor => i128::from((a != 0) != (b != 0)),
        Op::Average | Op::MinIndex | Op::MaxIndex => unreachable!("{op:?} on integers"),
    }
}

macro_rules! float {
    ($name:ident, $t:ty, $quiet_nan:literal) => {
        fn $name(op: Op, left: u128, right: u128) -> u128 {
            let (a, b) = (<$t>::from_bits(left as _), <$t>::from_bits(right as _));
            let value = match op {
                _ if a.is_nan() || b.is_nan() => <$t>::NAN,
                Op::Sum | Op::Average => a + b,
                Op::Product => a * b,
                Op::Min => std::cmp::min_by(a, b, <$t>::total_cmp),
                Op::Max => std::cmp::max_by(a, b, <$t>::total_cmp),
                _ => unreachable!("{op:?} on floats"),
            };
            if value.is_nan() { $quiet_nan } else { u128::from(value.to_bits()) }
        }
    };
}
float!(float_32, f32, 0x7fc0_0000);
float!(float_64, f64, 0x7ff8_0000_0000_0000);

macro_rules! half_order {
    ($t:ty, $op:expr, $left:expr, $right:expr, $quiet_nan:literal) => {{
        let (a, b) = (<$t>::from_bits($left as u16), <$t>::from_bits($right as u16));
        let first = a.total_cmp(&b).is_le() == ($op == Op::Min);
        let value = if first { a } else { b };
        if a.is_nan() || b.is_nan() { $quiet_nan } else { u128::from(value.to_bits()) }
    }};
}

/// The two parts of an element of `2 * part_bits` bits.
fn parts(element: u128, part_bits: u32) -> [u128; 2] {
    [element & ((1 << part_bits) - 1), element >> part_bits]
}

fn complex(op: Op, left: u128, right: u128, bits: u32, part: impl Fn(Op, u128, u128) -> u128) -> u128 {
    let ([a, b], [c, d]) = (parts(left, bits), parts(right, bits));
    let minus = |x: u128| x ^ 1 << (bits - 1);
    let (real, imaginary) = match op {
        Op::Product => (
            part(Op::Sum, part(Op::Product, a, c), minus(part(Op::Product, b, d))),
            part(Op::Sum, part(Op::Product, a, d), part(Op::Product, b, c)),
        ),
        _ => (part(op, a, c), part(op, b, d)),
    };
    imaginary << bits | real
}

/// Pairs of value and index: the lower of equal values, a NaN before everything.
fn indexed(op: Op, left: u128, right: u128, bits: u32, float: bool) -> u128 {
    let signed = |x: u128| (x << (128 - bits)) as i128 >> (128 - bits);
    let (infinity, quiet_nan) = if bits == 32 { (0x7f80_0000, 0x7fc0_0000) } else { (0x7ff0 << 48, 0x7ff8 << 48) };
    let nan = |v: u128| float && v & !(1 << (bits - 1)) > infinity;
    // Numbers as ranks: floats by their sign and magnitude, -0 below +0; a NaN below all for either operator.
    let rank = |v: u128| {
        let magnitude = (v & !(1 << (bits - 1))) as i128;
        let number = match float {
            true if signed(v) < 0 => -1 - magnitude,
            true => magnitude,
            false => signed(v),
        };
        let ascending = if op == Op::MinIndex { number } else { -number };
        if nan(v) { i128::MIN } else { ascending }
    };
    let key = |pair: u128| (rank(parts(pair, bits)[0]), signed(parts(pair, bits)[1]));
    let chosen = if key(left) <= key(right) { left } else { right };
    let [value, index] = parts(chosen, bits);
    index << bits | if nan(value) { quiet_nan } else { value }
}

/// Returns `left op right`.
pub fn reference(dtype: DType, op: Op, left: u128, right: u128) -> u128 {
    let bits = 8 * dtype.size() as u32;
    let signed = |x: u128| (x << (128 - bits)) as i128 >> (128 - bits);
    match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            integer(op, signed(left), signed(right)) as u128 & mask(dtype)
        }
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
            integer(op, left as i128, right as i128) as u128 & mask(dtype)
        }
        DType::F32 => float_32(op, left, right),
        DType::F64 => float_64(op, left, right),
        DType::F16 => half_order!(half::f16, op, left, right, 0x7e00),
        DType::BF16 => half_order!(half::bf16, op, left, right, 0x7fc0),
        DType::ComplexF32 => complex(op, left, right, 32, float_32),
        DType::ComplexF64 => complex(op, left, right, 64, float_64),
        DType::Bool => {
            let op = match op {
                Op::BitAnd => Op::LogicalAnd,
                Op::BitOr => Op::LogicalOr,
                Op::BitXor => Op::LogicalXor,
                logical => logical,
            };
            integer(op, left as i128, right as i128) as u128
        }
        DType::IndexedI32 => indexed(op, left, right, 32, false),
        DType::IndexedI64 => indexed(op, left, right, 64, false),
        DType::IndexedF32 => indexed(op, left, right, 32, true),
        DType::IndexedF64 => indexed(op, left, right, 64, true),
    }
}

/// Values at which definitions differ: zeros of both signs, smallest, largest, infinities, NaNs of several kinds.
pub fn specials(dtype: DType) -> Vec<u128> {
    let wide = |values: Vec<u64>| values.into_iter().map(u128::from).collect::<Vec<u128>>();
    let narrow = [0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xffff, 0x7f, 0x80, 0xff, 0x100];
    let single: Vec<u128> = wide(
        [0f32, -0.0, 1.0, -1.5, f32::MIN_POSITIVE, f32::MAX, f32::MIN, f32::INFINITY]
            .map(|v| u64::from(v.to_bits()))
            .into_iter()
            .chain([0xff80_0000, 1, 0x8000_0001, 0x007f_ffff, 0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xffff_ffff])
            .collect(),
    );
    let double: Vec<u128> = wide(
        [0f64, -0.0, 1.0, -1.5, f64::MIN_POSITIVE, f64::MAX, f64::MIN, f64::INFINITY]
            .map(f64::to_bits)
            .into_iter()
            .chain([0xfff0 << 48, 1, (1 << 63) | 1, (1 << 52) - 1, 0x7ff8 << 48, 0xfff8 << 48, (0x7ff0 << 48) | 1])
            .chain([u64::MAX])
            .collect(),
    );
    let int_32 = wide(vec![0, 1, 2, 0xffff_ffff, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff]);
    let int_64 =
        wide(vec![0, 1, 2, u64::MAX, u64::MAX >> 1, 1 << 63, (1 << 63) | 1, 0xffff_ffff, 1 << 32, 0x8000_0000]);
    let pairs = |firsts: &[u128], seconds: &[u128], bits: u32| {
        firsts.iter().flat_map(|a| seconds.iter().map(move |b| b << bits | a)).collect::<Vec<u128>>()
    };
    match dtype {
        DType::F32 => single,
        DType::F64 => double,
        DType::F16 => wide(vec![0, 0x8000, 1, 0x8001, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe00])
            .into_iter()
            .chain([0x7c01, 0xffff, 0x03ff, 0x0400])
            .collect(),
        DType::BF16 => wide(vec![0, 0x8000, 1, 0x8001, 0x3f80, 0xbf80, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffc0])
            .into_iter()
            .chain([0x7f81, 0xffff, 0x007f, 0x0080])
            .collect(),
        // A peer may write any byte; what comes out is 0 or 1.
        DType::Bool => vec![0, 1, 2, 0xff, 0x80],
        DType::ComplexF32 => pairs(&single[..10], &single[3..13], 32),
        DType::ComplexF64 => pairs(&double[..10], &double[3..13], 64),
        DType::IndexedF32 => pairs(&single, &int_32[..5], 32),
        DType::IndexedF64 => pairs(&double, &int_64[..5], 64),
        DType::IndexedI32 => pairs(&int_32, &int_32[..5], 32),
        DType::IndexedI64 => pairs(&int_64, &int_64[..5], 64),
        _ => match dtype.size() {
            4 => int_32,
            8 => int_64,
            _ => narrow.map(|v: u128| v & mask(dtype)).to_vec(),
        },
    }
}

pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// `count` elements: specials with each other and with arbitrary bits, arranged by `salt`.
pub fn elements(dtype: DType, count: usize, salt: u64) -> Vec<u128> {
    let specials = specials(dtype);
    (0..count as u64)
        .map(|i| match mix(i ^ mix(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1))) {
            h if h % 3 < 2 => specials[(h / 3) as usize % specials.len()],
            h => (u128::from(mix(h)) << 64 | u128::from(mix(h ^ 1))) & mask(dtype),
        })
        .collect()
}
