//! A region: the part of the arena that one group works in, mapped in this process while its handle lives.
//!
//! Every raw pointer into the arena comes from here, and every length is checked here before it becomes a pointer.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::io::Errno;

use super::arena::{Arena, arena_full};
use crate::Error;

/// A mapped part of the arena, or private memory for a group of one.
///
/// Other processes write to it at any time: access it through atomics, or under a protocol that excludes races.
/// Touching a part that was not [reserved](Region::reserve) takes memory too, but without being refused in time.
#[derive(Debug)]
pub struct Region {
    /// The arena and the region's first byte in it. `None` for private memory.
    home: Option<(Arc<Arena>, usize)>,
    map: MmapRaw,
    /// Page ranges that this process knows to be reserved, ascending and disjoint.
    reserved: Mutex<Vec<Range<usize>>>,
}

impl Region {
    /// Maps `bytes` bytes of the arena from byte `start`, a multiple of the page. Takes no memory.
    pub(super) fn of(arena: &Arc<Arena>, start: usize, bytes: usize) -> Result<Region, Error> {
        if start.checked_add(bytes).is_none_or(|end| end > arena.len()) {
            return Err(outside(&(start..start.saturating_add(bytes)), arena.len()));
        }
        let mut options = MmapOptions::new();
        let map = options.offset(start as u64).len(bytes).no_reserve_swap().map_raw(&arena.checked_fd()?).map_err(|e| {
            Error::system(
                format!(
                    "mapping {bytes} bytes of address space for the arena (see ulimit -v; EARLYBIRD_ARENA_MAX sets it)"
                ),
                e,
            )
        })?;
        // The number is still the arena's, so it was when it was mapped.
        arena.checked_fd()?;
        Ok(Region { home: Some((arena.clone(), start)), map, reserved: Mutex::default() })
    }

    /// Memory of this process alone, for a group of one, which shares nothing. Takes no memory until it is touched.
    ///
    /// # Errors
    /// [`Error::System`] when the address space is used up.
    pub fn private(bytes: usize) -> Result<Region, Error> {
        let map = MmapOptions::new().len(bytes).no_reserve_swap().map_anon();
        let map = map.map_err(|e| Error::system(format!("mapping {bytes} bytes of address space"), e))?;
        Ok(Region { home: None, map: map.into(), reserved: Mutex::default() })
    }

    /// Start of the region, page-aligned, [`Region::len`] bytes, mapped until it is dropped.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Bytes of the region's address range.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Word `index` of the region.
    ///
    /// # Panics
    /// If the region has no such word.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.len() / 8, "word {index} of {} bytes", self.len());
        // SAFETY: inside the mapping by the check, aligned since a mapping is, mapped as long as the borrow of `self`
        // lives, and touched as an atomic only.
        unsafe { AtomicU64::from_ptr(self.as_ptr().cast::<u64>().add(index)) }
    }

    /// `range` widened to whole pages, or an error when it is not inside the region.
    fn pages(&self, range: &Range<usize>) -> Result<Range<usize>, Error> {
        if range.start > range.end || range.end > self.len() {
            return Err(outside(range, self.len()));
        }
        let page = rustix::param::page_size();
        Ok(range.start / page * page..range.end.next_multiple_of(page).min(self.len()))
    }

    /// Takes memory for a byte range, in whole pages, and makes it present and writable, so that no later access fails or causes a
    /// page fault. Contents stay. Pages that this process reserved before cost nothing.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the node or a control group has not enough memory left; [`Error::Usage`] for a range
    /// outside the region.
    pub fn reserve(&self, bytes: Range<usize>) -> Result<(), Error> {
        let range = self.pages(&bytes)?;
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let gaps = missing(&reserved, &range);
        if gaps.is_empty() {
            return Ok(());
        }
        if let Some((arena, start)) = &self.home {
            let there: Vec<_> = gaps.iter().map(|gap| start + gap.start..start + gap.end).collect();
            arena.check_room(&there)?;
        }
        for gap in gaps {
            self.take(&gap)?;
            insert(&mut reserved, gap);
        }
        Ok(())
    }

    /// Makes pages present and writable that another rank has reserved, so that no page fault comes later.
    ///
    /// # Errors
    /// [`Error::Usage`] for a range outside the region.
    pub fn populate(&self, bytes: Range<usize>) -> Result<(), Error> {
        let range = self.pages(&bytes)?;
        if !range.is_empty() && !self.advise(&range)? {
            self.touch(range);
        }
        Ok(())
    }

    /// Takes memory for whole pages by the mapping alone, since the program may close the descriptor at any time and another file
    /// may have its number then.
    fn take(&self, pages: &Range<usize>) -> Result<(), Error> {
        if self.advise(pages)? {
            return Ok(());
        }
        if let Some((arena, start)) = &self.home {
            arena.reserve(start + pages.start..start + pages.end)?;
        }
        self.touch(pages.clone());
        Ok(())
    }

    fn advise(&self, range: &Range<usize>) -> Result<bool, Error> {
        populate(&self.map, range).map_err(|errno| match errno {
            Errno::NOMEM | Errno::FAULT => arena_full(range.len() as u64),
            errno => Error::system(format!("populating {} bytes of the arena", range.len()), errno),
        })
    }

    /// Returns the memory of the whole region to the system; it reads as zero from then on, in every process. By the mapping, as
    /// [`Region::reserve`].
    ///
    /// # Errors
    /// [`Error::System`] when the system refuses.
    pub(super) fn give_back(&self) -> Result<(), Error> {
        // A program may lock its memory, future mappings too (`mlockall`), and what is locked is not removed.
        let _ = self.map.unlock();
        // SAFETY: the arena's mappings are shared, and what is in them changes at any time by other processes too; nothing here is
        // unmapped.
        let removed = unsafe { self.map.unchecked_advise(UncheckedAdvice::Remove) };
        removed.map_err(|e| Error::system(format!("giving back {} bytes of the arena", self.len()), e))
    }

    /// Replaces the mapping by private memory of zeros at the same addresses. This process does not see later writes to the
    /// shared memory.
    ///
    /// # Errors
    /// [`Error::System`] when the system refuses.
    pub(super) fn make_private(&mut self) -> Result<(), Error> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: exactly the range of this mapping, which this handle owns and borrows exclusively here; it stays mapped
        // throughout, and the owner of the map unmaps the same range later.
        let mapped = unsafe { mmap_anonymous(self.as_ptr().cast(), self.len(), access, flags) };
        mapped.map(drop).map_err(|e| Error::system(format!("making {} bytes private", self.len()), e))
    }

    fn touch(&self, range: Range<usize>) {
        for offset in range.step_by(rustix::param::page_size()) {
            // SAFETY: `offset` is inside the mapping (the range came from `pages`), which cannot shrink (sealed), and
            // bytes shared with other processes are only ever touched as atomics here.
            unsafe { AtomicU8::from_ptr(self.map.as_mut_ptr().add(offset)) }.fetch_or(0, Ordering::Relaxed);
        }
    }
}

/// Has the kernel make pages of a mapping present and writable (`MADV_POPULATE_WRITE`): it takes memory as write faults do, but
/// returns an error where they would kill the process. False where the kernel does not know how (before 5.14).
pub(super) fn populate(map: &MmapRaw, range: &Range<usize>) -> Result<bool, Errno> {
    loop {
        let Err(error) = map.advise_range(Advice::PopulateWrite, range.start, range.len()) else { return Ok(true) };
        match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
            Errno::INTR | Errno::AGAIN => {}
            Errno::INVAL => return Ok(false),
            errno => return Err(errno),
        }
    }
}

fn outside(range: &Range<usize>, len: usize) -> Error {
    Error::usage(format!("the byte range {}..{} is not inside the arena of {len} bytes", range.start, range.end))
}

/// The parts of `range` that no element of `known` (ascending, disjoint) covers.
fn missing(known: &[Range<usize>], range: &Range<usize>) -> Vec<Range<usize>> {
    let mut gaps = Vec::new();
    let mut at = range.start;
    for part in known.iter().filter(|part| part.end > range.start && part.start < range.end) {
        if part.start > at {
            gaps.push(at..part.start);
        }
        at = at.max(part.end);
    }
    if at < range.end {
        gaps.push(at..range.end);
    }
    gaps
}

/// Adds a range to an ascending, disjoint list, joining neighbours.
fn insert(known: &mut Vec<Range<usize>>, range: Range<usize>) {
    known.push(range);
    known.sort_by_key(|part| part.start);
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(known.len());
    for part in known.drain(..) {
        match joined.last_mut() {
            Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
            _ => joined.push(part),
        }
    }
    *known = joined;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, FromRawFd};

    fn region(bytes: usize) -> Region {
        let arena = Arc::new(Arena::create(bytes + 8192).unwrap());
        Region::of(&arena, 8192, bytes).unwrap()
    }

    fn taken(region: &Region) -> u64 {
        region.home.as_ref().unwrap().0.taken_bytes()
    }

    #[test]
    fn reserved_ranges_join_and_leave_gaps() {
        let mut known = Vec::new();
        assert_eq!(missing(&known, &(0..10)), vec![0..10]);
        insert(&mut known, 4..6);
        insert(&mut known, 8..9);
        assert_eq!(missing(&known, &(0..10)), vec![0..4, 6..8, 9..10]);
        assert!(missing(&known, &(4..6)).is_empty());
        assert_eq!(missing(&known, &(5..9)), vec![6..8]);
        insert(&mut known, 6..8);
        assert_eq!(known, vec![4..9]);
    }

    #[test]
    fn reserving_takes_memory_and_touching_keeps_contents() {
        let region = region(1 << 20);
        assert_eq!(taken(&region), 0);
        region.reserve(5000..9000).unwrap();
        assert_eq!(taken(&region), 8192);
        region.reserve(4096..12288).unwrap();
        assert_eq!(taken(&region), 8192);
        region.populate(0..20000).unwrap();
        let arena = &region.home.as_ref().unwrap().0;
        assert_eq!(arena.filled(&(0..arena.len())), 20480);
        assert_eq!(arena.filled(&(0..8192)), 0, "the region begins after what belongs to others");
        region.word(4096 / 8).store(7, Ordering::Relaxed);
        region.touch(0..20480);
        assert_eq!(region.word(4096 / 8).load(Ordering::Relaxed), 7);
        assert_eq!(region.reserve(0..(1 << 20) + 1).unwrap_err().code(), "EB_USAGE");
        assert_eq!(region.populate(0..(1 << 20) + 1).unwrap_err().code(), "EB_USAGE");
    }

    #[test]
    fn a_region_outside_the_arena_is_refused() {
        let arena = Arc::new(Arena::create(8192).unwrap());
        for (start, bytes) in [(4096, 8192), (12288, 4096), (usize::MAX - 4095, 4096)] {
            assert_eq!(Region::of(&arena, start, bytes).unwrap_err().code(), "EB_USAGE");
        }
    }

    #[test]
    #[should_panic(expected = "word 512 of 4096 bytes")]
    fn a_word_outside_the_region_is_refused() {
        region(4096).word(512);
    }

    #[test]
    fn an_absurd_reservation_is_refused_and_takes_nothing() {
        let region = region(1 << 45);
        match region.reserve(0..1 << 45).unwrap_err() {
            Error::NoSpace { needed, free, hint } => {
                assert_eq!(needed, 1 << 45);
                assert!(free > 0 && free < needed);
                assert!(hint.contains("EARLYBIRD_ARENA_MAX"));
            }
            other => panic!("{other}"),
        }
        assert_eq!(taken(&region), 0);
    }

    /// The program has closed the descriptor, and another file has its number.
    #[test]
    fn what_is_mapped_can_be_reserved_without_the_descriptor() {
        let region = region(1 << 20);
        region.reserve(0..4096).unwrap();
        let arena = &region.home.as_ref().unwrap().0;
        let keep = arena.fd().try_clone_to_owned().unwrap();
        let other = rustix::fs::memfd_create("data", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        // SAFETY: both are open; the arena asks whose number it is before each use.
        unsafe { libc::dup2(other.as_raw_fd(), arena.fd().as_raw_fd()) };
        region.reserve(0..65536).unwrap();
        let taken = || rustix::fs::fstat(&keep).unwrap().st_blocks as u64 * 512;
        assert_eq!((taken(), rustix::fs::fstat(&other).unwrap().st_size), (65536, 0));
        assert_eq!(Region::of(arena, 0, 4096).unwrap_err().code(), "EB_SYSTEM");
        let number = arena.fd().as_raw_fd();
        drop(region);
        assert_eq!(taken(), 65536);
        // SAFETY: the arena has left the number open, since it is another file's; no other code closes it.
        drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(number) });
    }

    /// Another thread closes all descriptors, and a file of the program's takes the arena's number, at any moment of a reservation
    /// and of a return. They go on in the mapping or are refused; the file stays as it is.
    #[test]
    fn a_file_that_takes_the_number_meanwhile_is_left_alone() {
        let users = rustix::fs::memfd_create("users", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        for round in 0..2000 {
            rustix::io::pwrite(&users, &[7; 8192], 0).unwrap();
            let region = region(1 << 16);
            let arena = region.home.as_ref().unwrap().0.clone();
            let number = arena.fd().as_raw_fd();
            let began = AtomicU8::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while began.load(Ordering::Relaxed) == 0 {}
                    (0..round % 500).for_each(|_| std::hint::spin_loop());
                    // SAFETY: both are open; the arena asks whose number it is before each use.
                    unsafe { libc::dup2(users.as_raw_fd(), number) };
                });
                began.store(1, Ordering::Relaxed);
                (0..16).for_each(|page| region.reserve(page << 12..(page + 1) << 12).unwrap());
                let _ = Region::of(&arena, 0, 1 << 16).and_then(|region| region.give_back());
            });
            drop((region, arena));
            let mut bytes = [0; 8193];
            let read = rustix::io::pread(&users, &mut bytes, 0).unwrap();
            assert!(read == 8192 && bytes[..8192] == [7; 8192], "the file was changed or has grown, round {round}");
            // SAFETY: the arena has left the number open, since it is another file's; no other code closes it.
            drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(number) });
        }
    }

    #[test]
    fn what_is_given_back_takes_no_memory_and_is_zero() {
        let whole = region(1 << 20);
        whole.reserve(0..65536).unwrap();
        whole.word(512).store(7, Ordering::Relaxed);
        let (arena, start) = whole.home.as_ref().unwrap();
        let part = Region::of(arena, start + 4096, 65536 - 4096).unwrap();
        // As after `mlockall`.
        part.map.lock().unwrap();
        part.give_back().unwrap();
        assert_eq!((taken(&whole), whole.word(512).load(Ordering::Relaxed)), (4096, 0));
    }

    #[test]
    fn private_memory_needs_no_arena() {
        let region = Region::private(1 << 30).unwrap();
        region.reserve(0..8192).unwrap();
        region.word(3).store(5, Ordering::Relaxed);
        assert_eq!(region.word(3).load(Ordering::Relaxed), 5);
    }
}
