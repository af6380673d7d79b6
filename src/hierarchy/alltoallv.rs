//! The alltoall of blocks that differ for every pair of ranks, over several nodes. Each rank knows its own counts only, so
//! they are compared first, and every rank learns the same of what differs before any data leave a node.
//!
//! ```text
//! in the node      counts to the leader            verdict, totals   data to the leader         data to the ranks
//! between leaders            counts to their nodes, verdicts to all                 parts to their nodes
//! ```

use super::moves::{deal, parts_of};
use super::operation::{Buf, Operation, When};
use super::packing::part_of;
use super::phases::Phases;
use super::topology::Topology;
use crate::Error;
use bytemuck::{cast_slice, cast_slice_mut};
use earlybird_hier::exec::Parts;
use earlybird_shm::Collective;
use std::borrow::Cow;

/// The first pair whose counts differ: one more than the receiver, the sender, what that gives, what is expected. Zeros where
/// there is none.
type Verdict = [u64; 4];

/// The words that a leader tells its node: the verdict, what each rank of the node gives in all, what each gets.
fn told_words(topology: &Topology) -> usize {
    size_of::<Verdict>() / size_of::<u64>() + 2 * topology.here().len()
}

/// What all leaders have found, as every rank's error.
fn difference(told: &[u64]) -> Option<Error> {
    let [to, from, gives, expects] = *told.first_chunk::<4>()?;
    let to = to.checked_sub(1)?;
    Some(Error::counts_differ(from as usize, to as usize, gives, expects))
}

/// The bytes that each rank of the node gives in all, and those that each gets.
fn totals(told: &[u64], element_bytes: usize) -> (Vec<usize>, Vec<usize>) {
    let (gives, gets) = told[4..].split_at((told.len() - 4) / 2);
    let bytes = |counts: &[u64]| counts.iter().map(|count| *count as usize * element_bytes).collect();
    (bytes(gives), bytes(gets))
}

/// The verdict that counts, of those of all nodes: that on the first receiver.
fn first_of(verdicts: &[Vec<u64>]) -> Verdict {
    let found = verdicts.iter().filter_map(|verdict| verdict.first_chunk::<4>());
    found.filter(|verdict| verdict[0] != 0).min_by_key(|verdict| verdict[0]).copied().unwrap_or_default()
}

/// The counts of a node's ranks, on its leader.
struct Table<'a> {
    topology: &'a Topology,
    /// By rank of the node: elements for each rank.
    gives: Vec<Vec<usize>>,
    /// The same: elements expected of each rank.
    expects: Vec<Vec<usize>>,
    element_bytes: usize,
}

impl<'a> Table<'a> {
    /// Of the words of all ranks of the node.
    fn new(topology: &'a Topology, words: &[u64], element_bytes: usize) -> Self {
        let half = |second: usize| {
            let rows = words.chunks(topology.size()).skip(second).step_by(2);
            rows.map(|row| row.iter().map(|word| *word as usize).collect()).collect()
        };
        Table { topology, gives: half(0), expects: half(1), element_bytes }
    }

    /// What this node's ranks give to those of each node: by sender, then by receiver.
    fn given(&self) -> Vec<Vec<u64>> {
        let to = |node: usize| {
            let pairs = self.gives.iter().flat_map(|row| self.topology.members(node).iter().map(|to| row[*to]));
            pairs.map(|count| count as u64).collect()
        };
        (0..self.topology.nodes()).map(to).collect()
    }

    /// Room for what every node's ranks give to this one's.
    fn room(&self) -> Vec<Vec<u64>> {
        let senders = (0..self.topology.nodes()).map(|node| self.topology.members(node).len());
        senders.map(|senders| vec![0; senders * self.expects.len()]).collect()
    }

    /// The first of this node's ranks that is given something else than it expects, `given` being what every node said.
    fn judge(&self, given: &[Vec<u64>]) -> Verdict {
        let here = self.topology.here();
        let of_receiver = |local: usize| {
            (0..self.topology.size()).find_map(|from| {
                let (node, sender) = self.topology.place(from);
                let (gives, expects) = (given[node][sender * here.len() + local], self.expects[local][from] as u64);
                (gives != expects).then_some([here[local] as u64 + 1, from as u64, gives, expects])
            })
        };
        (0..here.len()).filter_map(of_receiver).min_by_key(|verdict| verdict[0]).unwrap_or_default()
    }

    /// What the node's ranks are told once all leaders agree.
    fn told(&self, verdict: Verdict) -> Vec<u64> {
        let sums = self.gives.iter().chain(&self.expects).map(|row| row.iter().sum::<usize>() as u64);
        verdict.into_iter().chain(sums).collect()
    }

    fn bytes(&self, counts: &[usize]) -> Vec<usize> {
        counts.iter().map(|count| count * self.element_bytes).collect()
    }

    /// Of what the node's ranks give, one after the other, what goes to each node: by sender here, then by receiver there.
    fn pack(&self, mut given: &[u8]) -> Vec<Vec<u8>> {
        let mut packed = vec![Vec::new(); self.topology.nodes()];
        for row in &self.gives {
            let lens = self.bytes(row);
            let (mine, rest) = given.split_at(lens.iter().sum());
            given = rest;
            for (node, packed) in packed.iter_mut().enumerate() {
                packed.extend(self.topology.members(node).iter().flat_map(|to| &mine[part_of(&lens, *to)]));
            }
        }
        packed
    }

    /// Room for what comes from each node.
    fn rooms(&self) -> Vec<Vec<u8>> {
        let from = |node: usize| {
            let members = self.topology.members(node).iter();
            let pairs = members.flat_map(|from| self.expects.iter().map(|row| row[*from]));
            vec![0; pairs.sum::<usize>() * self.element_bytes]
        };
        (0..self.topology.nodes()).map(from).collect()
    }

    /// What came from each node, by its receiver, for each by sender.
    fn unpack(&self, rooms: &[Vec<u8>]) -> Vec<u8> {
        let lens: Vec<Vec<usize>> = self.expects.iter().map(|row| self.bytes(row)).collect();
        let mut got: Vec<Vec<u8>> = lens.iter().map(|lens| vec![0; lens.iter().sum()]).collect();
        for (node, mut room) in rooms.iter().map(Vec::as_slice).enumerate() {
            for &from in self.topology.members(node) {
                for (lens, got) in lens.iter().zip(&mut got) {
                    let (block, rest) = room.split_at(lens[from]);
                    room = rest;
                    got[part_of(lens, from)].copy_from_slice(block);
                }
            }
        }
        got.concat()
    }
}

/// Copies the blocks of `send` to their ranks, and to `recv` what the ranks sent to this one. `words` are the elements for each
/// rank, then those from each. The inner error says what differs, if nothing was moved for that.
pub(super) async fn all_to_all_of_pairs(
    phases: &mut Phases<'_>,
    (words, element_bytes): (&[u64], usize),
    send: Cow<'_, [u8]>,
    recv: &mut Buf<'_>,
) -> Result<Result<(), Error>, Error> {
    let (topology, leads) = (phases.topology, phases.topology.leads());
    let mut all = vec![0u64; if leads { words.len() * topology.here().len() } else { 0 }];
    let (mine, room) = (Some(Cow::Borrowed(cast_slice(words))), &mut Buf::Borrowed(cast_slice_mut(&mut all)));
    phases.on_node(When::Give, Operation::moving(Collective::Gather, 0), mine, room).await?;
    let mut told = vec![0u64; told_words(topology)];
    let table = leads.then(|| Table::new(topology, &all, element_bytes));
    if let Some(table) = &table {
        let mut theirs = table.room();
        swap_words(phases, &table.given(), &mut theirs).await?;
        let verdicts = vec![table.judge(&theirs).to_vec(); topology.nodes()];
        let mut of_all = verdicts.clone();
        swap_words(phases, &verdicts, &mut of_all).await?;
        told = table.told(first_of(&of_all));
    }
    let room = &mut Buf::Borrowed(cast_slice_mut(&mut told));
    phases.on_node(When::TakeFirst, Operation::broadcast(0), None, room).await?;
    if let Some(differ) = difference(&told) {
        phases.end_exchange();
        phases.nothing_to_take().await;
        return Ok(Err(differ));
    }
    let (gives, gets) = totals(&told, element_bytes);
    let mut given = Buf::zeros(if leads { gives.iter().sum() } else { 0 });
    phases.on_node(When::TakeFirst, Operation::gather(0, &gives), Some(send), &mut given).await?;
    let mut got = Vec::new();
    if let Some(table) = &table {
        let (mut ours, mut theirs) = (table.pack(&given), table.rooms());
        drop(given);
        phases.exchange(&mut parts_of(&ours, &mut theirs), true).await?;
        std::mem::swap(&mut ours[topology.node()], &mut theirs[topology.node()]);
        got = table.unpack(&theirs);
    }
    deal(phases, &gets, got, recv).await.map(Ok)
}

/// Between leaders: words to each node, and from each, the own ones kept.
async fn swap_words(phases: &mut Phases<'_>, ours: &[Vec<u64>], theirs: &mut [Vec<u64>]) -> Result<(), Error> {
    let me = phases.topology.node();
    theirs[me].copy_from_slice(&ours[me]);
    let words = ours.iter().zip(theirs);
    let parts = words.map(|(ours, theirs)| Parts { send: cast_slice(ours), receive: cast_slice_mut(theirs) });
    phases.exchange(&mut parts.collect::<Vec<_>>(), false).await
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let tables: Vec<Table<'_>> = nodes.iter().map(|t| Table::new(t, &words(t, count), 2)).collect();
        let block = |from: usize, to: usize| vec![(from * 16 + to) as u8; 2 * count(from, to)];
        let packed = nodes.iter().zip(&tables).map(|(topology, table)| {
            let given = topology.here().iter().flat_map(|&from| (0..5).flat_map(move |to| block(from, to)));
            table.pack(&given.collect::<Vec<u8>>())
        });
        let packed: Vec<Vec<Vec<u8>>> = packed.collect();
        for (node, (topology, table)) in nodes.iter().zip(&tables).enumerate() {
            let rooms: Vec<Vec<u8>> = packed.iter().map(|of_node| of_node[node].clone()).collect();
            let lens = |rooms: &[Vec<u8>]| rooms.iter().map(Vec::len).collect::<Vec<_>>();
            assert_eq!(lens(&table.rooms()), lens(&rooms));
            let expected = topology.here().iter().flat_map(|&to| (0..5).flat_map(move |from| block(from, to)));
            assert_eq!(table.unpack(&rooms), expected.collect::<Vec<u8>>());
        }
    }

    #[test]
    fn the_first_pair_that_differs_is_told() {
        let nodes = nodes();
        let judged = |odd: &[(usize, usize)]| {
            // The senders of these pairs have one element more than their receivers think.
            let said = nodes.iter().map(|t| {
                let more = |from: usize, to: usize| count(from, to) + usize::from(odd.contains(&(from, to)));
                Table::new(t, &words(t, more), 1).given()
            });
            let said: Vec<Vec<Vec<u64>>> = said.collect();
            let verdicts = nodes.iter().enumerate().map(|(node, topology)| {
                let given: Vec<Vec<u64>> = said.iter().map(|of_node| of_node[node].clone()).collect();
                Table::new(topology, &words(topology, count), 1).judge(&given).to_vec()
            });
            let told = first_of(&verdicts.collect::<Vec<_>>());
            difference(&told).map(|error| error.to_string())
        };
        assert_eq!(judged(&[]), None);
        let text = judged(&[(4, 3), (1, 2), (3, 2)]).unwrap();
        let expected = (count(1, 2) + 1, count(1, 2));
        assert!(text.contains(&format!("gives {} elements to rank 2", expected.0)), "{text}");
        assert!(text.contains(&format!("expects {} elements of rank 1", expected.1)), "{text}");
    }
}
