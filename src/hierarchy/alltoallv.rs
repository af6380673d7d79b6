//! The alltoallv over several nodes. Each rank knows its own counts only, so they are compared first, and every rank learns of the
//! same difference before any data leaves a node.
//!
//! ```text
//! in the node      counts to the leader            difference, totals   data to the leader         data to the ranks
//! between leaders            counts to their nodes, differences to all                 parts to their nodes
//! ```

use super::operation::{Buf, Bytes, NodePhase, Operation};
use super::packing::PairTable;
use super::phases::Phases;
use super::topology::Topology;
use crate::Error;
use bytemuck::{cast_slice, cast_slice_mut};
use earlybird_hier::exec::Parts;
use earlybird_shm::Collective;
use std::borrow::Cow;

/// The first pair of ranks whose counts differ: one more than the receiver, the sender, the sender's count, the receiver's count.
/// Zeros where there is none.
type Difference = [u64; 4];

/// The words that a leader broadcasts to its node: the difference, then the elements that each rank of the node sends in all, and
/// those that each receives.
fn broadcast_words(topology: &Topology) -> usize {
    size_of::<Difference>() / size_of::<u64>() + 2 * topology.here().len()
}

/// The difference in the words of the leader as every rank's error.
fn error_of(words: &[u64]) -> Option<Error> {
    let [to, from, sent, expected] = *words.first_chunk::<4>()?;
    let to = to.checked_sub(1)?;
    let [from, to, sent, expected] = [from, to, sent, expected].map(|word| word as usize);
    Some(Error::counts_differ("alltoall", [from, to], sent, expected))
}

/// The bytes that each rank of the node sends in all, and those that each receives, by the words of the leader.
fn totals(words: &[u64], element_bytes: usize) -> (Vec<usize>, Vec<usize>) {
    let (sent, received) = words[4..].split_at((words.len() - 4) / 2);
    let bytes = |counts: &[u64]| counts.iter().map(|count| *count as usize * element_bytes).collect();
    (bytes(sent), bytes(received))
}

/// The difference that is reported, of those that the leaders have found: that of the first receiver.
fn first_of(differences: &[Vec<u64>]) -> Difference {
    let found = differences.iter().filter_map(|difference| difference.first_chunk::<4>());
    found.filter(|difference| difference[0] != 0).min_by_key(|difference| difference[0]).copied().unwrap_or_default()
}

impl<'a> PairTable<'a> {
    /// The table of the counts that the ranks of the node have sent to their leader.
    fn new(topology: &'a Topology, words: &[u64], element_bytes: usize) -> Self {
        let half = |second: usize| {
            let rows = words.chunks(topology.size()).skip(second).step_by(2);
            rows.map(|row| row.iter().map(|word| *word as usize).collect()).collect()
        };
        PairTable { topology, send: half(0), recv: half(1), element_bytes }
    }

    /// The counts of this node's ranks for those of each node: by sender, then by receiver.
    fn send_counts(&self) -> Vec<Vec<u64>> {
        let to = |node: usize| {
            let pairs = self.send.iter().flat_map(|row| self.topology.members(node).iter().map(|to| row[*to]));
            pairs.map(|count| count as u64).collect()
        };
        (0..self.topology.nodes()).map(to).collect()
    }

    /// Room for the counts of every node's ranks for this one's.
    fn room_for_counts(&self) -> Vec<Vec<u64>> {
        let senders = (0..self.topology.nodes()).map(|node| self.topology.members(node).len());
        senders.map(|senders| vec![0; senders * self.recv.len()]).collect()
    }

    /// The difference at the first of this node's ranks that expects another count than its sender has, by the counts of all nodes.
    fn compare(&self, counts: &[Vec<u64>]) -> Difference {
        let here = self.topology.here();
        let of_receiver = |local: usize| {
            (0..self.topology.size()).find_map(|from| {
                let (node, sender) = self.topology.place(from);
                let (sent, expected) = (counts[node][sender * here.len() + local], self.recv[local][from] as u64);
                (sent != expected).then_some([here[local] as u64 + 1, from as u64, sent, expected])
            })
        };
        (0..here.len()).filter_map(of_receiver).min_by_key(|difference| difference[0]).unwrap_or_default()
    }

    /// The words that the leader broadcasts to its node once all leaders know the difference.
    fn words(&self, difference: Difference) -> Vec<u64> {
        let sums = self.send.iter().chain(&self.recv).map(|row| row.iter().sum::<usize>() as u64);
        difference.into_iter().chain(sums).collect()
    }
}

impl Phases<'_> {
    /// Copies the blocks of `send` to their ranks, and to `recv` the blocks that the ranks sent to this one. `counts` are the
    /// elements for each rank, then those from each. The inner error is a difference of counts, for which nothing was moved.
    pub(super) async fn all_to_all_of_pairs(
        &mut self,
        counts: &[u64],
        send: Bytes<'_>,
        recv: &mut Buf<'_>,
    ) -> Result<Result<(), Error>, Error> {
        let (topology, leads) = (self.topology, self.topology.leads());
        let element_bytes = self.call.lowering.datatype().size();
        let mut all = vec![0u64; if leads { counts.len() * topology.here().len() } else { 0 }];
        let (gather, own) = (Operation::moving(Collective::Gather, 0), Some(Cow::Borrowed(cast_slice(counts))));
        self.on_node(NodePhase::Collect, gather, own, &mut Buf::Borrowed(cast_slice_mut(&mut all))).await?;
        let mut words = vec![0u64; broadcast_words(topology)];
        let table = leads.then(|| PairTable::new(topology, &all, element_bytes));
        if let Some(table) = &table {
            let mut theirs = table.room_for_counts();
            self.exchange_words(&table.send_counts(), &mut theirs).await?;
            let ours = vec![table.compare(&theirs).to_vec(); topology.nodes()];
            let mut differences = ours.clone();
            self.exchange_words(&ours, &mut differences).await?;
            words = table.words(first_of(&differences));
        }
        let (broadcast, mut room) = (Operation::broadcast(0), Buf::Borrowed(cast_slice_mut(&mut words)));
        self.on_node(NodePhase::BeforeDelivery, broadcast, None, &mut room).await?;
        drop(room);
        if let Some(difference) = error_of(&words) {
            self.end_exchange();
            self.skip_delivery().await;
            return Ok(Err(difference));
        }
        let (sent, received) = totals(&words, element_bytes);
        let (gather, bytes, mut of_node) = (Operation::gather(0, &sent), sent.iter().sum(), Buf::default());
        let sent = self.collect(NodePhase::BeforeDelivery, gather, bytes, send, &mut of_node).await?;
        let mut room = self.room(received.iter().sum());
        if let Some(table) = &table {
            self.exchange_pairs(table, &sent, self.of_node(recv, &mut room)).await?;
        }
        self.deliver(Operation::scatter(&received), room, recv).await.map(Ok)
    }

    /// Between leaders: sends words to each node and receives those from there, of the own node a copy.
    async fn exchange_words(&mut self, ours: &[Vec<u64>], theirs: &mut [Vec<u64>]) -> Result<(), Error> {
        let me = self.topology.node();
        theirs[me].copy_from_slice(&ours[me]);
        let words = ours.iter().zip(theirs);
        let parts = words.map(|(ours, theirs)| Parts::new(cast_slice(ours), cast_slice_mut(theirs)));
        self.exchange(&mut parts.collect::<Vec<_>>(), false).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::packing::{cut, slices};
    use super::*;
    use earlybird_hier::exec::SliceList;

    /// Rank `from` has this many elements for rank `to`.
    fn count(from: usize, to: usize) -> usize {
        (from * 3 + to * 5) % 4
    }

    fn words(topology: &Topology, count: impl Fn(usize, usize) -> usize) -> Vec<u64> {
        let ranks = 0..topology.size();
        let row =
            |r: usize| ranks.clone().map(|to| count(r, to)).chain(ranks.clone().map(|from| count(from, r))).collect();
        topology.here().iter().flat_map(|&r| -> Vec<usize> { row(r) }).map(|n| n as u64).collect()
    }

    fn nodes() -> [Topology; 2] {
        [0, 2].map(|me| Topology::new(vec![vec![3, 0], vec![2, 1, 4]], me).unwrap())
    }

    #[test]
    fn every_block_of_every_pair_comes_to_its_place() {
        let nodes = nodes();
        let tables: Vec<PairTable<'_>> = nodes.iter().map(|t| PairTable::new(t, &words(t, count), 2)).collect();
        let block = |from: usize, to: usize| vec![(from * 16 + to) as u8; 2 * count(from, to)];
        let sent = nodes.each_ref().map(|topology| {
            topology.here().iter().flat_map(|&from| (0..5).flat_map(move |to| block(from, to))).collect::<Vec<u8>>()
        });
        for (me, (topology, table)) in nodes.iter().zip(&tables).enumerate() {
            let expected = topology.here().iter().flat_map(|&to| (0..5).flat_map(move |from| block(from, to)));
            let expected = expected.collect::<Vec<u8>>();
            let mut received = vec![0; expected.len()];
            for (node, received) in cut(&mut received, &table.received()).into_iter().enumerate() {
                let part = slices(&sent[node], &tables[node].sent()[me]);
                received.into_iter().collect::<SliceList<_>>().write_all(&part);
            }
            assert_eq!(received, expected);
        }
    }

    #[test]
    fn the_first_pair_that_differs_is_reported() {
        let nodes = nodes();
        let reported = |odd: &[(usize, usize)]| {
            // The senders of these pairs have one element more than their receivers think.
            let counts = nodes.iter().map(|t| {
                let more = |from: usize, to: usize| count(from, to) + usize::from(odd.contains(&(from, to)));
                PairTable::new(t, &words(t, more), 1).send_counts()
            });
            let counts: Vec<Vec<Vec<u64>>> = counts.collect();
            let differences = nodes.iter().enumerate().map(|(node, topology)| {
                let counts: Vec<Vec<u64>> = counts.iter().map(|of_node| of_node[node].clone()).collect();
                PairTable::new(topology, &words(topology, count), 1).compare(&counts).to_vec()
            });
            let first = first_of(&differences.collect::<Vec<_>>());
            error_of(&first).map(|error| error.to_string())
        };
        assert_eq!(reported(&[]), None);
        let text = reported(&[(4, 3), (1, 2), (3, 2)]).unwrap();
        let expected = (count(1, 2) + 1, count(1, 2));
        assert!(text.contains(&format!("gives {} elements to rank 2", expected.0)), "{text}");
        assert!(text.contains(&format!("expects {} elements of rank 1", expected.1)), "{text}");
    }
}
