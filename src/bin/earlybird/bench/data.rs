//! The data of measured calls: values that add up exactly in any order, and a check of every element.
//!
//! The values are small integers, so that sums of 1024 ranks are exact where they are folded and a fold in any order
//! gives the same bits. They differ by rank, element and call, so that a lost, doubled, misplaced or old contribution shows.

use earlybird::pattern::mix;
use earlybird::{Communicator, DType, Element, Error, Indexed, Op, SharedBuffer};
use half::{bf16, f16};
use itertools::Either;
pub use itertools::Either::{Left as Private, Right as Shared};
use num_complex::Complex;

/// The root of operations that have one.
pub const ROOT: usize = 0;

/// Values repeat after this many elements. A prime, so that no offset by lines, chunks or slices goes unseen.
const PERIOD: usize = 61;

/// An element type that can hold the values.
pub trait Value: Element {
    /// The measured reduction operator.
    const OP: Op = op(Self::DTYPE);

    /// The type's own form of a small integer: integers wrap, half types round.
    fn from_small(value: u16) -> Self;

    /// The result of these contributions under [`Value::OP`].
    fn reduced(contributions: impl Iterator<Item = u16>) -> Self {
        Self::from_small(contributions.sum())
    }
}

macro_rules! values {
    ($($($type:ty)*: |$small:ident| $value:expr;)*) => {$($(
        impl Value for $type {
            fn from_small($small: u16) -> Self {
                $value
            }
        }
    )*)*};
}
values! {
    i8 i16 i32 i64 u8 u32 u64 f32 f64: |small| small as Self;
    u16: |small| small;
    f16 bf16: |small| Self::from_f32(small.into());
    Complex<f32> Complex<f64>: |small| Self::new(small.into(), small.into()).conj();
}

impl Value for bool {
    /// True for odd values: the exclusive or of all is true where an odd number of contributions is.
    fn from_small(value: u16) -> Self {
        value & 1 == 1
    }
}

macro_rules! indexed {
    ($($value:ty, $index:ty;)*) => {$(
        impl Value for Indexed<$value, $index> {
            fn from_small(value: u16) -> Self {
                Indexed { value: value.into(), index: value.into() }
            }
            fn reduced(contributions: impl Iterator<Item = u16>) -> Self {
                Self::from_small(contributions.max().unwrap_or(0))
            }
        }
    )*};
}
indexed! { i32, i32; i64, i64; f32, i32; f64, i64; }

/// The reduction operator that is measured with elements of this type: the sum, where it has one.
pub const fn op(dtype: DType) -> Op {
    match dtype {
        DType::Bool => Op::LogicalXor,
        DType::IndexedI32 | DType::IndexedI64 | DType::IndexedF32 | DType::IndexedF64 => Op::MaxIndex,
        _ => Op::Sum,
    }
}

/// 1 to 16: what `rank` sends at the `index`th place of the period in this call.
fn contribution(rank: usize, index: usize, call: u64) -> u16 {
    (mix(mix(call) ^ ((rank as u64) << 32 | index as u64)) & 15) as u16 + 1
}

/// A buffer of a measured call: in private memory, or in shared memory, in which it is reduced in place.
pub type Buffer<T> = Either<Vec<T>, SharedBuffer<T>>;

/// A buffer of `count` elements; in shared memory where a communicator is given to allocate it from.
///
/// # Errors
/// [`Error::NoSpace`] if the system, or the budget of shared memory, does not have the memory.
pub fn buffer<T: Value>(count: usize, shared: Option<&Communicator>) -> Result<Buffer<T>, Error> {
    match shared {
        Some(comm) => comm.alloc(count).map(Shared),
        None => private(count).map(Private),
    }
}

fn private<T: Value>(count: usize) -> Result<Vec<T>, Error> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(count).map_err(|_| Error::NoSpace {
        needed: count as u64 * T::DTYPE.size() as u64,
        free: 0,
        hint: "private memory for the buffers was refused; use smaller --sizes".into(),
    })?;
    buffer.resize(count, T::from_small(0));
    Ok(buffer)
}

/// Writes what `rank` sends in this call.
pub fn fill<T: Value>(send: &mut [T], rank: usize, call: u64) {
    let period: [T; PERIOD] = std::array::from_fn(|index| T::from_small(contribution(rank, index, call)));
    for part in send.chunks_mut(PERIOD) {
        part.copy_from_slice(&period[..part.len()]);
    }
}

/// Elements of `received` that are not the reduction over `ranks`; `first` of the sent elements belongs to the first one.
pub fn count_wrong<T: Value>(received: &[T], ranks: std::ops::Range<usize>, first: usize, call: u64) -> usize {
    let sent = |index| ranks.clone().map(move |rank| contribution(rank, (first + index) % PERIOD, call));
    let expected: [T; PERIOD] = std::array::from_fn(|index| T::reduced(sent(index)));
    let wrong = |part: &[T]| part.iter().zip(&expected).filter(|(seen, wanted)| seen != wanted).count();
    received.chunks(PERIOD).map(wrong).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a correct allreduce.
    fn reduced(count: usize, ranks: usize, call: u64) -> Vec<f32> {
        let mut total = vec![0.0; count];
        for rank in 0..ranks {
            let mut send = vec![0.0f32; count];
            fill(&mut send, rank, call);
            total.iter_mut().zip(&send).for_each(|(total, sent)| *total += sent);
        }
        total
    }

    #[test]
    fn a_correct_result_passes() {
        for (count, ranks) in [(1, 1), (60, 2), (1000, 5), (61, 1024)] {
            assert_eq!(count_wrong(&reduced(count, ranks, 9), 0..ranks, 0, 9), 0);
        }
    }

    #[test]
    fn a_part_is_checked_against_its_place() {
        let sum = reduced(1000, 3, 9);
        assert_eq!(count_wrong(&sum[100..300], 0..3, 100, 9), 0);
        assert!(count_wrong(&sum[100..300], 0..3, 101, 9) > 100);
        let mut sent = vec![0.0f32; 200];
        fill(&mut sent, 2, 9);
        assert_eq!(count_wrong(&sent, 2..3, 0, 9), 0);
        assert!(count_wrong(&sent, 1..2, 0, 9) > 100);
    }

    #[test]
    fn one_wrong_element_is_counted() {
        for index in [0, 60, 61, 999] {
            let mut result = reduced(1000, 4, 9);
            result[index] += 1.0;
            assert_eq!(count_wrong(&result, 0..4, 0, 9), 1);
        }
    }

    #[test]
    fn old_misplaced_missing_and_doubled_contributions_show() {
        let mostly = |wrong: usize| assert!(wrong > 500, "{wrong} of 1000");
        mostly(count_wrong(&reduced(1000, 4, 8), 0..4, 0, 9));
        mostly(count_wrong(&reduced(1000, 3, 9), 0..4, 0, 9));
        for shift in [1, 16, 32, 64, 512, 1024] {
            mostly(count_wrong(&reduced(1000 + shift, 4, 9)[shift..], 0..4, 0, 9));
        }
        let mut doubled = vec![0.0f32; 1000];
        fill(&mut doubled, 0, 9);
        let result: Vec<f32> = reduced(1000, 4, 9).iter().zip(&doubled).map(|(a, b)| a + b).collect();
        assert_eq!(count_wrong(&result, 0..4, 0, 9), 1000);
    }

    #[test]
    fn memory_that_does_not_exist_is_an_error() {
        assert_eq!(private::<f64>(usize::MAX / 16).unwrap_err().code(), "EB_NO_SPACE");
    }
}
