//! A call that can be posted, any number of times, with its buffers.

use super::again::{self, Again, AllReduce};
use super::calls::{self, StartedArgs};
use super::operators;
use super::pairs::{self, OwnedPairCounts};
use super::{Begun, Course, Steps};
use crate::hierarchy::Hierarchy;
use crate::hierarchy::user_ops::OwnedUserOp;
use crate::{DType, Element, Error};
use bytemuck::cast_slice_mut;
use earlybird_shm::{Collective, NodeComm, OwnedBuffers, Signature, bytes};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Makes the call of its buffers.
type Begin = Box<dyn Fn(&dyn Any, Steps) -> Result<Begun, Error> + Send>;

/// A call that can be posted, any number of times, with its buffers.
pub(crate) struct Prepared {
    pub(super) collective: Collective,
    pub(super) signature: Signature,
    /// `OwnedBuffers<T>`, or the vectors of a grouped call.
    pub owned: Box<dyn Any + Send>,
    way: Way,
}

/// How a call is carried out.
enum Way {
    /// As a future that gives the bytes of the result, which go there.
    Anew(Begin, fn(&mut dyn Any, &[u8])),
    /// By what is kept.
    Kept(Box<dyn Again>),
}

impl Prepared {
    /// A call on the buffers of `owned`, which have the lengths that it needs.
    pub(crate) fn new<T: Element>(asked: StartedArgs, signature: Signature, owned: OwnedBuffers<T>) -> Self {
        let collective = asked.collective;
        let begin = move |owned: &dyn Any, steps: Steps| {
            let owned = owned.downcast_ref::<OwnedBuffers<T>>().expect("the type it was made with");
            let given = if owned.is_in_place() { &owned.recv } else { &owned.send };
            calls::begin(&asked, given, owned.recv.len(), steps)
        };
        Prepared { collective, signature, owned: Box::new(owned), way: Way::Anew(Box::new(begin), put::<T>) }
    }

    /// A reduction of each of many buffers, one after the other in one message.
    pub(crate) fn grouped<T: Element>(asked: StartedArgs, signature: Signature, buffers: Vec<Vec<T>>) -> Self {
        let collective = asked.collective;
        let begin = move |owned: &dyn Any, steps: Steps| {
            let all = owned.downcast_ref::<Vec<Vec<T>>>().expect("the type it was made with").concat();
            calls::begin(&asked, &all, all.len(), steps)
        };
        let put = |owned: &mut dyn Any, mut result: &[u8]| {
            let Some(buffers) = owned.downcast_mut::<Vec<Vec<T>>>() else { return };
            for buffer in buffers {
                let (own, rest) = result.split_at(size_of_val(&buffer[..]).min(result.len()));
                result = rest;
                fill(buffer, own);
            }
        };
        Prepared { collective, signature, owned: Box::new(buffers), way: Way::Anew(Box::new(begin), put) }
    }

    /// A reduction by an operator of the caller's, which the call keeps.
    pub(crate) fn with<O: OwnedUserOp>(
        (collective, root): (Collective, Option<usize>),
        op: O,
        signature: Signature,
        owned: OwnedBuffers<O::Item>,
    ) -> Self {
        let op = Arc::new(op);
        let begin = move |owned: &dyn Any, steps: Steps| {
            let owned = owned.downcast_ref::<OwnedBuffers<O::Item>>().expect("the type it was made with");
            let given = if owned.is_in_place() { &owned.recv } else { &owned.send };
            Ok(operators::begin((collective, root.unwrap_or(0)), &op, given, steps))
        };
        let put = |owned: &mut dyn Any, result: &[u8]| {
            if let Some(owned) = owned.downcast_mut::<OwnedBuffers<O::Item>>()
                && size_of_val(&owned.recv[..]) == result.len()
            {
                cast_slice_mut::<O::Item, u8>(&mut owned.recv).copy_from_slice(result);
            }
        };
        Prepared { collective, signature, owned: Box::new(owned), way: Way::Anew(Box::new(begin), put) }
    }

    /// An alltoall of blocks that differ for every pair.
    pub(crate) fn pairs<T: Element>(counts: OwnedPairCounts, signature: Signature, owned: OwnedBuffers<T>) -> Self {
        let begin = move |owned: &dyn Any, steps: Steps| {
            let owned = owned.downcast_ref::<OwnedBuffers<T>>().expect("the type it was made with");
            Ok(pairs::begin(&counts, bytes::of(&owned.send).to_vec(), steps))
        };
        let collective = Collective::AllToAll;
        Prepared { collective, signature, owned: Box::new(owned), way: Way::Anew(Box::new(begin), put::<T>) }
    }

    /// An allreduce, if it is one that keeps what it needs from one start to the next.
    ///
    /// # Errors
    /// As [`AllReduce::new`].
    pub(crate) fn again<T: Element>(
        groups: (&Arc<Hierarchy>, &Arc<NodeComm>),
        asked: &StartedArgs,
        signature: Signature,
        mut owned: OwnedBuffers<T>,
    ) -> Result<Result<Self, OwnedBuffers<T>>, Error> {
        if !again::carries::<T>(asked) {
            return Ok(Err(owned));
        }
        let kept = AllReduce::new(groups, asked, signature, &mut owned)?;
        let (collective, owned) = (asked.collective, Box::new(owned));
        Ok(Ok(Prepared { collective, signature, owned, way: Way::Kept(Box::new(kept)) }))
    }

    /// Starts a call under these numbers, and says what runs between leaders in it.
    pub(super) fn begin(
        &mut self,
        groups: (&Arc<Hierarchy>, &Arc<NodeComm>),
        (number, call): (u64, u64),
    ) -> Result<(Course, &'static str), Error> {
        match &mut self.way {
            Way::Anew(begin, _) => {
                let steps = Steps::new(groups, (self.collective, self.signature), (number, call));
                begin(&*self.owned, steps).map(|(future, runs)| (Course::Anew(future), runs))
            }
            Way::Kept(kept) => {
                kept.start(number, call);
                Ok((Course::Kept, kept.runs()))
            }
        }
    }

    /// Carries on with the call.
    pub(super) fn poll(&mut self, course: &mut Course) -> Poll<Result<(), Error>> {
        match (course, &mut self.way) {
            (Course::Anew(future), Way::Anew(_, put)) => {
                let ended = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                ended.map_ok(|bytes| {
                    if let Some(bytes) = bytes {
                        put(&mut *self.owned, &bytes);
                    }
                })
            }
            (_, Way::Kept(kept)) => kept.poll(&mut *self.owned),
            (Course::Kept, Way::Anew(..)) => unreachable!("begun as it is"),
        }
    }

    /// The call has failed by the word of others.
    pub(super) fn give_up(&mut self) {
        if let Way::Kept(kept) = &mut self.way {
            kept.give_up(&mut *self.owned);
        }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("collective", &self.collective).finish_non_exhaustive()
    }
}

/// Puts a result into the buffer for it.
fn put<T: Element>(owned: &mut dyn Any, result: &[u8]) {
    if let Some(owned) = owned.downcast_mut::<OwnedBuffers<T>>()
        && size_of_val(&owned.recv[..]) == result.len()
    {
        fill(&mut owned.recv, result);
    }
}

/// Elements out of their bytes.
fn fill<T: Element>(to: &mut [T], from: &[u8]) {
    match T::DTYPE {
        DType::Bool => crate::hierarchy::put_truth(to, from),
        _ => bytes::of_mut(to).copy_from_slice(from),
    }
}
