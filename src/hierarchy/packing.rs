//! The layout of what leaders exchange: blocks by node, inside a node in the order of its ranks.

use super::topology::Topology;
use std::ops::Range;

/// The block of `rank` where all blocks lie one after the other.
pub(super) fn part_of(lens: &[usize], rank: usize) -> Range<usize> {
    let first = lens[..rank].iter().sum();
    first..first + lens[rank]
}

impl Topology {
    /// The blocks of a node's ranks out of all blocks.
    pub(super) fn pick(&self, all: &[u8], lens: &[usize], node: usize) -> Vec<u8> {
        let parts = self.members(node).iter().map(|&rank| &all[part_of(lens, rank)]);
        parts.flatten().copied().collect()
    }

    /// Copies the blocks of a node's ranks to their places among all blocks.
    pub(super) fn put(&self, all: &mut [u8], lens: &[usize], node: usize, mut blocks: &[u8]) {
        for &rank in self.members(node) {
            let (block, rest) = blocks.split_at(lens[rank]);
            all[part_of(lens, rank)].copy_from_slice(block);
            blocks = rest;
        }
    }

    /// The send buffers of this node's ranks, each with a block for every rank, as parts for each node: by sender here, then by
    /// receiver there.
    pub(super) fn pack_pairs(&self, sent: &[u8], block: usize) -> Vec<Vec<u8>> {
        let (ranks, senders) = (self.size(), self.here().len());
        let to = |node: usize| {
            let pairs = (0..senders).flat_map(|a| self.members(node).iter().map(move |&c| (a, c)));
            pairs.flat_map(|(a, c)| &sent[(a * ranks + c) * block..][..block]).copied().collect()
        };
        (0..self.nodes()).map(to).collect()
    }

    /// The receive buffers of this node's ranks, each with a block of every rank, from the parts of all nodes.
    pub(super) fn unpack_pairs(&self, rooms: &[Vec<u8>], block: usize) -> Vec<u8> {
        let (ranks, here) = (self.size(), self.here().len());
        let mut received = vec![0; here * ranks * block];
        for (node, room) in rooms.iter().enumerate() {
            for (a, &sender) in self.members(node).iter().enumerate() {
                for c in 0..here {
                    let from = &room[(a * here + c) * block..][..block];
                    received[(c * ranks + sender) * block..][..block].copy_from_slice(from);
                }
            }
        }
        received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_to_its_place() {
        let topology = Topology::new(vec![vec![1, 2], vec![0]], 0).unwrap();
        let (all, lens) = ([10, 20, 21, 30], [1, 2, 1]);
        assert_eq!(topology.pick(&all, &lens, 0), [20, 21, 30]);
        let mut back = [0; 4];
        topology.put(&mut back, &lens, 0, &[20, 21, 30]);
        topology.put(&mut back, &lens, 1, &[10]);
        assert_eq!(back, all);
        // Rank 0, alone on its node, sends a block to each rank and receives one from each.
        assert_eq!(topology.pack_pairs(&[7, 8, 9], 1), [vec![8, 9], vec![7]]);
        assert_eq!(topology.unpack_pairs(&[vec![8, 9], vec![7]], 1), [7, 8, 9]);
    }
}
