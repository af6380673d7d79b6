//! The operations of a communicator of several nodes: arguments checked on every rank, elements seen as bytes, then
//! handed to the [`Hierarchy`].

mod moves;
mod operators;
mod posted;
mod reductions;

use super::Communicator;
use crate::choice::mark_of;
use crate::hierarchy::{Call, Hierarchy, Part, put_truth};
use crate::{Algorithm, Choice, Element, Error, FoldOrder, Op};
use earlybird_shm::op::{ElementType, Operator};
use earlybird_shm::{Collective, DType, Signature, algorithms, bytes, even_part};
use std::borrow::Cow;
use std::sync::Arc;

/// Several nodes, and the communicator that spans them.
pub(super) struct Across<'a> {
    comm: &'a Communicator,
    between: &'a Arc<Hierarchy>,
}

/// The bytes of a buffer to write to.
fn writing<T: Element>(buf: &mut [T], write: impl FnOnce(&mut [u8]) -> Result<(), Error>) -> Result<(), Error> {
    if T::DTYPE != DType::Bool {
        return write(bytes::of_mut(buf));
    }
    // Not every byte is a bool.
    let mut copy = bytes::of(buf).to_vec();
    write(&mut copy)?;
    put_truth(buf, &copy);
    Ok(())
}

/// Elements of all ranks together at most: of 16 bytes, the largest that is built in, they still fit an address space.
const MOST_ELEMENTS: usize = isize::MAX as usize / 16;

fn lens<T>(counts: &[usize]) -> Vec<usize> {
    counts.iter().map(|count| count * size_of::<T>()).collect()
}

impl Communicator {
    /// The other nodes, where there are some.
    #[inline]
    pub(super) fn across(&self) -> Option<Across<'_>> {
        self.between.as_ref().map(|between| Across { comm: self, between })
    }
}

impl<'a> Across<'a> {
    /// A call with blocks of `count` elements, or of each of `counts`.
    fn call<T: Element>(&self, collective: Collective, op: Op, count: usize, root: Option<usize>) -> Call<'a> {
        self.call_of(collective, T::DTYPE.into(), op.into(), count, root)
    }

    fn call_of(
        &self,
        collective: Collective,
        element: ElementType,
        op: Operator,
        count: usize,
        root: Option<usize>,
    ) -> Call<'a> {
        let bytes = count.saturating_mul(element.size());
        let how = self.comm.settings.how(collective, bytes);
        // What was chosen is a part of the call, also on ranks that exchange nothing and nodes that have chosen alike.
        let (algorithm, exchange) = match self.comm.settings.choice(collective, bytes) {
            Choice::Plan(name) => (Algorithm::Auto, Some(name)),
            Choice::Node(algorithm) => (algorithm, None),
        };
        let algorithm = if algorithms(collective).contains(&algorithm) { algorithm } else { Algorithm::Auto };
        let order = if collective.folds() { how.order } else { FoldOrder::Arrival };
        let signature = Signature::new(collective, element, op, order, algorithm, count);
        let signature = match exchange.filter(|_| collective == Collective::AllReduce) {
            Some(word) => signature.within(mark_of(word)),
            None => signature,
        };
        let signature = root.map_or(signature, |root| signature.rooted(root));
        Call { node: &self.comm.node, collective, how, signature, exchange }
    }

    /// A call with blocks of `block` elements, or of `counts` where they are given.
    fn call_in_blocks<T: Element>(
        &self,
        collective: Collective,
        op: Op,
        (block, counts): (usize, Option<&[usize]>),
        root: Option<usize>,
    ) -> Call<'a> {
        let Some(counts) = counts else { return self.call::<T>(collective, op, block, root) };
        let most = counts.iter().copied().max().unwrap_or(0);
        let call = self.call::<T>(collective, op, most, root);
        Call { signature: call.signature.unequal(counts), ..call }
    }

    fn root(&self, root: usize) -> Result<(), Error> {
        match root < self.comm.size() {
            true => Ok(()),
            false => Err(Error::usage(format!("root {root} does not exist among {} ranks", self.comm.size()))),
        }
    }

    /// A rank that is not the root.
    fn other(&self, root: usize, called: &str) -> Result<(), Error> {
        self.root(root)?;
        match root == self.comm.rank() {
            false => Ok(()),
            true => Err(Error::usage(format!("rank {root} is the root and called {called}; call {called}_root there"))),
        }
    }

    fn counts(&self, counts: &[usize]) -> Result<usize, Error> {
        let ranks = self.comm.size();
        if counts.len() != ranks {
            return Err(Error::usage(format!("{} counts for {ranks} ranks; give one per rank", counts.len())));
        }
        let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        sum.filter(|sum| *sum <= MOST_ELEMENTS).ok_or_else(|| {
            Error::usage(format!(
                "the sum of the counts {counts:?} is too large, fewer elements are all that an address space holds; give smaller counts"
            ))
        })
    }

    fn lengths(&self, given: [usize; 2], expected: [usize; 2]) -> Result<(), Error> {
        match given == expected {
            true => Ok(()),
            false => Err(Error::usage(format!(
                "rank {} of {}: the send buffer has {} elements and the receive buffer {}, expected are {} and {}",
                self.comm.rank(),
                self.comm.size(),
                given[0],
                given[1],
                expected[0],
                expected[1]
            ))),
        }
    }

    /// `count` elements for each rank: how many that are.
    fn of_all(&self, count: usize) -> Result<usize, Error> {
        let all = count.checked_mul(self.comm.size()).filter(|all| *all <= MOST_ELEMENTS);
        all.ok_or_else(|| Error::usage(format!("{count} elements for each of {} ranks are too many", self.comm.size())))
    }

    /// The elements of every rank's block, `block` or `counts` where they are given, and of all of them.
    fn blocks<'c>(&self, block: usize, counts: Option<&'c [usize]>) -> Result<(Cow<'c, [usize]>, usize), Error> {
        Ok(match counts {
            Some(counts) => (counts.into(), self.counts(counts)?),
            None => (vec![block; self.comm.size()].into(), self.of_all(block)?),
        })
    }

    pub(super) fn barrier(&self) -> Result<(), Error> {
        self.between.barrier(&self.call::<u8>(Collective::Barrier, Op::Sum, 0, None))
    }

    /// The elements of this rank's block of a buffer with one for every rank.
    pub(super) fn own_block<T: Element>(&self, buf: &[T]) -> Result<Vec<T>, Error> {
        let block = even_part(buf.len(), self.comm.size())?;
        Ok(buf[self.comm.rank() * block..][..block].to_vec())
    }

    pub(super) fn split(&self, what: Collective, color: Option<u32>, key: i64) -> Result<Option<Part>, Error> {
        self.between.split(&self.call::<u64>(what, Op::Sum, 0, None), color, key)
    }

    /// Numbers of the last call and what ran in it.
    pub(super) fn last(&self) -> Option<super::CallReport> {
        let (operation, name) = self.between.last()?;
        Some(super::CallReport { operation, algorithm: Choice::Plan(name), place: None })
    }
}
