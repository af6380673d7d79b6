//! Memory that is kept from call to call over several nodes: clearing and mapping new pages takes longer than moving the data through them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shorter vectors are allocated where they are needed: the allocator keeps their pages.
const FEWEST_BYTES: usize = 32 << 10;

/// The most bytes that are kept, in at most so many vectors.
const MOST_BYTES: usize = 32 << 20;
const MOST_VECTORS: usize = 8;

/// The vectors of one rank of a communicator: for what it moves on behalf of its node, and for the buffers of its started calls. Calls
/// take them and give them back at their end. At most [`MOST_BYTES`] are kept, those that were used last, until the communicator is
/// dropped; a longer vector is freed at the end of its call.
#[derive(Default)]
pub(super) struct Scratch {
    /// The vectors that no call has, those that were used last at the end.
    kept: Mutex<Vec<Vec<u8>>>,
}

impl Scratch {
    /// A vector of so many bytes, of any value.
    pub(super) fn vector(&self, bytes: usize) -> ScratchVector<'_> {
        if bytes < FEWEST_BYTES {
            return ScratchVector { vector: vec![0; bytes], bytes, scratch: self };
        }
        let mut vector = self.take_kept(bytes).unwrap_or_else(|| vec![0; bytes]);
        if vector.len() < bytes {
            // A started call has cut it.
            vector.resize(bytes, 0);
        }
        ScratchVector { vector, bytes, scratch: self }
    }

    /// A copy of these bytes, for [`Scratch::give_back`] when it is of no more use.
    pub(super) fn copy_of(&self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.take_kept(bytes.len().max(FEWEST_BYTES)).unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        copy
    }

    /// The shortest vector that is kept and has room for so many bytes.
    fn take_kept(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut kept = self.kept();
        let fitting = (0..kept.len()).filter(|&i| kept[i].capacity() >= bytes).min_by_key(|&i| kept[i].capacity());
        fitting.map(|i| kept.remove(i))
    }

    /// Keeps a vector, if it is neither short nor too long.
    pub(super) fn give_back(&self, vector: Vec<u8>) {
        if (FEWEST_BYTES..=MOST_BYTES).contains(&vector.capacity()) {
            let mut kept = self.kept();
            kept.push(vector);
            while kept.len() > MOST_VECTORS || kept.iter().map(Vec::capacity).sum::<usize>() > MOST_BYTES {
                kept.remove(0);
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scratch").field(&self.kept().iter().map(Vec::capacity).collect::<Vec<_>>()).finish()
    }
}

/// A vector of a [`Scratch`], which has it back when this is dropped.
pub(super) struct ScratchVector<'s> {
    vector: Vec<u8>,
    /// The bytes in use, the first ones.
    bytes: usize,
    scratch: &'s Scratch,
}

impl ScratchVector<'_> {
    /// The bytes, for [`ScratchVector::put`] to return them; without that they are kept no longer.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut vector = std::mem::take(&mut self.vector);
        vector.truncate(self.bytes);
        self.bytes = 0;
        vector
    }

    /// Replaces the bytes.
    pub(super) fn put(&mut self, vector: Vec<u8>) {
        self.bytes = vector.len();
        self.vector = vector;
    }
}

impl Deref for ScratchVector<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.vector[..self.bytes]
    }
}

impl DerefMut for ScratchVector<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.vector[..self.bytes]
    }
}

impl Drop for ScratchVector<'_> {
    fn drop(&mut self) {
        self.scratch.give_back(std::mem::take(&mut self.vector));
    }
}

impl fmt::Debug for ScratchVector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScratchVector").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(scratch: &Scratch) -> Vec<usize> {
        scratch.kept().iter().map(Vec::capacity).collect()
    }

    #[test]
    fn a_vector_comes_back_and_is_used_again() {
        let scratch = Scratch::default();
        let mut vector = scratch.vector(FEWEST_BYTES + 10);
        vector.fill(7);
        let address = vector.as_ptr();
        let other = scratch.vector(2 * FEWEST_BYTES);
        drop((vector, other));
        let (again, short) = (scratch.vector(FEWEST_BYTES + 5), scratch.vector(FEWEST_BYTES - 1));
        assert_eq!((again.len(), again.as_ptr(), short.len()), (FEWEST_BYTES + 5, address, FEWEST_BYTES - 1));
        drop((again, short));
        // A started call takes its bytes out, and puts them back.
        let mut vector = scratch.vector(FEWEST_BYTES);
        let bytes = vector.take();
        assert_eq!((bytes.len(), vector.len()), (FEWEST_BYTES, 0));
        vector.put(bytes);
        drop(vector);
        assert_eq!(scratch.vector(FEWEST_BYTES + 10).len(), FEWEST_BYTES + 10);
        assert_eq!(kept(&scratch).len(), 2);
        drop(scratch.vector(FEWEST_BYTES).take());
        assert_eq!(kept(&scratch).len(), 1, "one was not put back");
    }

    #[test]
    fn a_copy_takes_the_place_of_a_longer_vector() {
        let scratch = Scratch::default();
        let bytes = [3; FEWEST_BYTES + 1];
        let long = scratch.vector(2 * FEWEST_BYTES);
        let address = long.as_ptr();
        drop(long);
        let copy = scratch.copy_of(&bytes);
        assert_eq!((&copy[..], copy.as_ptr()), (&bytes[..], address));
        scratch.give_back(copy);
        let again = scratch.vector(2 * FEWEST_BYTES);
        assert_eq!((again.len(), again.as_ptr()), (2 * FEWEST_BYTES, address));
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let scratch = Scratch::default();
        drop(scratch.vector(MOST_BYTES + 1));
        assert!(kept(&scratch).is_empty());
        let half = [(); 3].map(|()| scratch.vector(MOST_BYTES / 2));
        drop(half);
        assert_eq!(kept(&scratch), [MOST_BYTES / 2; 2]);
        drop([(); 20].map(|()| scratch.vector(FEWEST_BYTES)));
        assert_eq!(kept(&scratch), [FEWEST_BYTES; MOST_VECTORS]);
    }
}
