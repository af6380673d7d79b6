//! The description of a call that does not block, and what of it another call has in common that needs no preparing.

use crate::functions::MpiFunction;
use earlybird::{Counts, Datatype, Op, SharedReduceOp};

/// A call that does not block, but for its communicator and its buffers; the counts are in elements of `dtype`.
pub struct StartDescription<'a> {
    pub function: MpiFunction,
    pub root: Option<usize>,
    pub counts: Counts<'a>,
    pub dtype: Datatype,
    pub op: SharedReduceOp,
}

/// The bytes of a call's buffers; none are sent where the result replaces them.
pub type Lengths = (Option<usize>, usize);

/// All that a call is prepared for: by one of the library's operators, since the program may free its own.
pub struct StartKey {
    function: MpiFunction,
    root: Option<usize>,
    dtype: Datatype,
    op: Op,
    lengths: Lengths,
    counts: Box<[usize]>,
}

impl StartDescription<'_> {
    /// The key of the call on buffers of these lengths, if it has one.
    pub fn key(&self, lengths: Lengths) -> Option<StartKey> {
        let SharedReduceOp::Builtin(op) = self.op else { return None };
        let StartDescription { function, root, dtype, .. } = *self;
        Some(StartKey { function, root, dtype, op, lengths, counts: self.lists().concat().into() })
    }

    /// Returns whether the call on buffers of these lengths has this key.
    pub fn has_key(&self, lengths: Lengths, key: &StartKey) -> bool {
        let [first, second] = self.lists();
        (self.function, self.root, self.dtype, lengths) == (key.function, key.root, key.dtype, key.lengths)
            && matches!(self.op, SharedReduceOp::Builtin(op) if op == key.op)
            && key.counts.len() == first.len() + second.len()
            && key.counts.iter().eq(first.iter().chain(second))
    }

    /// The two lists of block lengths, empty where they follow from the buffers. A function has one form of lists.
    fn lists(&self) -> [&[usize]; 2] {
        match self.counts {
            Counts::Uniform => [&[], &[]],
            Counts::PerRank(counts) | Counts::PerOwner(counts) | Counts::Segments(counts) => [counts, &[]],
            Counts::PerPair { send, recv } => [send, recv],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use earlybird::DType;

    #[test]
    fn a_call_that_differs_in_anything_that_is_prepared_has_another_key() {
        let call = || StartDescription {
            function: MpiFunction::Ialltoallv,
            root: None,
            counts: Counts::PerPair { send: &[1, 2], recv: &[2, 1] },
            dtype: DType::U8.into(),
            op: Op::Sum.into(),
        };
        let lengths = (Some(3), 3);
        let key = call().key(lengths).unwrap();
        assert!(call().has_key(lengths, &key));
        let others = [
            StartDescription { function: MpiFunction::Alltoallv_init, ..call() },
            StartDescription { root: Some(0), ..call() },
            StartDescription { counts: Counts::PerPair { send: &[2, 1], recv: &[2, 1] }, ..call() },
            StartDescription { counts: Counts::PerPair { send: &[1, 2], recv: &[1, 2] }, ..call() },
            StartDescription { counts: Counts::PerPair { send: &[1], recv: &[2] }, ..call() },
            StartDescription { counts: Counts::Uniform, ..call() },
            StartDescription { dtype: DType::I8.into(), ..call() },
            StartDescription { op: Op::Max.into(), ..call() },
        ];
        assert!(others.iter().all(|other| !other.has_key(lengths, &key)));
        assert!([(None, 3), (Some(2), 3), (Some(3), 4)].iter().all(|lengths| !call().has_key(*lengths, &key)));
    }
}
