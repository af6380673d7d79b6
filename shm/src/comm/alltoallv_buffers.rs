//! The buffers of a non-blocking alltoall of unequal blocks, and the counts that the ranks gather for it.
//!
//! A started call takes its operation numbers at the start, but how many operations a blocking call of this kind needs follows
//! from counts that no rank knows alone. So a rank starts one allgather of its counts and of what it sends; where that is more than a
//! few KiB, it copies its send buffer into memory that all ranks of the group can map, and sends the name of that memory. At
//! completion every rank compares all counts, copies its blocks, and releases the memory.
//!
//! ```text
//! in the call that starts it      memory allocated, send copied there | allgather: name, counts, small send buffer
//! when the allgather is complete  counts compared | own blocks copied out | memory released, freed by the last release
//! ```
//!
//! Invariant **L (allocated)**: named memory is written by its sender alone, before the operation that publishes the name. It
//! does not change until every rank of the group has released it; this rank does so after it has read. Names and lengths
//! received are checked before they are used.
#![allow(unsafe_code)]

use crate::Error;
use crate::kernels;
use crate::memory::{AllocationName, Grant, Origin, Region, Segment};
use crate::op::{DType, Datatype};
use crate::protocol::payload::Buffers;
use crate::protocol::request_buffers::{BufferOwner, OwnedBuffers};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Words before the counts: the name of the sender's memory and its bytes; if the allocation failed, the bytes that were free;
/// if the system refused it, `errno + 1`.
const HEAD: usize = 4;

/// Words after the counts for a small send buffer, of all ranks together. Every rank reads those of all, whether or not they are used.
const BESIDE_COUNTS_OF_ALL: usize = 512;

/// Words beside the counts of each rank for its send buffer.
const fn words_beside_counts(ranks: usize) -> usize {
    BESIDE_COUNTS_OF_ALL / ranks
}

/// The caller's buffers of an alltoall of unequal blocks, and the counts that the allgather sends and receives in their place.
#[derive(Debug)]
pub(super) struct AlltoallvBuffers {
    owned: OwnedBuffers,
    gathered: GatheredCounts,
}

/// The counts of all ranks, and the names of the memory that they send from.
#[derive(Debug)]
struct GatheredCounts {
    datatype: Datatype,
    /// This rank's head and counts, and what it sends if that is little.
    words: Vec<u64>,
    /// Those of all ranks.
    all: Vec<u64>,
    me: usize,
    members: Vec<usize>,
    segment: Arc<Segment>,
    origin: Origin,
    timeout: Option<Duration>,
}

impl AlltoallvBuffers {
    /// The buffers of rank `me` of a group of these members. `counts` are the elements of `datatype` to send to each member,
    /// followed by those to receive from each.
    pub(super) fn new(
        (me, members): (usize, Vec<usize>),
        (counts, datatype): (&[u64], Datatype),
        owned: OwnedBuffers,
        segment: Arc<Segment>,
        (origin, timeout): (Origin, Option<Duration>),
    ) -> Self {
        let words = [&[0; HEAD], counts, &vec![0; words_beside_counts(members.len())]].concat();
        let all = vec![0; words.len() * members.len()];
        let gathered = GatheredCounts { datatype, words, all, me, members, segment, origin, timeout };
        AlltoallvBuffers { owned, gathered }
    }

    /// Converts them to the buffers of the allgather, and returns the number of words that each rank sends.
    pub(super) fn into_words(self) -> (OwnedBuffers, usize) {
        let words = self.gathered.words.len();
        // SAFETY: words are sent and received.
        (unsafe { OwnedBuffers::new(Box::new(self), DType::U64.into()) }, words)
    }
}

impl GatheredCounts {
    /// The words of rank `of` before its counts.
    fn head(&self, of: usize) -> [u64; HEAD] {
        let row = &self.all[of * self.words.len()..];
        [row[0], row[1], row[2], row[3]]
    }

    fn sends(&self, from: usize) -> &[u64] {
        &self.all[from * self.words.len() + HEAD..][..self.members.len()]
    }

    fn expects(&self, to: usize) -> &[u64] {
        &self.all[to * self.words.len() + HEAD + self.members.len()..][..self.members.len()]
    }

    /// Words before those that are sent beside the counts.
    fn words_of_counts(&self) -> usize {
        HEAD + 2 * self.members.len()
    }

    /// What `from` sends, if that lies beside its counts.
    fn beside_counts(&self, from: usize) -> Option<&[u8]> {
        let row = &self.all[from * self.words.len()..][..self.words.len()];
        bytemuck::cast_slice(&row[self.words_of_counts()..]).get(..row[1] as usize)
    }

    /// Releases the named memory of all ranks.
    fn release_all(&mut self) {
        let rows = self.all.chunks_mut(self.words.len());
        let gathered = rows.map(|row| std::mem::take(&mut row[0]));
        let own = std::mem::take(&mut self.words[0]);
        let names: Vec<u64> = gathered.filter(|name| *name != own).chain([own]).filter(|name| *name != 0).collect();
        for name in names.into_iter().map(AllocationName::from_word) {
            self.segment.release(name.slot, name.id);
        }
    }

    /// Allocates memory for the bytes that this rank sends, which all ranks can read.
    fn allocate(&self, bytes: usize) -> Result<AllocationName, Error> {
        let (rounded, most) = (bytes.next_multiple_of(rustix::param::page_size()), self.segment.max_allocation_bytes());
        if rounded > most {
            return Err(Error::NoSpace { needed: bytes as u64, free: most as u64, hint: String::new() });
        }
        let size = (rounded, rounded as u64);
        self.segment.allocate_one(self.members.clone(), size, self.origin, self.timeout).map(Grant::name)
    }

    /// Copies the bytes that this rank sends into its allocation.
    fn fill(&self, name: AllocationName, send: &[u8]) -> Result<(), Error> {
        let bytes = send.len();
        let region = self.segment.region(name.slot, bytes.next_multiple_of(rustix::param::page_size()))?;
        // SAFETY: L: this rank is the sender and has not published the name; the region is mapped, and reserved for as many bytes.
        unsafe { kernels::copy(region.as_ptr(), send.as_ptr(), bytes) };
        Ok(())
    }

    /// Maps the named memory of a rank that sends `bytes` bytes, if there is such an allocation.
    fn region_of(&self, name: AllocationName, bytes: usize) -> Result<Region, Error> {
        match self.segment.bytes_of(name) {
            Some(allocated) if allocated >= bytes => self.segment.region(name.slot, allocated),
            _ => Err(Error::Poisoned { cause: "memory of an alltoall that was allocated for no rank".into() }),
        }
    }

    /// Compares the counts of all ranks and copies this rank's blocks.
    fn deliver(&self, buffers: Buffers<'_>) -> Result<(), Error> {
        let ranks = self.members.len();
        let pairs = (0..ranks).flat_map(|to| (0..ranks).map(move |from| (from, to)));
        for (from, to) in pairs {
            let (sends, expects) = (self.sends(from)[to], self.expects(to)[from]);
            if sends != expects {
                return Err(Error::counts_differ("alltoall", [from, to], sends as usize, expects as usize));
            }
        }
        for rank in 0..ranks {
            let [name, needed, free, refused] = self.head(rank);
            if refused != 0 {
                let context = format!(
                    "rank {rank} could not have the {needed} bytes that it sends in a non-blocking alltoall of unequal blocks; raise its \
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
            if name == 0 && self.beside_counts(rank).is_none() {
                let hint = format!(
                    "rank {rank} has no shared memory for what it sends in a non-blocking alltoall of unequal blocks; make the blocking call, \
                     or set EARLYBIRD_ARENA_MAX higher"
                );
                return Err(Error::NoSpace { needed, free, hint });
            }
        }
        self.receive(buffers)
    }

    fn receive(&self, buffers: Buffers<'_>) -> Result<(), Error> {
        let bad = || Error::Poisoned { cause: "counts of an alltoall that cannot be".into() };
        let (size, me) = (self.datatype.size(), self.me);
        let (send, recv) = buffers.into_bytes();
        let send = send.as_deref().unwrap_or(recv);
        let own = block(self.sends(me), me, send.len() / size).ok_or_else(bad)?;
        let own = send[own.start * size..own.end * size].to_vec();
        for from in 0..self.members.len() {
            let to = block(self.expects(me), from, recv.len() / size).ok_or_else(bad)?;
            let to = &mut recv[to.start * size..to.end * size];
            if from == me {
                to.copy_from_slice(&own);
                continue;
            }
            if to.is_empty() {
                continue;
            }
            let [name, bytes, ..] = self.head(from);
            // As long as `to`, since the counts were compared.
            let at = block(self.sends(from), me, bytes as usize / size).ok_or_else(bad)?;
            let region;
            let sent = match self.beside_counts(from) {
                Some(sent) => sent.as_ptr(),
                None => {
                    region = self.region_of(AllocationName::from_word(name), bytes as usize)?;
                    region.as_ptr().cast_const()
                }
            };
            let clean = if let Datatype::Builtin(dtype) = self.datatype { kernels::cleaning(dtype) } else { None };
            // SAFETY: L: the sender wrote it before it published the name, and no rank writes it before this one releases it;
            // the region is mapped, and it or what lies beside the counts holds `at`, as was checked. `to` is as long, and borrowed
            // exclusively; bytes that are no value of the datatype are cleaned where there are such.
            unsafe {
                let source = sent.add(at.start * size);
                match clean {
                    Some(clean) => clean(to.as_mut_ptr(), source, at.len(), self.members.len()),
                    None => kernels::copy(to.as_mut_ptr(), source, at.len() * size),
                }
            }
        }
        Ok(())
    }

    /// Copies what this rank sends beside its counts, or into shared memory, and writes the name of that memory, or the failure, into
    /// its head.
    fn publish(&mut self, buffers: Buffers<'_>) {
        let beside = self.words_of_counts()..;
        let counts = &self.words[HEAD..][..self.members.len()];
        let others = counts.iter().enumerate().any(|(to, count)| to != self.me && *count > 0);
        let (send, recv) = buffers.into_bytes();
        let send = if others { send.as_deref().unwrap_or(recv) } else { &[] };
        if let Some(beside) = bytemuck::cast_slice_mut(&mut self.words[beside]).get_mut(..send.len()) {
            beside.copy_from_slice(send);
            self.words[..HEAD].copy_from_slice(&[0, send.len() as u64, 0, 0]);
            return;
        }
        // All ranks see a refusal, and release the memory.
        let refused = |errno: Option<i32>| errno.unwrap_or(0) as u64 + 1;
        let [name, free, refusal] = match self.allocate(send.len()) {
            Ok(name) => match self.fill(name, send) {
                Ok(()) => [name.word(), 0, 0],
                Err(Error::System { errno, .. }) => [name.word(), 0, refused(errno)],
                Err(_) => [name.word(), 0, refused(None)],
            },
            Err(Error::NoSpace { free, .. }) => [0, free, 0],
            Err(Error::System { errno, .. }) => [0, 0, refused(errno)],
            Err(_) => [0; 3],
        };
        self.words[..HEAD].copy_from_slice(&[name, send.len() as u64, free, refusal]);
    }
}

/// The range of a rank's block among the blocks of all, if their sum fits `most`.
fn block(counts: &[u64], rank: usize, most: usize) -> Option<Range<usize>> {
    let sum = |counts: &[u64]| counts.iter().try_fold(0u64, |sum, count| sum.checked_add(*count));
    let (first, all) = (sum(&counts[..rank])?, sum(counts)?);
    (all <= most as u64).then(|| first as usize..(first + counts[rank]) as usize)
}

impl BufferOwner for AlltoallvBuffers {
    unsafe fn as_buffers(&mut self, _: Datatype) -> Buffers<'_> {
        Buffers::apart(&self.gathered.words, &mut self.gathered.all)
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.gathered.release_all();
        self.gathered.publish(self.owned.as_buffers());
        Ok(())
    }

    fn end(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        let delivered = outcome.and_then(|()| self.gathered.deliver(self.owned.as_buffers()));
        self.gathered.release_all();
        delivered
    }

    fn owner(&mut self) -> &mut dyn Any {
        self.owned.owner_as_any()
    }

    fn into_owner(self: Box<Self>) -> Box<dyn Any + Send> {
        self.owned.into_owner_as_any()
    }
}

impl Drop for GatheredCounts {
    /// For a call that was started and never completed.
    fn drop(&mut self) {
        self.release_all();
    }
}
