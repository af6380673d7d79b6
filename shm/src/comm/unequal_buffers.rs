//! The buffers of a started call of blocks whose lengths not all ranks know, and the rows that are sent and received in their place.
//!
//! A started call takes its operation numbers at the start, but how many operations a blocking call of this kind needs follows
//! from counts that no rank knows alone. So one exchange of rows is started, by which ranks tell each other their counts and what
//! they send; where that is more than a few words, a rank copies its send buffer into memory that all ranks of the group can map
//! (`send_memory.rs`), and its row has the name of that memory. A rank that has all rows compares the counts and copies its blocks
//! before it leaves the operation.
//!
//! ```text
//! before the rank enters the operation      send copied into shared memory, or into the row
//! when it has received all rows             counts compared | blocks copied out | memory of this call alone released
//! then it leaves the operation
//! ```
//!
//! Invariant **L (lent)**: named memory is written by its sender alone, before the operation that publishes the name. It does not
//! change before every rank that knows the name has released it, or all have left that operation; a rank does so after it has read. Names and
//! lengths received are checked before they are used.
#![allow(unsafe_code)]

use super::send_memory::SendMemory;
use super::unequal_row::{Head, RowLayout, SentFrom, Telling};
use crate::Error;
use crate::kernels;
use crate::memory::Region;
use crate::op::{DType, Datatype};
use crate::protocol::payload::Buffers;
use crate::protocol::request_buffers::{BufferOwner, OwnedBuffers};
use std::any::Any;
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The caller's buffers, and the rows in their place.
#[derive(Debug)]
pub(super) struct UnequalBuffers {
    owned: OwnedBuffers,
    rows: Rows,
    /// The outcome of the comparison of counts and of the copies, in this rank's last call.
    received: Result<(), Error>,
}

/// A rank and what it knows of its call.
#[derive(Debug)]
pub(super) struct OwnSide {
    pub(super) me: usize,
    /// The name of the collective.
    pub(super) name: &'static str,
    pub(super) datatype: Datatype,
    /// Elements for each rank, and expected of each.
    pub(super) sends: Vec<u64>,
    pub(super) expects: Vec<u64>,
}

/// The rows of a call.
#[derive(Debug)]
struct Rows {
    layout: RowLayout,
    side: OwnSide,
    /// The row of this rank; nothing where only the root tells.
    own: Vec<u64>,
    /// The rows that this rank receives; the root's, also on the root, where only that tells.
    all: Vec<u64>,
    memory: Arc<Mutex<SendMemory>>,
    timeout: Option<Duration>,
    /// True from the start of a call to the end of this rank's part in it.
    begun: bool,
}

impl UnequalBuffers {
    /// The buffers `owned` of a rank.
    pub(super) fn new(
        telling: Telling,
        side: OwnSide,
        owned: OwnedBuffers,
        memory: Arc<Mutex<SendMemory>>,
        timeout: Option<Duration>,
    ) -> Self {
        let layout = RowLayout::new(telling, side.sends.len());
        let words = layout.words();
        let (own, all) = match telling {
            Telling::All => (words, words * layout.ranks),
            Telling::ToRoot(root) if root == side.me => (words, words * layout.ranks),
            Telling::ToRoot(_) => (words, 0),
            Telling::ByRoot(_) => (0, words),
        };
        let mut rows = Rows { layout, side, own: vec![0; own], all: vec![0; all], memory, timeout, begun: false };
        rows.write_counts();
        UnequalBuffers { owned, rows, received: Ok(()) }
    }

    /// Converts them to the buffers of the exchange, and returns the number of words of a row.
    pub(super) fn into_words(self) -> (OwnedBuffers, usize) {
        let words = self.rows.layout.words();
        // SAFETY: words are sent and received.
        (unsafe { OwnedBuffers::new(Box::new(self), DType::U64.into()) }.following_operations(), words)
    }
}

impl Rows {
    fn own_row(&mut self) -> &mut [u64] {
        if let Telling::ByRoot(_) = self.layout.telling { &mut self.all } else { &mut self.own }
    }

    /// The row of a rank, which this one has received.
    fn row(&self, of: usize) -> &[u64] {
        let words = self.layout.words();
        let place = if let Telling::ByRoot(_) = self.layout.telling { 0 } else { of };
        &self.all[place * words..][..words]
    }

    /// The ranks whose rows this one receives.
    fn tellers(&self) -> Range<usize> {
        match self.layout.telling {
            Telling::ByRoot(root) => root..root + 1,
            Telling::ToRoot(root) if root != self.side.me => 0..0,
            Telling::All | Telling::ToRoot(_) => 0..self.layout.ranks,
        }
    }

    /// The counts that `from` sends, as its row says, and the place of the block for `to` among them.
    fn counts_sent(&self, from: usize, to: usize) -> (&[u64], usize) {
        let place = if let Telling::ToRoot(_) = self.layout.telling { 0 } else { to };
        (&self.row(from)[self.layout.sends()], place)
    }

    /// What `from` sends, if that lies in its row.
    fn in_row(&self, from: usize) -> Option<&[u8]> {
        let row = self.row(from);
        bytemuck::cast_slice(&row[self.layout.sent()]).get(..Head::of(row).bytes as usize)
    }

    fn memory(&self) -> MutexGuard<'_, SendMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the counts into the row of this rank, which are the same in every call.
    fn write_counts(&mut self) {
        let Rows { layout, side: OwnSide { me, sends, expects, .. }, own, all, .. } = self;
        if !layout.telling.is_done_by(*me) {
            return;
        }
        let row = if let Telling::ByRoot(_) = layout.telling { all } else { own };
        let counts = if let Telling::ToRoot(root) = layout.telling { &sends[root..=root] } else { sends };
        row[layout.sends()].copy_from_slice(counts);
        let expected = layout.expects();
        row[expected.clone()].copy_from_slice(&expects[..expected.len()]);
    }

    /// Copies what this rank sends into its row, or into shared memory, and writes the name of that memory, or the failure, into
    /// its row. Returns false where that has to wait for earlier operations.
    fn enter(&mut self, buffers: Buffers<'_>, operations: RangeInclusive<u64>, left_by_all: &dyn Fn() -> u64) -> bool {
        self.release(false);
        if !self.layout.telling.is_done_by(self.side.me) {
            self.begun = true;
            return true;
        }
        let (me, sent) = (self.side.me, self.layout.sent());
        let others = self.side.sends.iter().enumerate().any(|(to, count)| to != me && *count > 0);
        let (send, recv) = buffers.into_bytes();
        let send = if others { send.as_deref().unwrap_or(recv) } else { &[] };
        let place = match bytemuck::cast_slice_mut(&mut self.own_row()[sent]).get_mut(..send.len()) {
            Some(in_row) => {
                in_row.copy_from_slice(send);
                SentFrom::Row
            }
            None => match self.share(send, operations, left_by_all) {
                Some(place) => place,
                None => return false,
            },
        };
        let head = Head { place, bytes: send.len() as u64 };
        self.own_row()[..Head::WORDS].copy_from_slice(&head.to_words());
        self.begun = true;
        true
    }

    /// Copies what this rank sends in a call of these operations into shared memory, and returns its place. All who receive the
    /// row see a refusal, and release the memory. `None` where no kept memory is free and a rank has not left the operation before:
    /// memory of one call alone could be all that another rank lacks to end an earlier one.
    fn share(&self, send: &[u8], operations: RangeInclusive<u64>, left_by_all: &dyn Fn() -> u64) -> Option<SentFrom> {
        let mut memory = self.memory();
        if let Some((name, block)) = memory.keep(*operations.end(), left_by_all, send.len(), self.timeout) {
            // SAFETY: K: no rank reads what was sent from here before; the block is mapped and as long.
            unsafe { self.fill(block, send) };
            return Some(SentFrom::Kept(name));
        }
        (memory.look(left_by_all) + 1 >= *operations.start()).then(|| self.share_once(&mut memory, send))
    }

    /// Copies it into memory of this call alone.
    fn share_once(&self, memory: &mut SendMemory, send: &[u8]) -> SentFrom {
        let readers = match self.layout.telling {
            Telling::ToRoot(root) => Some([self.side.me, root]),
            Telling::All | Telling::ByRoot(_) => None,
        };
        let readers = readers.as_ref().map(<[usize; 2]>::as_slice);
        let name = match memory.allocate(send.len(), readers, self.timeout) {
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
        let size = self.side.datatype.size();
        let own = block(&self.side.sends, self.side.me, send.len() / size).unwrap_or(0..0);
        for part in [0..own.start * size, own.end * size..send.len()] {
            // SAFETY: the caller's, and the part lies inside `send`.
            unsafe { kernels::copy(memory.add(part.start), send[part.clone()].as_ptr(), part.len()) };
        }
    }

    /// Ends this rank's part in the call, of which it reads nothing any more: releases the memory of this call alone. That of others is known
    /// if their rows were `received`.
    fn release(&mut self, received: bool) {
        if !std::mem::take(&mut self.begun) {
            return;
        }
        let me = self.side.me;
        let tells = self.layout.telling.is_done_by(me);
        let own = if tells { Head::of(self.own_row()).released() } else { None };
        let others = self.tellers().filter(|rank| received && *rank != me);
        let memory = self.memory();
        others.filter_map(|rank| Head::of(self.row(rank)).released()).chain(own).for_each(|name| memory.release(name));
    }

    /// Compares the counts and copies this rank's blocks.
    fn receive(&mut self, buffers: Buffers<'_>) -> Result<(), Error> {
        self.compare()?;
        self.tellers().try_for_each(|rank| self.check_memory(rank, Head::of(self.row(rank))))?;
        match self.layout.telling {
            Telling::ToRoot(root) if root != self.side.me => self.check_memory(self.side.me, Head::of(&self.own)),
            _ => self.copy(buffers),
        }
    }

    /// Compares what ranks send with what is expected of them: what the rows of all ranks say, or what this rank expects.
    fn compare(&self) -> Result<(), Error> {
        let to = match self.layout.telling {
            Telling::All => 0..self.layout.ranks,
            Telling::ToRoot(_) | Telling::ByRoot(_) => self.side.me..self.side.me + 1,
        };
        for (from, to) in to.flat_map(|to| self.tellers().map(move |from| (from, to))) {
            let (counts, place) = self.counts_sent(from, to);
            let expects = match self.layout.telling {
                Telling::All => self.row(to)[self.layout.expects()][from],
                Telling::ToRoot(_) | Telling::ByRoot(_) => self.side.expects[from],
            };
            if counts[place] != expects {
                return Err(Error::counts_differ(self.side.name, [from, to], counts[place] as usize, expects as usize));
            }
        }
        Ok(())
    }

    /// Returns the error if `rank` had no memory for what it sends.
    fn check_memory(&self, rank: usize, head: Head) -> Result<(), Error> {
        let (Head { place, bytes }, name) = (head, self.side.name);
        match place {
            SentFrom::Row | SentFrom::Kept(_) | SentFrom::Alone(_) => Ok(()),
            SentFrom::NoSpace { free } => {
                let hint = format!(
                    "rank {rank} has no shared memory for what it sends in a non-blocking {name} of unequal blocks; make the blocking call, \
                     or set EARLYBIRD_ARENA_MAX higher"
                );
                Err(Error::NoSpace { needed: bytes, free, hint })
            }
            SentFrom::Refused { errno, .. } => {
                let context = format!(
                    "rank {rank} could not have the {bytes} bytes that it sends in a non-blocking {name} of unequal blocks; raise its \
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

    fn copy(&self, buffers: Buffers<'_>) -> Result<(), Error> {
        let OwnSide { me, name, datatype, sends, expects } = &self.side;
        let bad = || Error::Poisoned { cause: format!("counts of a {name} that cannot be") };
        let (size, me) = (datatype.size(), *me);
        let (send, recv) = buffers.into_bytes();
        let bytes = |block: Range<usize>| block.start * size..block.end * size;
        let own = block(sends, me, send.as_deref().unwrap_or(recv).len() / size).ok_or_else(bad)?;
        let to = block(expects, me, recv.len() / size).ok_or_else(bad)?;
        match &send {
            Some(send) => recv[bytes(to)].copy_from_slice(&send[bytes(own)]),
            // Others read what was sent in shared memory, so all of the buffer is free but for this block.
            None => recv.copy_within(bytes(own), to.start * size),
        }
        let mut memory = self.memory();
        for from in self.tellers().filter(|from| *from != me) {
            let to = block(expects, from, recv.len() / size).ok_or_else(bad)?;
            let to = &mut recv[bytes(to)];
            if to.is_empty() {
                continue;
            }
            let head = Head::of(self.row(from));
            let (counts, place) = self.counts_sent(from, me);
            // As long as `to`, since the counts were compared.
            let at = block(counts, place, head.bytes as usize / size).ok_or_else(bad)?;
            let length = head.bytes as usize;
            let of_this_call: Region;
            let sent = match head.place {
                SentFrom::Kept(name) => memory.kept_by_other(name, length)?.as_ptr().cast_const(),
                SentFrom::Alone(name) => {
                    of_this_call = memory.map(name, length)?;
                    of_this_call.as_ptr().cast_const()
                }
                _ => self.in_row(from).ok_or_else(bad)?.as_ptr(),
            };
            let clean = if let Datatype::Builtin(dtype) = datatype { kernels::cleaning(*dtype) } else { None };
            // SAFETY: L: the sender wrote it before it published the name, and no rank writes it before this one releases it or
            // leaves the operation; the region is mapped, and it or what lies in the row holds `at`, as was checked. `to` is as long, and
            // borrowed exclusively; bytes that are no value of the datatype are cleaned where there are such.
            unsafe {
                let source = sent.add(at.start * size);
                match clean {
                    Some(clean) => clean(to.as_mut_ptr(), source, at.len(), self.layout.ranks),
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

impl BufferOwner for UnequalBuffers {
    unsafe fn as_buffers(&mut self, _: Datatype) -> Buffers<'_> {
        let Rows { layout, own, all, .. } = &mut self.rows;
        if let Telling::ByRoot(_) = layout.telling { Buffers::in_place(all) } else { Buffers::apart(own, all) }
    }

    fn entering(&mut self, operations: RangeInclusive<u64>, left_by_all: &dyn Fn() -> u64) -> bool {
        self.rows.enter(self.owned.as_buffers(), operations, left_by_all)
    }

    fn leaving(&mut self) {
        self.received = self.rows.receive(self.owned.as_buffers());
        self.rows.release(true);
    }

    fn end(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        // Nothing to do for a call that was left.
        self.rows.release(false);
        outcome.and(std::mem::replace(&mut self.received, Ok(())))
    }

    fn owner(&mut self) -> &mut dyn Any {
        self.owned.owner_as_any()
    }

    fn into_owner(self: Box<Self>) -> Box<dyn Any + Send> {
        self.owned.into_owner_as_any()
    }
}

impl Drop for Rows {
    /// For a call that was started and never completed.
    fn drop(&mut self) {
        self.release(false);
    }
}
