//! Every kernel of every level against a plain scalar definition, byte for byte, guard bytes included.

use super::*;
use proptest::prelude::*;

const COUNTS: [usize; 14] = [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 1000];
const GUARD: usize = 64;

/// What `left op right` is, from the words of `Op`'s documentation, on the bits of the elements.
fn reference(dtype: DType, op: Op, left: u64, right: u64) -> u64 {
    macro_rules! integer {
        ($t:ty, $wide:ty) => {{
            let (a, b) = (left as $t, right as $t);
            (match op {
                Op::Sum => (a as $wide).wrapping_add(b as $wide) as $t,
                Op::Product => (a as $wide).wrapping_mul(b as $wide) as $t,
                Op::Min => std::cmp::Ord::min(a, b),
                Op::Max => std::cmp::Ord::max(a, b),
            }) as u64
        }};
    }
    macro_rules! float {
        ($t:ty, $bits:ty, $quiet_nan:literal) => {{
            let (a, b) = (<$t>::from_bits(left as $bits), <$t>::from_bits(right as $bits));
            let value = match op {
                _ if a.is_nan() || b.is_nan() => <$t>::NAN,
                Op::Sum => a + b,
                Op::Product => a * b,
                Op::Min => std::cmp::min_by(a, b, <$t>::total_cmp),
                Op::Max => std::cmp::max_by(a, b, <$t>::total_cmp),
            };
            if value.is_nan() { $quiet_nan } else { u64::from(value.to_bits()) }
        }};
    }
    match dtype {
        DType::I32 => integer!(i32, i128) & 0xffff_ffff,
        DType::U32 => integer!(u32, u128),
        DType::I64 => integer!(i64, i128),
        DType::U64 => integer!(u64, u128),
        DType::F32 => float!(f32, u32, 0x7fc0_0000),
        DType::F64 => float!(f64, u64, 0x7ff8_0000_0000_0000),
    }
}

/// Values at which definitions differ: zeros of both signs, smallest, largest, infinities, NaNs of several kinds.
fn specials(dtype: DType) -> Vec<u64> {
    match dtype.size() {
        4 if dtype == DType::F32 => [0f32, -0.0, 1.0, -1.5, f32::MIN_POSITIVE, f32::MAX, f32::MIN, f32::INFINITY]
            .map(f32::to_bits)
            .into_iter()
            .chain([0xff80_0000, 1, 0x8000_0001, 0x007f_ffff, 0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xffff_ffff])
            .map(u64::from)
            .collect(),
        8 if dtype == DType::F64 => [0f64, -0.0, 1.0, -1.5, f64::MIN_POSITIVE, f64::MAX, f64::MIN, f64::INFINITY]
            .map(f64::to_bits)
            .into_iter()
            .chain([0xfff0 << 48, 1, (1 << 63) | 1, (1 << 52) - 1, 0x7ff8 << 48, 0xfff8 << 48, (0x7ff0 << 48) | 1])
            .chain([u64::MAX])
            .collect(),
        4 => vec![0, 1, 2, 0xffff_ffff, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff],
        _ => vec![0, 1, 2, u64::MAX, u64::MAX >> 1, 1 << 63, (1 << 63) | 1, 0xffff_ffff, 1 << 32, 0x8000_0000],
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// `count` elements: specials with each other and with arbitrary bits, arranged by `salt`.
fn elements(dtype: DType, count: usize, salt: u64) -> Vec<u64> {
    let specials = specials(dtype);
    let mask = if dtype.size() == 4 { 0xffff_ffff } else { u64::MAX };
    (0..count as u64)
        .map(|i| match mix(i ^ mix(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1))) {
            h if h % 3 < 2 => specials[(h / 3) as usize % specials.len()],
            h => mix(h) & mask,
        })
        .collect()
}

/// Elements in memory, `offset` bytes off alignment, between guard bytes.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    size: usize,
}

impl Buffer {
    fn new(dtype: DType, elements: &[u64], offset: usize) -> Self {
        let size = dtype.size();
        let mut bytes = vec![0xa5; GUARD * 3 + elements.len() * size];
        let start = bytes.as_ptr().align_offset(GUARD) + GUARD + offset;
        for (i, element) in elements.iter().enumerate() {
            bytes[start + i * size..][..size].copy_from_slice(&element.to_ne_bytes()[..size]);
        }
        Buffer { bytes, start, size }
    }

    fn pointer(&mut self) -> *mut u8 {
        self.bytes[self.start..].as_mut_ptr()
    }

    /// The elements, after checking that nothing around them was touched.
    fn elements(&self, count: usize) -> Vec<u64> {
        let end = self.start + count * self.size;
        assert!(self.bytes[..self.start].iter().chain(&self.bytes[end..]).all(|b| *b == 0xa5), "guard bytes written");
        (self.bytes[self.start..end].chunks(self.size))
            .map(|c| c.iter().rev().fold(0, |bits, byte| (bits << 8) | u64::from(*byte)))
            .collect()
    }
}

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.available())
}

fn check(level: Level, dtype: DType, op: Op, a: &[u64], b: &[u64], offsets: [usize; 3]) {
    let kernels = kernels_at(level, dtype, op).expect("an available level");
    check_kernels(kernels, level, dtype, op, a, b, offsets);
}

/// All aliasing forms of `fold` and `fold_both`, at these byte offsets of destination and sources.
fn check_kernels(kernels: Kernels, level: Level, dtype: DType, op: Op, a: &[u64], b: &[u64], offsets: [usize; 3]) {
    let count = a.len();
    let expected: Vec<u64> = a.iter().zip(b).map(|(a, b)| reference(dtype, op, *a, *b)).collect();
    let zeros = vec![0; count];
    let fresh = || {
        let [d, x, y] = offsets;
        (
            Buffer::new(dtype, &zeros, d),
            Buffer::new(dtype, &zeros, x),
            Buffer::new(dtype, a, x),
            Buffer::new(dtype, b, y),
        )
    };
    let context =
        |form: &str| format!("{form} {} {} {} count {count} at {offsets:?}", level.name(), dtype.name(), op.name());
    // Per form: whether dst is a or b, whether dst2 is a or b ('-' neither).
    let forms = [('-', '-'), ('a', '-'), ('b', '-'), ('-', 'b'), ('-', 'a'), ('a', 'b'), ('b', 'a')];
    let ordinary = (kernels.fold, kernels.fold_both, "ordinary");
    let streaming = (kernels.fold_streaming, kernels.fold_both_streaming, "streaming");
    for ((dst_is, dst2_is), (fold, fold_both, stores)) in
        forms.into_iter().flat_map(|f| [(f, ordinary), (f, streaming)])
    {
        let context = |form: &str| context(&format!("{form} {dst_is}{dst2_is} {stores}"));
        let (mut d, mut d2, mut x, mut y) = fresh();
        let (pa, pb) = (x.pointer(), y.pointer());
        let choose = |is, own| {
            if is == 'a' {
                pa
            } else if is == 'b' {
                pb
            } else {
                own
            }
        };
        let (pd, pd2) = (choose(dst_is, d.pointer()), choose(dst2_is, d2.pointer()));
        // SAFETY: the buffers hold `count` elements, and dst and dst2 are each a source or disjoint.
        unsafe { fold_both(pd, pd2, pa, pb, count) };
        let result = |is, own: &Buffer| match is {
            'a' => x.elements(count),
            'b' => y.elements(count),
            _ => own.elements(count),
        };
        assert_eq!(result(dst_is, &d), expected, "{}", context("fold_both dst"));
        assert_eq!(result(dst2_is, &d2), expected, "{}", context("fold_both dst2"));
        if dst2_is != '-' {
            continue;
        }
        let (mut d, _, mut x, mut y) = fresh();
        let (pa, pb) = (x.pointer(), y.pointer());
        let pd = if dst_is == 'a' {
            pa
        } else if dst_is == 'b' {
            pb
        } else {
            d.pointer()
        };
        // SAFETY: the buffers hold `count` elements, and dst is a source or disjoint.
        unsafe { fold(pd, pa, pb, count) };
        let result = if dst_is == 'a' {
            &x
        } else if dst_is == 'b' {
            &y
        } else {
            &d
        };
        assert_eq!(result.elements(count), expected, "{}", context("fold"));
    }
    // Both operands the same buffer, in place.
    let mut x = Buffer::new(dtype, a, offsets[1]);
    let p = x.pointer();
    // SAFETY: one buffer of `count` elements; dst equals both sources.
    unsafe { (kernels.fold)(p, p, p, count) };
    let expected: Vec<u64> = a.iter().map(|a| reference(dtype, op, *a, *a)).collect();
    assert_eq!(x.elements(count), expected, "{}", context("fold onto itself"));
}

#[test]
fn every_kernel_has_the_bits_of_the_definition() {
    for level in levels() {
        for dtype in DType::ALL {
            for op in Op::ALL {
                for (salt, count) in COUNTS.into_iter().enumerate() {
                    let salt = salt as u64;
                    let (a, b) = (elements(dtype, count, salt), elements(dtype, count, salt + 100));
                    for offsets in [[0, 0, 0], [1, 0, 3], [4, 7, 0], [63, 33, 12]] {
                        check(level, dtype, op, &a, &b, offsets);
                    }
                }
            }
        }
    }
}

#[test]
fn all_pairs_of_special_values_have_the_bits_of_the_definition_and_commute() {
    for dtype in DType::ALL {
        let specials = specials(dtype);
        let a: Vec<u64> = specials.iter().flat_map(|a| specials.iter().map(move |_| *a)).collect();
        let b: Vec<u64> = specials.iter().flat_map(|_| specials.iter().copied()).collect();
        for op in Op::ALL {
            for level in levels() {
                check(level, dtype, op, &a, &b, [0, 0, 0]);
                check(level, dtype, op, &b, &a, [0, 0, 0]);
            }
            for (a, b) in a.iter().zip(&b) {
                assert_eq!(reference(dtype, op, *a, *b), reference(dtype, op, *b, *a));
            }
        }
    }
}

#[test]
fn several_sources_in_one_pass_have_the_bits_of_repeated_folds() {
    for level in levels() {
        for dtype in DType::ALL {
            for op in Op::ALL {
                let kernels = kernels_at(level, dtype, op).expect("an available level");
                for source_count in [1, 2, 3, 5, 8, 17] {
                    for count in COUNTS {
                        let sources: Vec<Vec<u64>> =
                            (0..source_count).map(|s| elements(dtype, count, s as u64 * 7 + count as u64)).collect();
                        let expected = (sources[1..].iter()).fold(sources[0].clone(), |left, right| {
                            left.iter().zip(right).map(|(l, r)| reference(dtype, op, *l, *r)).collect()
                        });
                        // The destination apart, then equal to each of the first and the last source.
                        for aliased in [None, Some(0), Some(source_count - 1)] {
                            let mut d = Buffer::new(dtype, &vec![0; count], 5);
                            let mut buffers: Vec<Buffer> =
                                sources.iter().enumerate().map(|(s, e)| Buffer::new(dtype, e, s * 3 % 64)).collect();
                            let pointers: Vec<*mut u8> = buffers.iter_mut().map(Buffer::pointer).collect();
                            let dst = aliased.map_or_else(|| d.pointer(), |s| pointers[s]);
                            // SAFETY: every buffer holds `count` elements; dst is a source or disjoint.
                            unsafe { (kernels.fold_all)(dst, pointers.as_ptr().cast(), source_count, count) };
                            let result = aliased.map_or(&d, |s| &buffers[s]).elements(count);
                            assert_eq!(
                                result, expected,
                                "{level:?} {dtype:?} {op:?} {source_count}x{count} {aliased:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn no_source_leaves_the_destination_alone() {
    let mut d = Buffer::new(DType::F32, &[1, 2, 3], 0);
    for level in levels() {
        let kernels = kernels_at(level, DType::F32, Op::Sum).expect("an available level");
        // SAFETY: no source is read, and dst holds 3 elements.
        unsafe { (kernels.fold_all)(d.pointer(), std::ptr::null(), 0, 3) };
        assert_eq!(d.elements(3), [1, 2, 3]);
    }
}

#[test]
fn the_comparison_notices_one_wrong_bit_and_one_stray_byte() {
    let (a, b) = (elements(DType::F32, 33, 1), elements(DType::F32, 33, 2));
    // The kernels of another operator, of the other signedness or of integers must not pass for these.
    let refuses = |kernels: Kernels, dtype: DType, op: Op| {
        std::panic::catch_unwind(|| check_kernels(kernels, Level::Portable, dtype, op, &a, &b, [0, 0, 0])).is_err()
    };
    assert!(!refuses(kernels(DType::F32, Op::Sum), DType::F32, Op::Sum));
    assert!(refuses(kernels(DType::F32, Op::Max), DType::F32, Op::Sum));
    assert!(refuses(kernels(DType::U32, Op::Max), DType::I32, Op::Max));
    assert!(refuses(kernels(DType::I32, Op::Min), DType::F32, Op::Min));
    let refused = std::panic::catch_unwind(|| {
        let mut stray = Buffer::new(DType::F32, &a, 0);
        let end = stray.start + 33 * 4;
        stray.bytes[end] ^= 1;
        stray.elements(33)
    });
    assert!(refused.is_err(), "a byte written behind the buffer went unnoticed");
}

#[test]
fn the_detected_level_is_the_highest_available_one() {
    assert!(Level::detected().available());
    assert!(Level::ALL.into_iter().all(|level| !level.available() || level <= Level::detected()));
    for level in Level::ALL {
        assert_eq!(kernels_at(level, DType::I32, Op::Sum).is_some(), level.available());
    }
}

#[test]
fn copy_moves_exactly_the_bytes_asked_for() {
    let source = elements(DType::U64, 100, 3);
    for bytes in [0, 1, 7, 64, 65, 799] {
        let (mut from, mut to) = (Buffer::new(DType::U64, &source, 3), Buffer::new(DType::U64, &[0; 100], 9));
        let (src, dst) = (from.pointer(), to.pointer());
        // SAFETY: both hold 800 bytes and are different allocations.
        unsafe { copy(dst, src, bytes) };
        let start = (from.start, to.start);
        assert_eq!(to.bytes[start.1..][..bytes], from.bytes[start.0..][..bytes]);
        assert!(to.bytes[start.1 + bytes..start.1 + 800].iter().all(|b| *b == 0));
    }
}

#[test]
fn a_streaming_copy_moves_exactly_the_elements_asked_for() {
    for level in levels() {
        for dtype in DType::ALL {
            let kernels = kernels_at(level, dtype, Op::Sum).expect("an available level");
            for count in COUNTS {
                for offset in 0..64 {
                    let source = elements(dtype, count, 9);
                    let (mut from, mut to) =
                        (Buffer::new(dtype, &source, 3), Buffer::new(dtype, &vec![0; count], offset));
                    // SAFETY: both hold `count` elements and are different allocations.
                    unsafe { (kernels.copy_streaming)(to.pointer(), from.pointer(), count) };
                    assert_eq!(to.elements(count), source, "{level:?} {dtype:?} {count} at {offset}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_bits_at_any_address_have_the_bits_of_the_definition(
        pairs in prop::collection::vec((any::<u64>(), any::<u64>()), 0..200),
        offsets in [0..64usize, 0..64usize, 0..64usize],
        dtype in prop::sample::select(DType::ALL.to_vec()),
        op in prop::sample::select(Op::ALL.to_vec()),
    ) {
        let mask = if dtype.size() == 4 { 0xffff_ffff } else { u64::MAX };
        let (a, b): (Vec<u64>, Vec<u64>) = pairs.into_iter().map(|(a, b)| (a & mask, b & mask)).unzip();
        for level in levels() {
            check(level, dtype, op, &a, &b, offsets);
        }
    }
}
