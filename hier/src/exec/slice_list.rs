//! Lists of slices: bytes for another rank, or from it, lie in several places of a buffer, and are copied between those and packets
//! without a vector in between.

use std::ops::{Deref, Range};

/// Slices that are read or written as if they lay one after the other, from the first byte to the last, once.
#[derive(Debug)]
pub struct SliceList<S> {
    /// The first slice with bytes, mostly the only one, and the others: no memory is allocated for one.
    first: Option<S>,
    others: Vec<S>,
    bytes: usize,
    /// The number of the slice in which the next byte lies, and its place there.
    next: (usize, usize),
}

impl<S> Default for SliceList<S> {
    fn default() -> Self {
        SliceList { first: None, others: Vec::new(), bytes: 0, next: (0, 0) }
    }
}

impl<S: Deref<Target = [u8]>> FromIterator<S> for SliceList<S> {
    fn from_iter<I: IntoIterator<Item = S>>(slices: I) -> Self {
        let mut bytes = 0;
        let mut slices = slices.into_iter().filter(|slice| !slice.is_empty()).inspect(|slice| bytes += slice.len());
        let (first, others) = (slices.next(), slices.collect());
        SliceList { first, others, bytes, next: (0, 0) }
    }
}

impl<S: Deref<Target = [u8]>> From<S> for SliceList<S> {
    fn from(slice: S) -> Self {
        [slice].into_iter().collect()
    }
}

impl<S: Deref<Target = [u8]>> SliceList<S> {
    /// The bytes of all slices, read or written or not.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Calls `copy` for each stretch of the next `bytes` bytes that lies in one slice: with the slice, the stretch there, and the
    /// stretch among the `bytes`.
    fn advance(&mut self, bytes: usize, mut copy: impl FnMut(&mut S, Range<usize>, Range<usize>)) {
        let mut done = 0;
        while done < bytes {
            let (number, at) = self.next;
            let slice = match number.checked_sub(1) {
                None => self.first.as_mut().expect("bytes are left"),
                Some(other) => &mut self.others[other],
            };
            let length = slice.len();
            let end = length.min(at + bytes - done);
            copy(slice, at..end, done..done + end - at);
            done += end - at;
            self.next = if end == length { (number + 1, 0) } else { (number, end) };
        }
    }
}

impl SliceList<&[u8]> {
    /// Copies the next bytes to `room`, which is filled.
    ///
    /// # Panics
    /// When fewer bytes are left.
    pub fn read(&mut self, room: &mut [u8]) {
        self.advance(room.len(), |slice, from, to| room[to].copy_from_slice(&slice[from]));
    }
}

impl SliceList<&mut [u8]> {
    /// Copies `bytes` to the next places.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn write(&mut self, bytes: &[u8]) {
        self.advance(bytes.len(), |slice, to, from| slice[to].copy_from_slice(&bytes[from]));
    }

    /// Copies all bytes of `from`, of which there are as many.
    ///
    /// # Panics
    /// When there are more.
    pub fn write_all(&mut self, from: &SliceList<&[u8]>) {
        from.first.iter().chain(&from.others).for_each(|slice| self.write(slice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_their_order_across_slices_and_packets() {
        let sent: [&[u8]; 5] = [&[1, 2, 3], &[], &[4], &[5, 6], &[]];
        for packet in 1..=6 {
            let mut list: SliceList<&[u8]> = sent.into_iter().collect();
            let (mut a, mut b, mut c) = ([0; 2], [0; 0], [0; 4]);
            let mut received: SliceList<&mut [u8]> = [&mut a[..], &mut b, &mut c].into_iter().collect();
            assert_eq!((list.bytes(), received.bytes()), (6, 6));
            for first in (0..6).step_by(packet) {
                let mut room = vec![0; packet.min(6 - first)];
                list.read(&mut room);
                received.write(&room);
            }
            assert_eq!((a, c), ([1, 2], [3, 4, 5, 6]), "{packet}");
        }
        let mut copy = [0; 6];
        SliceList::from(&mut copy[..]).write_all(&sent.into_iter().collect());
        assert_eq!(copy, [1, 2, 3, 4, 5, 6]);
    }
}
