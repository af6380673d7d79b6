//! Buffers that other ranks read where they lie, in private memory: the invariants are those of the payload (B, S).
#![allow(unsafe_code)]

use crate::protocol::board::Exposed;
use crate::protocol::call::Call;
use std::ops::Range;

impl Exposed {
    /// Writes it at `words`, a place with room for it.
    pub(in crate::protocol) fn write(self, words: *mut u8) {
        // SAFETY: S: the place is as long as an `Exposed`.
        unsafe { words.cast::<Self>().write_unaligned(self) }
    }

    /// Reads it at `words`, a place that holds one.
    pub(in crate::protocol) fn read(words: *const u8) -> Self {
        // SAFETY: S, as above; every bit pattern is valid.
        unsafe { words.cast::<Self>().read_unaligned() }
    }
}

impl Call<'_> {
    /// Bytes of this rank's contribution.
    pub(in crate::protocol) fn contribution_bytes(&self) -> usize {
        self.send_count * self.element_bytes
    }

    /// Returns whether what is received replaces what others read. A root that keeps its own block receives nothing.
    pub(in crate::protocol) fn replaces_contribution(&self) -> bool {
        let traits = self.prepared.collective.traits();
        traits.in_parts && !traits.has_root() && core::ptr::eq(self.send, self.recv)
    }

    /// This rank's contribution.
    pub(in crate::protocol) fn contribution(&self) -> &[u8] {
        // SAFETY: B; nothing is received in it, by `replaces_contribution`.
        unsafe { core::slice::from_raw_parts(self.send, self.contribution_bytes()) }
    }

    /// A copy of it in private memory.
    pub(in crate::protocol) fn copy_contribution<'s>(&self, copy: &'s mut [u64]) -> &'s [u8] {
        assert!(self.contribution_bytes() <= size_of_val(copy), "a copy of the contribution");
        // SAFETY: B, the check above; `copy` is borrowed exclusively and lives as long as what is returned.
        unsafe {
            core::ptr::copy_nonoverlapping(self.send, copy.as_mut_ptr().cast(), self.contribution_bytes());
            core::slice::from_raw_parts(copy.as_ptr().cast(), self.contribution_bytes())
        }
    }

    /// These elements of the contribution as they were copied.
    pub(in crate::protocol) fn restore_contribution(&self, copy: &[u64], elements: Range<usize>) {
        let [from, bytes] = [elements.start, elements.len()].map(|n| n * self.element_bytes);
        assert!(elements.end <= self.send_count && self.contribution_bytes() <= size_of_val(copy));
        assert!(core::ptr::eq(self.send, self.recv));
        // SAFETY: B: the receive buffer begins where the send buffer does, and both are as long; the checks above.
        unsafe { core::ptr::copy_nonoverlapping(copy.as_ptr().cast::<u8>().add(from), self.recv.add(from), bytes) }
    }

    /// Lets `fill` write the bytes of `result[to..]`, `len` elements.
    pub(in crate::protocol) fn receive<R>(&self, to: usize, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        // SAFETY: B by the check in `part`: nobody else uses the result while `fill` runs.
        fill(unsafe { core::slice::from_raw_parts_mut(self.part(to, len), len * self.element_bytes) })
    }
}

/// Copies a buffer to the place of a model that stands for it.
#[cfg(earlybird_loom)]
pub fn store(place: *mut u8, buffer: &[u8]) {
    assert!(buffer.len() <= crate::protocol::pieces::PIECE_BYTES, "a model exposes few bytes");
    // SAFETY: S: a modelled place holds that many bytes, and loom refuses the access if it is not ordered.
    unsafe { core::ptr::copy_nonoverlapping(buffer.as_ptr(), place, buffer.len()) }
}

/// Reads at a place of a model that stands for another rank's buffer.
#[cfg(earlybird_loom)]
pub fn load(place: *const u8, to: &mut [u8]) {
    // SAFETY: S, as above: what is read lies inside what was stored.
    unsafe { core::ptr::copy_nonoverlapping(place, to.as_mut_ptr(), to.len()) }
}
