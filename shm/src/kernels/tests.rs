//! Every kernel of every level against a plain scalar definition, byte for byte, guard bytes included.
#![allow(unsafe_code)]

mod reference;
mod wide;

use super::*;
use proptest::prelude::*;
use reference::{elements, mask, reference, specials};

const COUNTS: [usize; 14] = [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 1000];
const GUARD: usize = 64;

/// Elements in memory, `offset` bytes off alignment, between guard bytes.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    size: usize,
}

impl Buffer {
    fn new(dtype: DType, elements: &[u128], offset: usize) -> Self {
        Buffer::of(dtype.size(), elements, offset)
    }

    /// Elements of `size` bytes.
    fn of(size: usize, elements: &[u128], offset: usize) -> Self {
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
    fn elements(&self, count: usize) -> Vec<u128> {
        let end = self.start + count * self.size;
        assert!(self.bytes[..self.start].iter().chain(&self.bytes[end..]).all(|b| *b == 0xa5), "guard bytes written");
        (self.bytes[self.start..end].chunks(self.size))
            .map(|c| c.iter().rev().fold(0, |bits, byte| (bits << 8) | u128::from(*byte)))
            .collect()
    }
}

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.available())
}

/// Every pair whose accumulator is of the type of the message.
fn pairs() -> impl Iterator<Item = (DType, Op)> {
    let all = DType::ALL.into_iter().flat_map(|dtype| Op::ALL.into_iter().map(move |op| (dtype, op)));
    all.filter(|(dtype, op)| kernels(*dtype, *op).is_some_and(|k| k.widen.is_none()))
}

fn check(level: Level, dtype: DType, op: Op, a: &[u128], b: &[u128], offsets: [usize; 3]) {
    let kernels = kernels_at(level, dtype, op).expect("an available level");
    check_kernels(kernels, level, dtype, op, a, b, offsets);
}

/// All aliasing forms of `fold`, `fold_few` and a `fold_all` of two into two, at these byte offsets of destination and sources.
fn check_kernels(kernels: Kernels, level: Level, dtype: DType, op: Op, a: &[u128], b: &[u128], offsets: [usize; 3]) {
    let count = a.len();
    let expected: Vec<u128> = a.iter().zip(b).map(|(a, b)| reference(dtype, op, *a, *b)).collect();
    let zeros = vec![0; count];
    let fresh = || {
        let [d, x, y] = offsets;
        let sources = (Buffer::new(dtype, a, x), Buffer::new(dtype, b, y));
        (Buffer::new(dtype, &zeros, d), Buffer::new(dtype, &zeros, x), sources.0, sources.1)
    };
    let context =
        |form: &str| format!("{form} {} {} {} count {count} at {offsets:?}", level.name(), dtype.name(), op.name());
    for (fold, name) in [(kernels.fold, "fold"), (kernels.fold_few, "fold few")] {
        for dst_is in ['-', 'a', 'b'] {
            let (mut d, _, mut x, mut y) = fresh();
            let (pd, pa, pb) = (d.pointer(), x.pointer(), y.pointer());
            let dst = match dst_is {
                'a' => pa,
                'b' => pb,
                _ => pd,
            };
            // SAFETY: the buffers hold `count` elements, and dst is a source or disjoint.
            unsafe { fold(dst, pa, pb, count) };
            let result = match dst_is {
                'a' => &x,
                'b' => &y,
                _ => &d,
            };
            assert_eq!(result.elements(count), expected, "{}", context(&format!("{name} {dst_is}")));
        }
        // Both operands the same buffer, in place.
        let mut x = Buffer::new(dtype, a, offsets[1]);
        let p = x.pointer();
        // SAFETY: one buffer of `count` elements; dst equals both sources.
        unsafe { fold(p, p, p, count) };
        let expected: Vec<u128> = a.iter().map(|a| reference(dtype, op, *a, *a)).collect();
        assert_eq!(x.elements(count), expected, "{}", context(&format!("{name} onto itself")));
    }
    // Per form: whether dst is a or b, whether dst2 is a or b ('-' neither).
    let forms = [('-', '-'), ('a', '-'), ('b', '-'), ('-', 'b'), ('-', 'a'), ('a', 'b'), ('b', 'a')];
    let Some(fold_all) = kernels.fold_all else { return };
    for far in [0, 1] {
        for (dst_is, dst2_is) in forms {
            let (mut d, mut d2, mut x, mut y) = fresh();
            let (pa, pb) = (x.pointer(), y.pointer());
            let choose = |is, own| match is {
                'a' => pa,
                'b' => pb,
                _ => own,
            };
            let (pd, pd2) = (choose(dst_is, d.pointer()), choose(dst2_is, d2.pointer()));
            // SAFETY: the buffers hold `count` elements, and dst and dst2 are each a source or disjoint.
            unsafe { fold_all(&[pd, pd2][..2 - far], &[pd2][..far], &[pa.cast_const(), pb], count) };
            let result = |is, own: &Buffer| match is {
                'a' => x.elements(count),
                'b' => y.elements(count),
                _ => own.elements(count),
            };
            let context = context(&format!("fold all {dst_is}{dst2_is}, {far} far"));
            assert_eq!(result(dst_is, &d), expected, "{context}: dst");
            assert_eq!(result(dst2_is, &d2), expected, "{context}: dst2");
        }
    }
}

/// `fold_all` of one to five sources into so many destinations that some sources are destinations too and some are not, each
/// once as a near one and once as a far one.
fn check_all(level: Level, dtype: DType, op: Op, count: usize, offset: usize, skewed: bool) {
    let Some(fold_all) = kernels_at(level, dtype, op).and_then(|k| k.fold_all) else { return };
    for sources in 1..=5 {
        for (replaced, fresh) in [(0, 1), (0, 3), (1, 0), (1, 1), (sources, 0), (sources, 2)] {
            for far in 0..=replaced + fresh {
                let values: Vec<_> = (0..sources as u64).map(|salt| elements(dtype, count, salt + 7)).collect();
                let mut from: Vec<_> = values.iter().map(|v| Buffer::new(dtype, v, offset)).collect();
                let at = |i: usize| if skewed { (offset + 8 * i) % 64 } else { offset };
                let mut to: Vec<_> = (0..fresh).map(|i| Buffer::new(dtype, &vec![0; count], at(i))).collect();
                let srcs: Vec<_> = from.iter_mut().map(|b| b.pointer().cast_const()).collect();
                let mut dsts: Vec<_> = to.iter_mut().map(Buffer::pointer).collect();
                dsts.extend(srcs[..replaced].iter().map(|src| src.cast_mut()));
                // SAFETY: buffers of `count` elements; every destination is a source or disjoint from all.
                unsafe { fold_all(&dsts[far..], &dsts[..far], &srcs, count) };
                let expected: Vec<u128> = (0..count)
                    .map(|i| values[1..].iter().fold(values[0][i], |sum, v| reference(dtype, op, sum, v[i])))
                    .collect();
                let what = format!(
                    "fold all {} {} {} count {count} at {offset}: {sources} into {replaced} and {fresh}, {far} far",
                    level.name(),
                    dtype.name(),
                    op.name()
                );
                for result in to.iter().chain(&from[..replaced]) {
                    assert_eq!(result.elements(count), expected, "{what}");
                }
                for (left, value) in from.iter().zip(&values).skip(replaced) {
                    assert_eq!(left.elements(count), *value, "{what}: a source changed");
                }
            }
        }
    }
}

#[test]
fn many_sources_into_many_destinations_have_the_bits_of_folding_in_turn() {
    for level in levels() {
        for (dtype, op) in pairs() {
            for count in [0, 1, 15, 33, 100, 517] {
                for (offset, skewed) in [(0, false), (16, false), (0, true), (3, true)] {
                    check_all(level, dtype, op, count, offset, skewed);
                }
            }
        }
    }
    assert!(kernels(DType::F32, Op::Sum).unwrap().fold_all.is_some(), "then nothing was checked");
}

#[test]
fn every_kernel_has_the_bits_of_the_definition() {
    for level in levels() {
        for (dtype, op) in pairs() {
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

#[test]
fn all_pairs_of_special_values_have_the_bits_of_the_definition_and_commute() {
    for (dtype, op) in pairs() {
        let specials = specials(dtype);
        let a: Vec<u128> = specials.iter().flat_map(|a| specials.iter().map(move |_| *a)).collect();
        let b: Vec<u128> = specials.iter().flat_map(|_| specials.iter().copied()).collect();
        for level in levels() {
            check(level, dtype, op, &a, &b, [0, 0, 0]);
            check(level, dtype, op, &b, &a, [0, 0, 0]);
        }
        for (a, b) in a.iter().zip(&b) {
            assert_eq!(reference(dtype, op, *a, *b), reference(dtype, op, *b, *a), "{dtype:?} {op:?} {a:x} {b:x}");
        }
    }
}

#[test]
fn the_pairs_that_have_kernels_are_those_that_exist() {
    for dtype in DType::ALL {
        for op in Op::ALL {
            for level in levels() {
                assert_eq!(kernels_at(level, dtype, op).is_some(), dtype.has(op), "{level:?} {dtype:?} {op:?}");
            }
        }
    }
}

#[test]
fn operators_that_are_called_exact_are_associative() {
    for (dtype, op) in pairs().filter(|(dtype, op)| !dtype.is_inexact(*op)) {
        let specials = specials(dtype);
        for (a, b, c) in (0..4000u64).map(|i| {
            let pick = |salt| specials[reference::mix(i * 3 + salt) as usize % specials.len()];
            (pick(0), pick(1), pick(2))
        }) {
            let left = reference(dtype, op, reference(dtype, op, a, b), c);
            let right = reference(dtype, op, a, reference(dtype, op, b, c));
            assert_eq!(left, right, "{dtype:?} {op:?} {a:x} {b:x} {c:x}");
        }
    }
}

#[test]
fn the_comparison_notices_one_wrong_bit_and_one_stray_byte() {
    let (a, b) = (elements(DType::F32, 33, 1), elements(DType::F32, 33, 2));
    // The kernels of another operator, of the other signedness or of integers must not pass for these.
    let refuses = |kernels: Kernels, dtype: DType, op: Op| {
        std::panic::catch_unwind(|| check_kernels(kernels, Level::Portable, dtype, op, &a, &b, [0, 0, 0])).is_err()
    };
    assert!(!refuses(kernels(DType::F32, Op::Sum).unwrap(), DType::F32, Op::Sum));
    assert!(refuses(kernels(DType::F32, Op::Max).unwrap(), DType::F32, Op::Sum));
    assert!(refuses(kernels(DType::U32, Op::Max).unwrap(), DType::I32, Op::Max));
    assert!(refuses(kernels(DType::I32, Op::Min).unwrap(), DType::F32, Op::Min));
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
    let source = elements(DType::U64, 1000, 3);
    for bytes in [0, 1, 7, 64, 65, 799, 2048, 2049, 4096, 7999] {
        let (mut from, mut to) = (Buffer::new(DType::U64, &source, 3), Buffer::new(DType::U64, &[0; 1000], 9));
        let (src, dst) = (from.pointer(), to.pointer());
        // SAFETY: both hold 8000 bytes and are different allocations.
        unsafe { copy(dst, src, bytes) };
        let start = (from.start, to.start);
        assert_eq!(to.bytes[start.1..][..bytes], from.bytes[start.0..][..bytes]);
        assert!(to.bytes[start.1 + bytes..start.1 + 8000].iter().all(|b| *b == 0));
    }
}

#[test]
fn the_copies_of_every_level_move_exactly_the_bytes_asked_for() {
    type Copy = unsafe fn(*mut u8, *const u8, usize);
    macro_rules! of_level {
        ($copy:ident) => {
            [level::$copy::<true, 0> as Copy, level::$copy::<false, 0>, level::$copy::<false, 512>]
        };
    }
    let mut copies: Vec<Copy> = vec![copy, copy_streaming];
    copies.extend(of_level!(copy_portable));
    #[cfg(target_arch = "x86_64")]
    copies.extend(
        [(Level::Avx2, of_level!(copy_avx2)), (Level::Avx512, of_level!(copy_avx512))]
            .into_iter()
            .filter_map(|(level, copies)| level.available().then_some(copies))
            .flatten(),
    );
    for copy in copies {
        for count in (0..200).chain([1000, 4099]) {
            for offset in [0, 1, 8, 31, 32, 60, 63] {
                let source = elements(DType::U8, count, 9);
                let (mut from, mut to) =
                    (Buffer::new(DType::U8, &source, 3), Buffer::new(DType::U8, &vec![0; count], offset));
                // SAFETY: both hold `count` bytes and are different allocations.
                unsafe { copy(to.pointer(), from.pointer(), count) };
                assert_eq!(to.elements(count), source, "{count} at {offset}");
            }
        }
    }
}

#[test]
fn a_copy_of_few_bytes_moves_exactly_those() {
    for count in 0..110 {
        let source = elements(DType::U8, count, 5);
        let (mut from, mut to) = (Buffer::new(DType::U8, &source, 1), Buffer::new(DType::U8, &vec![0; count], 2));
        // SAFETY: both hold `count` bytes and are different allocations.
        unsafe { copy_few(to.pointer(), from.pointer(), count) };
        assert_eq!(to.elements(count), source);
    }
}

#[test]
fn a_copy_of_some_bytes_moves_exactly_those() {
    for count in (32..200).chain([1000, 1023, 1024]) {
        let source = elements(DType::U8, count, 6);
        let (mut from, mut to) = (Buffer::new(DType::U8, &source, 3), Buffer::new(DType::U8, &vec![0; count], 1));
        // SAFETY: both hold `count` bytes and are different allocations.
        unsafe { super::copy::copy_some(to.pointer(), from.pointer(), count) };
        assert_eq!(to.elements(count), source, "{count}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_bits_at_any_address_have_the_bits_of_the_definition(
        bits in prop::collection::vec((any::<u128>(), any::<u128>()), 0..200),
        offsets in [0..64usize, 0..64usize, 0..64usize],
        (dtype, op) in prop::sample::select(pairs().collect::<Vec<_>>()),
    ) {
        let mask = mask(dtype);
        let (a, b): (Vec<u128>, Vec<u128>) = bits.into_iter().map(|(a, b)| (a & mask, b & mask)).unzip();
        for level in levels() {
            check(level, dtype, op, &a, &b, offsets);
        }
    }
}
