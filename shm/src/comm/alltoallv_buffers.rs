//! The buffers of a non-blocking alltoall of unequal blocks, and what the ranks tell each other of them.
//!
//! A posted operation takes its numbers when it is posted, and how many a blocking call of this kind needs follows from counts
//! that no rank knows alone. So what a rank sends lies in memory that is lent to all ranks of the group, and what it posts is
//! its counts and the name of that memory, which every rank gets. Whoever has them all compares them, all alike, reads its
//! blocks, and lets go of the memory.
//!
//! ```text
//! in the posting call             memory borrowed, send copied there | allgather: name, counts
//! when the allgather is complete  counts compared | own blocks copied out | memory let go of, the last one gives it back
//! ```
//!
//! Invariant **L (lent)**: memory that a name stands for is written by its sender alone, before the operation that tells its
//! name, and it stays as it is until every rank of the group has let go of it, as this one does after it has read. What a name
//! and the lengths beside it say is checked before they are used.
#![allow(unsafe_code)]

use crate::Error;
use crate::kernels;
use crate::memory::{AllocationName, Claim, Origin, Region, Segment};
use crate::op::Element;
use crate::protocol::payload::Buffers;
use crate::protocol::request_buffers::{OwnedBuffers, RequestBuffers};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Words before the counts: the name of the memory, its bytes, how many were free where it could not be had, and one more than
/// the system's number where it was refused.
const HEAD: usize = 4;

/// The buffers of a call, and what the ranks tell each other of it.
pub(super) struct AlltoallvBuffers<T> {
    owned: Option<OwnedBuffers<T>>,
    /// What this rank tells.
    words: Vec<u64>,
    /// What all told.
    all: Vec<u64>,
    me: usize,
    members: Vec<usize>,
    segment: Arc<Segment>,
    origin: Origin,
    timeout: Option<Duration>,
}

impl<T> AlltoallvBuffers<T> {
    /// Of rank `me` of a group of these members.
    pub(super) fn new(
        (me, members): (usize, Vec<usize>),
        (send_counts, recv_counts): (&[usize], &[usize]),
        owned: OwnedBuffers<T>,
        segment: Arc<Segment>,
        (origin, timeout): (Origin, Option<Duration>),
    ) -> Self {
        let counts = send_counts.iter().chain(recv_counts).map(|count| *count as u64);
        let words: Vec<u64> = [0; HEAD].into_iter().chain(counts).collect();
        let all = vec![0; words.len() * members.len()];
        AlltoallvBuffers { owned: Some(owned), words, all, me, members, segment, origin, timeout }
    }

    /// Words that each rank tells.
    pub(super) fn told_words(&self) -> usize {
        self.words.len()
    }

    pub(super) fn buffers(&mut self) -> Option<&mut OwnedBuffers<T>> {
        self.owned.as_mut()
    }

    pub(super) fn into_buffers(mut self) -> Option<OwnedBuffers<T>> {
        self.owned.take()
    }

    /// What rank `of` told, but for its counts.
    fn head(&self, of: usize) -> [u64; HEAD] {
        let row = &self.all[of * self.words.len()..];
        [row[0], row[1], row[2], row[3]]
    }

    fn gives(&self, from: usize) -> &[u64] {
        &self.all[from * self.words.len() + HEAD..][..self.members.len()]
    }

    fn expects(&self, to: usize) -> &[u64] {
        &self.all[to * self.words.len() + HEAD + self.members.len()..][..self.members.len()]
    }

    /// Lets go of all memory that this rank was told of.
    fn let_go(&mut self) {
        let rows = self.all.chunks_mut(self.words.len());
        let told = rows.map(|row| std::mem::take(&mut row[0]));
        let own = std::mem::take(&mut self.words[0]);
        let names: Vec<u64> = told.filter(|name| *name != own).chain([own]).filter(|name| *name != 0).collect();
        for name in names.into_iter().map(AllocationName::from_word) {
            self.segment.release(name.slot, name.id);
        }
    }

    /// The elements of a rank's block among those of all, if the sums fit `most`.
    fn block(counts: &[u64], rank: usize, most: usize) -> Option<Range<usize>> {
        let sum = |counts: &[u64]| counts.iter().try_fold(0u64, |sum, count| sum.checked_add(*count));
        let (first, all) = (sum(&counts[..rank])?, sum(counts)?);
        (all <= most as u64).then(|| first as usize..(first + counts[rank]) as usize)
    }
}

impl<T: Element> AlltoallvBuffers<T> {
    /// Lends what this rank sends to all.
    fn lend(&self, send: &[T]) -> Result<AllocationName, Error> {
        let bytes = size_of_val(send);
        let (rounded, most) = (bytes.next_multiple_of(rustix::param::page_size()), self.segment.max_allocation_bytes());
        if rounded > most {
            return Err(Error::NoSpace { needed: bytes as u64, free: most as u64, hint: String::new() });
        }
        let cost = rounded as u64;
        let claim = Claim { members: self.members.clone(), lines: rounded, least: cost, most: cost };
        let grants = self.segment.allocate(&[claim], self.origin, self.timeout, || true)?;
        let Some(&[grant]) = grants.as_deref() else { unreachable!("one claim that nothing denies") };
        Ok(AllocationName { slot: grant.slot, id: grant.id })
    }

    /// Copies what this rank sends to where it was lent.
    fn fill(&self, name: AllocationName, send: &[T]) -> Result<(), Error> {
        let bytes = size_of_val(send);
        let region = self.segment.region(name.slot, bytes.next_multiple_of(rustix::param::page_size()))?;
        // SAFETY: L: this rank is the sender and has told nobody; the region is mapped, and reserved for as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(send.as_ptr().cast::<u8>(), region.as_ptr(), bytes) };
        Ok(())
    }

    /// The memory that `bytes` bytes of a rank lie in, if it was told the truth.
    fn region_of(&self, name: AllocationName, bytes: usize) -> Result<Region, Error> {
        match self.segment.bytes_of(name) {
            Some(lent) if lent >= bytes => self.segment.region(name.slot, lent),
            _ => Err(Error::Poisoned { cause: "memory of an alltoall that nobody was lent".into() }),
        }
    }

    /// Compares what all told and copies what is for this rank.
    fn deal(&mut self) -> Result<(), Error> {
        let ranks = self.members.len();
        let pairs = (0..ranks).flat_map(|to| (0..ranks).map(move |from| (from, to)));
        for (from, to) in pairs {
            let (gives, expects) = (self.gives(from)[to], self.expects(to)[from]);
            if gives != expects {
                return Err(Error::counts_differ(from, to, gives, expects));
            }
        }
        for rank in 0..ranks {
            let [name, needed, free, refused] = self.head(rank);
            if refused != 0 {
                let context = format!(
                    "rank {rank} could not have the {needed} bytes that it sends in a posted alltoall of unequal blocks; raise its \
                     limit of address space (ulimit -v)"
                );
                return Err(match refused as i32 - 1 {
                    0 => Error::system(
                        context,
                        "its program has closed the arena's descriptor (close_range, closefrom?)",
                    ),
                    errno => Error::system(context, std::io::Error::from_raw_os_error(errno)),
                });
            }
            if name == 0 && needed != 0 {
                let hint = format!(
                    "rank {rank} has no shared memory for what it sends in a posted alltoall of unequal blocks; make the blocking call, \
                     or set EARLYBIRD_ARENA_MAX higher"
                );
                return Err(Error::NoSpace { needed, free, hint });
            }
        }
        let mut owned = self.owned.take();
        let dealt = owned.as_mut().map_or(Ok(()), |owned| self.deal_to(owned));
        self.owned = owned;
        dealt
    }

    fn deal_to(&self, owned: &mut OwnedBuffers<T>) -> Result<(), Error> {
        let (size, me, OwnedBuffers { send, recv, .. }) = (size_of::<T>(), self.me, owned);
        let bad = || Error::Poisoned { cause: "counts of an alltoall that cannot be".into() };
        for from in 0..self.members.len() {
            let to = Self::block(self.expects(me), from, recv.len()).ok_or_else(bad)?;
            if from == me {
                let at = Self::block(self.gives(me), me, send.len()).ok_or_else(bad)?;
                recv[to].copy_from_slice(&send[at]);
                continue;
            }
            if to.is_empty() {
                continue;
            }
            let [name, bytes, ..] = self.head(from);
            // As long as `to`, since the counts were compared.
            let at = Self::block(self.gives(from), me, bytes as usize / size).ok_or_else(bad)?;
            let region = self.region_of(AllocationName::from_word(name), bytes as usize)?;
            let target = recv[to].as_mut_ptr().cast::<u8>();
            // SAFETY: L: the sender wrote it before it told the name, which this rank has, and nobody writes it before this rank
            // lets go; the region is mapped and holds `at`, as was checked. The block of `recv` is as long, and borrowed
            // exclusively; bytes that are no value of `T` are cleaned where there are such.
            unsafe {
                let source = region.as_ptr().add(at.start * size);
                match kernels::cleaning(T::DTYPE) {
                    Some(clean) => clean(target, source, at.len(), self.members.len()),
                    None => std::ptr::copy_nonoverlapping(source, target, at.len() * size),
                }
            }
        }
        Ok(())
    }
}

impl<T: Element> RequestBuffers for AlltoallvBuffers<T> {
    fn lend(&mut self) -> Buffers<'_> {
        Buffers::apart(&self.words, &mut self.all)
    }

    fn begin(&mut self) {
        self.let_go();
        let Some(owned) = &self.owned else { return };
        let counts = &self.words[HEAD..][..self.members.len()];
        let others = counts.iter().enumerate().any(|(to, count)| to != self.me && *count > 0);
        let bytes = if others { size_of_val(&owned.send[..]) } else { 0 };
        // All ranks learn of it, and let go of what they were lent in vain.
        let refused = |errno: Option<i32>| errno.unwrap_or(0) as u64 + 1;
        let told = match others.then(|| AlltoallvBuffers::lend(self, &owned.send)) {
            None => [0; 3],
            Some(Ok(name)) => match self.fill(name, &owned.send) {
                Ok(()) => [name.word(), 0, 0],
                Err(Error::System { errno, .. }) => [name.word(), 0, refused(errno)],
                Err(_) => [name.word(), 0, refused(None)],
            },
            Some(Err(Error::NoSpace { free, .. })) => [0, free, 0],
            Some(Err(Error::System { errno, .. })) => [0, 0, refused(errno)],
            Some(Err(_)) => [0; 3],
        };
        self.words[..HEAD].copy_from_slice(&[told[0], bytes as u64, told[1], told[2]]);
    }

    fn end(&mut self) -> Result<(), Error> {
        let dealt = self.deal();
        self.let_go();
        dealt
    }
}

impl<T> Drop for AlltoallvBuffers<T> {
    /// Also of a call that nobody asked for the end of.
    fn drop(&mut self) {
        self.let_go();
    }
}

impl<T> fmt::Debug for AlltoallvBuffers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlltoallvBuffers").field("owned", &self.owned).finish_non_exhaustive()
    }
}
