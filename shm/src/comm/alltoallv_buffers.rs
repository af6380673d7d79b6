//! The buffers of a non-blocking alltoall of unequal blocks, and the counts that the ranks gather for it.
//!
//! A started call takes its operation numbers at the start, but how many operations a blocking call of this kind needs follows
//! from counts that no rank knows alone. So a rank starts one allgather of its counts and of what it sends; where that is more than a
//! few words, it copies its send buffer into memory that all ranks of the group can map (`send_memory.rs`), and sends the name of that
//! memory. At completion every rank compares all counts and copies its blocks.
//!
//! ```text
//! in the call that starts it      send copied into shared memory | allgather: name, counts, small send buffer
//! when the allgather is complete  counts compared | own blocks copied out | memory of this call alone released
//! ```
//!
//! Invariant **L (lent)**: named memory is written by its sender alone, before the operation that publishes the name. It does not
//! change before every rank of the group has released it, or has ended the call; this rank does so after it has read. Names and
//! lengths received are checked before they are used.
#![allow(unsafe_code)]

use super::send_memory::SendMemory;
use crate::Error;
use crate::kernels;
use crate::memory::{AllocationName, Region};
use crate::op::{DType, Datatype};
use crate::protocol::lines::INLINE_BYTES;
use crate::protocol::payload::Buffers;
use crate::protocol::request_buffers::{BufferOwner, OwnedBuffers};
use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The place of what a rank sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SentFrom {
    /// Beside the counts.
    #[default]
    Beside,
    /// Memory that is kept for later calls.
    Kept(AllocationName),
    /// Memory of this call alone, which every rank releases.
    Alone(AllocationName),
    /// None, since no more than so many bytes were free.
    NoSpace { free: u64 },
    /// None, since the system has refused it: its error, 0 without one, and the memory that every rank releases, if it was allocated.
    Refused { errno: u16, allocated: Option<AllocationName> },
}

impl SentFrom {
    fn refused(errno: Option<i32>, allocated: Option<AllocationName>) -> Self {
        SentFrom::Refused { errno: errno.unwrap_or(0) as u16, allocated }
    }
}

/// The words that a rank sends before its counts.
#[derive(Debug, Clone, Copy, Default)]
struct Head {
    place: SentFrom,
    /// Bytes that it sends.
    bytes: u64,
    /// All calls of lower numbers have ended on this rank.
    ended: u64,
}

impl Head {
    const WORDS: usize = 3;
    /// Bits of the first word below those of the place: more bytes than an address space has.
    const BYTES_BITS: u32 = 48;

    fn to_words(self) -> [u64; Head::WORDS] {
        let (kind, value) = match self.place {
            SentFrom::Beside => (0, 0),
            SentFrom::Kept(name) => (1, name.word()),
            SentFrom::Alone(name) => (2, name.word()),
            SentFrom::NoSpace { free } => (3, free),
            SentFrom::Refused { errno, allocated } => {
                (4 | u64::from(errno) << 3, allocated.map_or(0, AllocationName::word))
            }
        };
        [kind << Head::BYTES_BITS | self.bytes, value, self.ended]
    }

    /// The head of a rank's words.
    fn of(words: &[u64]) -> Head {
        let &[first, value, ended, ..] = words else { return Head::default() };
        let (kind, bytes) = (first >> Head::BYTES_BITS, first & ((1 << Head::BYTES_BITS) - 1));
        let name = AllocationName::from_word(value);
        let place = match kind & 7 {
            0 => SentFrom::Beside,
            1 => SentFrom::Kept(name),
            2 => SentFrom::Alone(name),
            3 => SentFrom::NoSpace { free: value },
            _ => SentFrom::Refused { errno: (kind >> 3) as u16, allocated: (value != 0).then_some(name) },
        };
        Head { place, bytes, ended }
    }

    /// The memory that every rank releases.
    fn released(self) -> Option<AllocationName> {
        match self.place {
            SentFrom::Alone(name) => Some(name),
            SentFrom::Refused { allocated, .. } => allocated,
            SentFrom::Beside | SentFrom::Kept(_) | SentFrom::NoSpace { .. } => None,
        }
    }
}

/// Words after the counts for a small send buffer, of all ranks together. Every rank reads those of all, whether or not they are used.
const BESIDE_COUNTS_OF_ALL: usize = 64;

/// Words after the counts of each of so many ranks for its send buffer: as many as travel beside a mark with them, if that is one for
/// each rank.
fn words_beside_counts(ranks: usize) -> usize {
    let beside_mark = (INLINE_BYTES / size_of::<u64>()).checked_sub(Head::WORDS + 2 * ranks);
    beside_mark.filter(|words| *words >= ranks).unwrap_or(BESIDE_COUNTS_OF_ALL / ranks)
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
    ranks: usize,
    memory: Arc<Mutex<SendMemory>>,
    /// The number of the call that has begun.
    call: Option<u64>,
    timeout: Option<Duration>,
}

impl AlltoallvBuffers {
    /// The buffers of rank `me` of a group of `ranks`. `counts` are the elements of `datatype` to send to each rank, followed by those
    /// to receive from each.
    pub(super) fn new(
        (me, ranks): (usize, usize),
        (counts, datatype): (&[u64], Datatype),
        owned: OwnedBuffers,
        memory: Arc<Mutex<SendMemory>>,
        timeout: Option<Duration>,
    ) -> Self {
        let mut words = vec![0; Head::WORDS + counts.len() + words_beside_counts(ranks)];
        words[Head::WORDS..][..counts.len()].copy_from_slice(counts);
        let all = vec![0; words.len() * ranks];
        let gathered = GatheredCounts { datatype, words, all, me, ranks, memory, call: None, timeout };
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
    /// The words of a rank: its head, its counts, and what it sends if that is little.
    fn row(&self, of: usize) -> &[u64] {
        &self.all[of * self.words.len()..][..self.words.len()]
    }

    fn sends(&self, from: usize) -> &[u64] {
        &self.row(from)[Head::WORDS..][..self.ranks]
    }

    fn expects(&self, to: usize) -> &[u64] {
        &self.row(to)[Head::WORDS + self.ranks..][..self.ranks]
    }

    /// Words before those that are sent beside the counts.
    fn words_of_counts(&self) -> usize {
        Head::WORDS + 2 * self.ranks
    }

    /// What `from` sends, if that lies beside its counts.
    fn beside_counts(&self, from: usize) -> Option<&[u8]> {
        let row = self.row(from);
        bytemuck::cast_slice(&row[self.words_of_counts()..]).get(..Head::of(row).bytes as usize)
    }

    fn memory(&self) -> MutexGuard<'_, SendMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the call on this rank, which reads nothing of it any more: releases the memory of this call alone.
    fn end(&mut self) {
        let Some(call) = self.call.take() else { return };
        let of_others = self.all.chunks(self.words.len()).map(|row| Head::of(row).released());
        let own = Head::of(&self.words).released();
        let mut memory = self.memory();
        of_others.filter(|name| *name != own).chain([own]).flatten().for_each(|name| memory.release(name));
        memory.calls().end(call);
        drop(memory);
        // The next call may fail before it has received anything.
        self.all.chunks_mut(self.words.len()).for_each(|row| row[..Head::WORDS].fill(0));
    }

    /// Copies what this rank sends beside its counts, or into shared memory, and writes the name of that memory, or the failure, into
    /// its head.
    fn begin(&mut self, buffers: Buffers<'_>) {
        self.end();
        let (call, ended) = {
            let mut memory = self.memory();
            (memory.calls().begin(), memory.calls().ended_here())
        };
        self.call = Some(call);
        let beside = self.words_of_counts()..;
        let counts = &self.words[Head::WORDS..][..self.ranks];
        let others = counts.iter().enumerate().any(|(to, count)| to != self.me && *count > 0);
        let (send, recv) = buffers.into_bytes();
        let send = if others { send.as_deref().unwrap_or(recv) } else { &[] };
        let place = match bytemuck::cast_slice_mut(&mut self.words[beside]).get_mut(..send.len()) {
            Some(beside) => {
                beside.copy_from_slice(send);
                SentFrom::Beside
            }
            None => self.share(call, send),
        };
        let head = Head { place, bytes: send.len() as u64, ended };
        self.words[..Head::WORDS].copy_from_slice(&head.to_words());
    }

    /// Copies what this rank sends in `call` into shared memory. All ranks see a refusal, and release the memory.
    fn share(&self, call: u64, send: &[u8]) -> SentFrom {
        let mut memory = self.memory();
        if let Some((name, block)) = memory.keep(call, send.len(), self.timeout) {
            // SAFETY: K: no rank reads what was sent from here before; the block is mapped and as long.
            unsafe { self.fill(block, send) };
            return SentFrom::Kept(name);
        }
        let name = match memory.allocate(send.len(), self.timeout) {
            Ok(name) => name,
            Err(Error::NoSpace { free, .. }) => return SentFrom::NoSpace { free },
            Err(Error::System { errno, .. }) => return SentFrom::refused(errno, None),
            Err(_) => return SentFrom::NoSpace { free: 0 },
        };
        match memory.map(name, send.len()) {
            Ok(region) => {
                // SAFETY: the memory was allocated for this call; the region is mapped, and reserved for as many bytes.
                unsafe { self.fill(region.as_ptr(), send) };
                SentFrom::Alone(name)
            }
            Err(Error::System { errno, .. }) => SentFrom::refused(errno, Some(name)),
            Err(_) => SentFrom::refused(None, Some(name)),
        }
    }

    /// Copies what this rank sends to others to the same places in shared memory.
    ///
    /// # Safety
    /// L: this rank has not published the memory's name in this call, and no rank reads it. It is mapped, and as long as `send`.
    unsafe fn fill(&self, memory: *mut u8, send: &[u8]) {
        let (sends, size) = (&self.words[Head::WORDS..][..self.ranks], self.datatype.size());
        let own = block(sends, self.me, send.len() / size).unwrap_or(0..0);
        for part in [0..own.start * size, own.end * size..send.len()] {
            // SAFETY: the caller's, and the part lies inside `send`.
            unsafe { kernels::copy(memory.add(part.start), send[part.clone()].as_ptr(), part.len()) };
        }
    }

    /// Compares the counts of all ranks and copies this rank's blocks.
    fn deliver(&self, buffers: Buffers<'_>) -> Result<(), Error> {
        let mut memory = self.memory();
        for rank in 0..self.ranks {
            memory.calls().note(rank, Head::of(self.row(rank)).ended);
        }
        let pairs = (0..self.ranks).flat_map(|to| (0..self.ranks).map(move |from| (from, to)));
        for (from, to) in pairs {
            let (sends, expects) = (self.sends(from)[to], self.expects(to)[from]);
            if sends != expects {
                return Err(Error::counts_differ("alltoall", [from, to], sends as usize, expects as usize));
            }
        }
        (0..self.ranks).try_for_each(|rank| self.check_memory(rank))?;
        self.receive(buffers, &mut memory)
    }

    /// Returns the error of all ranks if `rank` had no memory for what it sends.
    fn check_memory(&self, rank: usize) -> Result<(), Error> {
        let Head { place, bytes, .. } = Head::of(self.row(rank));
        match place {
            SentFrom::Kept(_) | SentFrom::Alone(_) => Ok(()),
            SentFrom::Beside if self.beside_counts(rank).is_some() => Ok(()),
            SentFrom::Beside => Err(Error::Poisoned { cause: "what an alltoall sends nowhere".into() }),
            SentFrom::NoSpace { free } => {
                let hint = format!(
                    "rank {rank} has no shared memory for what it sends in a non-blocking alltoall of unequal blocks; make the blocking call, \
                     or set EARLYBIRD_ARENA_MAX higher"
                );
                Err(Error::NoSpace { needed: bytes, free, hint })
            }
            SentFrom::Refused { errno, .. } => {
                let context = format!(
                    "rank {rank} could not have the {bytes} bytes that it sends in a non-blocking alltoall of unequal blocks; raise its \
                     limit of address space (ulimit -v)"
                );
                Err(match errno {
                    0 => Error::system(
                        context,
                        "its program has closed the arena's descriptor (close_range, closefrom?)",
                    ),
                    errno => Error::system(context, std::io::Error::from_raw_os_error(errno.into())),
                })
            }
        }
    }

    fn receive(&self, buffers: Buffers<'_>, memory: &mut SendMemory) -> Result<(), Error> {
        let bad = || Error::Poisoned { cause: "counts of an alltoall that cannot be".into() };
        let (size, me) = (self.datatype.size(), self.me);
        let (send, recv) = buffers.into_bytes();
        let bytes = |block: Range<usize>| block.start * size..block.end * size;
        let own = block(self.sends(me), me, send.as_deref().unwrap_or(recv).len() / size).ok_or_else(bad)?;
        let to = block(self.expects(me), me, recv.len() / size).ok_or_else(bad)?;
        match &send {
            Some(send) => recv[bytes(to)].copy_from_slice(&send[bytes(own)]),
            // Others read what was sent in shared memory, so all of the buffer is free but for this block.
            None => recv.copy_within(bytes(own), to.start * size),
        }
        for from in (0..self.ranks).filter(|from| *from != me) {
            let to = block(self.expects(me), from, recv.len() / size).ok_or_else(bad)?;
            let to = &mut recv[bytes(to)];
            if to.is_empty() {
                continue;
            }
            let head = Head::of(self.row(from));
            // As long as `to`, since the counts were compared.
            let at = block(self.sends(from), me, head.bytes as usize / size).ok_or_else(bad)?;
            let length = head.bytes as usize;
            let of_this_call: Region;
            let sent = match head.place {
                SentFrom::Kept(name) => memory.kept_by_other(name, length)?.as_ptr().cast_const(),
                SentFrom::Alone(name) => {
                    of_this_call = memory.map(name, length)?;
                    of_this_call.as_ptr().cast_const()
                }
                _ => self.beside_counts(from).ok_or_else(bad)?.as_ptr(),
            };
            let clean = if let Datatype::Builtin(dtype) = self.datatype { kernels::cleaning(dtype) } else { None };
            // SAFETY: L: the sender wrote it before it published the name, and no rank writes it before this one releases it or
            // ends the call; the region is mapped, and it or what lies beside the counts holds `at`, as was checked. `to` is as long, and
            // borrowed exclusively; bytes that are no value of the datatype are cleaned where there are such.
            unsafe {
                let source = sent.add(at.start * size);
                match clean {
                    Some(clean) => clean(to.as_mut_ptr(), source, at.len(), self.ranks),
                    None => kernels::copy(to.as_mut_ptr(), source, at.len() * size),
                }
            }
        }
        Ok(())
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
        self.gathered.begin(self.owned.as_buffers());
        Ok(())
    }

    fn end(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        let delivered = outcome.and_then(|()| self.gathered.deliver(self.owned.as_buffers()));
        self.gathered.end();
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
        self.end();
    }
}
