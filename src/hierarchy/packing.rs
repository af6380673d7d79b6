//! Where parts lie in what leaders exchange: by node, inside a node by the order of its ranks.

use super::topology::Topology;
use std::ops::Range;

/// Where the part of `rank` lies if all parts lie one after the other.
pub(super) fn part_of(lens: &[usize], rank: usize) -> Range<usize> {
    let first = lens[..rank].iter().sum();
    first..first + lens[rank]
}

impl Topology {
    /// The parts of a node's ranks out of everybody's.
    pub(super) fn pick(&self, all: &[u8], lens: &[usize], node: usize) -> Vec<u8> {
        let parts = self.members(node).iter().map(|&rank| &all[part_of(lens, rank)]);
        parts.flatten().copied().collect()
    }

    /// Puts the parts of a node's ranks to their places among everybody's.
    pub(super) fn put(&self, all: &mut [u8], lens: &[usize], node: usize, mut given: &[u8]) {
        for &rank in self.members(node) {
            let (part, rest) = given.split_at(lens[rank]);
            all[part_of(lens, rank)].copy_from_slice(part);
            given = rest;
        }
    }

    /// Of what the ranks of this node send, a vector with a block for every rank each, what goes to each node: by sender here,
    /// then by receiver there.
    pub(super) fn pack_pairs(&self, given: &[u8], block: usize) -> Vec<Vec<u8>> {
        let (ranks, senders) = (self.size(), self.here().len());
        let to = |node: usize| {
            let pairs = (0..senders).flat_map(|a| self.members(node).iter().map(move |&c| (a, c)));
            pairs.flat_map(|(a, c)| &given[(a * ranks + c) * block..][..block]).copied().collect()
        };
        (0..self.nodes()).map(to).collect()
    }

    /// The other way round: what each node sent becomes a vector with a block of every rank for each rank of this node.
    pub(super) fn unpack_pairs(&self, rooms: &[Vec<u8>], block: usize) -> Vec<u8> {
        let (ranks, here) = (self.size(), self.here().len());
        let mut got = vec![0; here * ranks * block];
        for (node, room) in rooms.iter().enumerate() {
            for (a, &sender) in self.members(node).iter().enumerate() {
                for c in 0..here {
                    let from = &room[(a * here + c) * block..][..block];
                    got[(c * ranks + sender) * block..][..block].copy_from_slice(from);
                }
            }
        }
        got
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
        // Rank 0, alone on its node, sends and gets a block for and from each rank.
        assert_eq!(topology.pack_pairs(&[7, 8, 9], 1), [vec![8, 9], vec![7]]);
        assert_eq!(topology.unpack_pairs(&[vec![8, 9], vec![7]], 1), [7, 8, 9]);
    }
}
