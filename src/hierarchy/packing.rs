//! The places of blocks in the buffers of leaders, which send and receive them where they lie: by node, inside a node in the order of
//! its ranks. Blocks that are neighbours are one place, so on nodes of consecutive ranks a node's blocks are one slice.

use super::topology::Topology;
use earlybird_hier::exec::SliceList;
use std::borrow::Cow;
use std::ops::Range;

/// Places in a buffer, in the order in which they are sent or received.
pub(super) type Places = Vec<Range<usize>>;

/// The places of these blocks.
fn places(blocks: impl Iterator<Item = Range<usize>>) -> Places {
    let mut places = Places::new();
    for block in blocks.filter(|block| !block.is_empty()) {
        match places.last_mut() {
            Some(last) if last.end == block.start => last.end = block.end,
            _ => places.push(block),
        }
    }
    places
}

/// The blocks of these lengths, which lie one after the other from `*end` on; `*end` becomes their end.
fn blocks(lens: impl Iterator<Item = usize>, end: &mut usize) -> Vec<Range<usize>> {
    let block = |len| {
        let first = *end;
        *end += len;
        first..*end
    };
    lens.map(block).collect()
}

/// The bytes at these places, to be sent.
pub(super) fn slices<'d>(buffer: &'d [u8], places: &Places) -> SliceList<&'d [u8]> {
    places.iter().map(|place| &buffer[place.clone()]).collect()
}

/// The bytes at these places, one after the other; a copy where they are several.
pub(super) fn joined<'d>(buffer: &'d [u8], places: &Places) -> Cow<'d, [u8]> {
    match places.as_slice() {
        [] => Cow::Borrowed(&[]),
        [place] => Cow::Borrowed(&buffer[place.clone()]),
        _ => Cow::Owned(places.iter().map(|place| &buffer[place.clone()]).collect::<Vec<_>>().concat()),
    }
}

/// Cuts a buffer at these places, by node, of which none overlap.
pub(super) fn cut<'d>(buffer: &'d mut [u8], by_node: &[Places]) -> Vec<Vec<&'d mut [u8]>> {
    let mut cut: Vec<Vec<&mut [u8]>> =
        by_node.iter().map(|places| places.iter().map(|_| Default::default()).collect()).collect();
    let numbered = |(node, places): (usize, &'_ Places)| (0..places.len()).map(move |number| (node, number));
    let mut ascending: Vec<(usize, usize)> = by_node.iter().enumerate().flat_map(numbered).collect();
    ascending.sort_unstable_by_key(|&(node, number)| by_node[node][number].start);
    let (mut rest, mut done) = (buffer, 0);
    for (node, number) in ascending {
        let place = &by_node[node][number];
        let (before, after) = rest.split_at_mut(place.end - done);
        cut[node][number] = &mut before[place.start - done..];
        (rest, done) = (after, place.end);
    }
    cut
}

impl Topology {
    /// The places of each node's blocks, by node, where the blocks of all ranks lie one after the other.
    pub(super) fn places(&self, lens: &[usize]) -> Vec<Places> {
        let blocks = blocks(lens.iter().copied(), &mut 0);
        let of_node = |node| places(self.members(node).iter().map(|rank| blocks[*rank].clone()));
        (0..self.nodes()).map(of_node).collect()
    }

    /// The lengths of the blocks of this node's ranks.
    pub(super) fn local_lens(&self, lens: &[usize]) -> Vec<usize> {
        self.here().iter().map(|&rank| lens[rank]).collect()
    }
}

/// The counts of an alltoall of a node's ranks, on their leader.
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

    /// The blocks of these counts, of which each row is a rank of the node, where the rows lie one after the other.
    fn blocks(&self, rows: &[Vec<usize>]) -> Vec<Vec<Range<usize>>> {
        let mut end = 0;
        rows.iter().map(|row| blocks(row.iter().map(|count| count * self.element_bytes), &mut end)).collect()
    }

    /// The places of the bytes for each node in the send buffers of this node's ranks: by receiver there, then by sender here.
    pub(super) fn sent(&self) -> Vec<Places> {
        let rows = self.blocks(&self.send);
        let blocks = |node| self.topology.members(node).iter().flat_map(|to| rows.iter().map(|row| row[*to].clone()));
        (0..self.topology.nodes()).map(|node| places(blocks(node))).collect()
    }

    /// The places of the bytes from each node in the receive buffers of this node's ranks: by receiver here, then by sender there, so
    /// that the blocks from consecutive ranks are one place.
    pub(super) fn received(&self) -> Vec<Places> {
        let rows = self.blocks(&self.recv);
        let blocks =
            |node| rows.iter().flat_map(move |row| self.topology.members(node).iter().map(|from| row[*from].clone()));
        (0..self.topology.nodes()).map(|node| places(blocks(node))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(places: &[Places]) -> Vec<Vec<[usize; 2]>> {
        let of_node = |places: &Places| places.iter().map(|place| [place.start, place.end]).collect();
        places.iter().map(of_node).collect()
    }

    #[test]
    fn neighbours_are_one_place_and_come_back_to_it() {
        let topology = Topology::new(vec![vec![1, 2], vec![0], vec![4, 3]], 0).unwrap();
        let (mut all, lens) = ([10, 20, 21, 30, 40, 50], [1, 2, 1, 1, 1]);
        let places = topology.places(&lens);
        assert_eq!(ends(&places), [vec![[1, 4]], vec![[0, 1]], vec![[5, 6], [4, 5]]]);
        assert_eq!(
            [0, 1, 2].map(|node| joined(&all, &places[node]).into_owned()),
            [&[20, 21, 30][..], &[10], &[50, 40]]
        );
        for (node, slices) in cut(&mut all, &places).into_iter().enumerate() {
            let bytes: usize = places[node].iter().map(|place| place.len()).sum();
            slices.into_iter().collect::<SliceList<_>>().write(&vec![node as u8; bytes]);
        }
        assert_eq!(all, [1, 0, 0, 0, 2, 2]);
        assert_eq!(ends(&topology.places(&[0, 3, 0, 0, 1])), [vec![[0, 3]], vec![], vec![[3, 4]]]);
    }

    #[test]
    fn a_rank_alone_sends_and_receives_a_slice_per_node() {
        let topology = Topology::new(vec![vec![1, 2], vec![0]], 0).unwrap();
        for block in [0, 1, 3] {
            let pairs = PairTable::uniform(&topology, block);
            let places = [block..3 * block, 0..block].map(|place| if block == 0 { vec![] } else { vec![place] });
            assert_eq!((pairs.sent(), pairs.received()), (places.to_vec(), places.to_vec()));
        }
    }
}
