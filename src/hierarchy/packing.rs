//! The layout of what leaders exchange: blocks by node, inside a node in the order of its ranks.

use super::topology::Topology;
use std::ops::Range;

/// The block of `rank` where all blocks lie one after the other.
fn part_of(lens: &[usize], rank: usize) -> Range<usize> {
    let first = lens[..rank].iter().sum();
    first..first + lens[rank]
}

impl Topology {
    /// The blocks of a node's ranks out of all blocks.
    pub(super) fn pick(&self, all: &[u8], lens: &[usize], node: usize) -> Vec<u8> {
        let parts: Vec<&[u8]> = self.members(node).iter().map(|&rank| &all[part_of(lens, rank)]).collect();
        parts.concat()
    }

    /// Copies the blocks of a node's ranks to their places among all blocks.
    pub(super) fn put(&self, all: &mut [u8], lens: &[usize], node: usize, mut blocks: &[u8]) {
        for &rank in self.members(node) {
            let (block, rest) = blocks.split_at(lens[rank]);
            all[part_of(lens, rank)].copy_from_slice(block);
            blocks = rest;
        }
    }

    /// The lengths of the blocks of this node's ranks.
    pub(super) fn local_lens(&self, lens: &[usize]) -> Vec<usize> {
        self.here().iter().map(|&rank| lens[rank]).collect()
    }
}

/// The counts of an alltoall of a node's ranks, on their leader, which packs their blocks for the other nodes.
pub(super) struct PairTable<'a> {
    pub(super) topology: &'a Topology,
    /// The elements for each rank, by rank of the node.
    pub(super) send: Vec<Vec<usize>>,
    /// The elements from each rank, by rank of the node.
    pub(super) recv: Vec<Vec<usize>>,
    pub(super) element_bytes: usize,
}

impl<'a> PairTable<'a> {
    /// The table of an alltoall in which every block has so many bytes.
    pub(super) fn uniform(topology: &'a Topology, block: usize) -> Self {
        let one_each = vec![vec![1; topology.size()]; topology.here().len()];
        PairTable { topology, send: one_each.clone(), recv: one_each, element_bytes: block }
    }

    /// The blocks of these counts where they lie one after the other, by rank.
    fn blocks(&self, counts: &[usize]) -> Vec<Range<usize>> {
        let mut end = 0;
        let block = |count: &usize| {
            let first = end;
            end += count * self.element_bytes;
            first..end
        };
        counts.iter().map(block).collect()
    }

    /// The send buffers of the node's ranks, which lie one after the other, as parts for each node: by sender here, then by
    /// receiver there.
    pub(super) fn pack(&self, mut sent: &[u8]) -> Vec<Vec<u8>> {
        let mut packed = vec![Vec::new(); self.topology.nodes()];
        for row in &self.send {
            let blocks = self.blocks(row);
            for (node, packed) in packed.iter_mut().enumerate() {
                for &to in self.topology.members(node) {
                    packed.extend_from_slice(&sent[blocks[to].clone()]);
                }
            }
            sent = &sent[blocks.last().map_or(0, |last| last.end)..];
        }
        packed
    }

    /// The bytes of the part from a node.
    pub(super) fn bytes_from(&self, node: usize) -> usize {
        let members = self.topology.members(node).iter();
        members.flat_map(|from| self.recv.iter().map(|row| row[*from])).sum::<usize>() * self.element_bytes
    }

    /// The receive buffers of the node's ranks, one after the other, from the parts of all nodes.
    pub(super) fn unpack(&self, parts: &[Vec<u8>]) -> Vec<u8> {
        let blocks: Vec<_> = self.recv.iter().map(|row| self.blocks(row)).collect();
        let bytes = |blocks: &Vec<Range<usize>>| blocks.last().map_or(0, |last| last.end);
        let mut received: Vec<Vec<u8>> = blocks.iter().map(|blocks| vec![0; bytes(blocks)]).collect();
        for (node, mut part) in parts.iter().map(Vec::as_slice).enumerate() {
            for &from in self.topology.members(node) {
                for (blocks, received) in blocks.iter().zip(&mut received) {
                    let (block, rest) = part.split_at(blocks[from].len());
                    part = rest;
                    received[blocks[from].clone()].copy_from_slice(block);
                }
            }
        }
        received.concat()
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
        for block in [0, 1, 3] {
            let bytes = |of: &[u8]| of.iter().flat_map(|byte| vec![*byte; block]).collect::<Vec<u8>>();
            let (pairs, parts) = (PairTable::uniform(&topology, block), [bytes(&[8, 9]), bytes(&[7])]);
            assert_eq!(pairs.pack(&bytes(&[7, 8, 9])), parts);
            assert_eq!([0, 1].map(|node| pairs.bytes_from(node)), [2 * block, block]);
            assert_eq!(pairs.unpack(&parts), bytes(&[7, 8, 9]));
        }
    }
}
