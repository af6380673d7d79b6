//! New communicators of some ranks of several nodes.
//!
//! All ranks gather the colors and keys of all, each node splits its group, and the leaders of the new groups join theirs. After each step that
//! can fail on some ranks alone all learn whether it has, so a split succeeds on all ranks or is the same error on all, and
//! then the communicator goes on.

use super::choice::DIRECT;
use super::leader_channel::{LeaderChannel, LeaderTransport};
use super::operation::Buf;
use super::{Call, Groups, Hierarchy, Topology};
use crate::{Error, Op};
use earlybird_shm::channel::{RingOptions, Rings};
use earlybird_shm::error_codec::{self, ERROR_WORDS};
use earlybird_shm::{NodeComm, ReduceOp};
use std::borrow::Cow;
use std::time::Duration;

/// A new group, as seen by one of its ranks.
pub(crate) struct Part {
    pub groups: Groups,
    pub rank: usize,
    /// The ranks in order, by their numbers in the communicator that was split.
    pub ranks: Vec<usize>,
    /// A name that no other group of this communicator has.
    pub label: String,
}

/// The ranks that give the color of rank `me`, by key, then by rank.
fn group_of(wanted: &[(u64, i64)], me: usize) -> Vec<usize> {
    let mut group: Vec<usize> =
        (0..wanted.len()).filter(|r| wanted[*r].0 != 0 && wanted[*r].0 == wanted[me].0).collect();
    group.sort_by_key(|rank| (wanted[*rank].1, *rank));
    group
}

/// The nodes of a new group, by the numbers that its ranks get.
pub(super) fn nodes_of(group: &[usize], parent: &Topology) -> Vec<Vec<usize>> {
    let there = |node| (0..group.len()).filter(move |new| parent.place(group[*new]).0 == node).collect::<Vec<usize>>();
    let mut members: Vec<Vec<usize>> = (0..parent.nodes()).map(there).filter(|node| !node.is_empty()).collect();
    members.sort_by_key(|node| node[0]);
    members
}

impl Hierarchy {
    /// Splits the ranks of all nodes, as `NodeComm::split` those of one.
    pub(crate) fn split(&self, call: &Call, color: Option<u32>, key: i64) -> Result<Option<Part>, Error> {
        let (topology, me) = (&self.topology, self.topology.rank());
        let mine = [color.map_or(0, |color| u64::from(color) + 1), key as u64];
        let all = self.all_gather_words(call, &mine)?;
        let wanted: Vec<(u64, i64)> = all.chunks_exact(2).map(|words| (words[0], words[1] as i64)).collect();
        let number = self.lock()?.history.calls;
        let label = format!("{number}-{}", mine[0]);

        let node = match self.node.split(color, key) {
            Err(error @ (Error::NoSpace { .. } | Error::System { .. } | Error::Unsupported { .. })) => Err(error),
            Err(error) => return Err(self.fail(self.lock()?.plans.transport_mut(), call.signature, &error)),
            Ok(node) => Ok(node),
        };
        let group = group_of(&wanted, me);
        let members = nodes_of(&group, topology);
        // The second group of the node's ranks that started calls between nodes need.
        let node = node.and_then(|node| {
            let again = node.as_ref().filter(|_| members.len() > 1).map(NodeComm::duplicate).transpose()?;
            Ok((node, again))
        });
        let node = self.agree(call, node)?;
        let connected = self.connect_leaders(&group, members, (number, &label), node);
        let Some(groups) = self.agree(call, connected)? else { return Ok(None) };
        let between = groups.between.as_ref();
        let waits = between.is_some_and(|between| !between.topology.leads());
        let deadline = if waits { self.deadline.map(patient) } else { self.deadline };
        groups.node.set_deadline(deadline)?;
        between.map_or(Ok(()), |between| between.deliver.set_deadline(deadline))?;
        let rank = group.iter().position(|rank| *rank == me).unwrap_or(0);
        Ok(Some(Part { groups, rank, ranks: group, label }))
    }

    /// Connects the leaders of a new group, if it has several nodes; `None` where this rank has no group.
    fn connect_leaders(
        &self,
        group: &[usize],
        members: Vec<Vec<usize>>,
        (number, label): (u64, &str),
        (node, again): (Option<NodeComm>, Option<NodeComm>),
    ) -> Result<Option<Groups>, Error> {
        let me = group.iter().position(|rank| *rank == self.topology.rank());
        let over_messages = self.lock()?.plans.transport_mut().split(group, me)?;
        let (Some(me), Some(node)) = (me, node) else { return Ok(None) };
        let Some(again) = again else { return Ok(Some(node.into())) };
        let topology = Topology::new(members, me)?.with_endpoints(self.topology.wanted_endpoints());
        let rings = self.rings_of(label, me, group.len());
        let transport = match over_messages {
            Some(messages) => messages,
            None => LeaderTransport::Rings(Box::new(self.join_rings(&rings, group, number)?)),
        };
        let mut channel = LeaderChannel::new(transport, &topology, self.deadline);
        let mut state = self.lock()?;
        channel.number_as_in(state.plans.transport_mut(), group);
        let progress = state.progress.clone();
        drop(state);
        channel.set_progress(progress.clone());
        let exchanges = self.exchanges.of_group(topology.nodes());
        let made = Hierarchy::over(channel, topology, (node, again), exchanges, (self.deadline, rings));
        made.lock()?.progress = progress;
        Ok(Some(made.into()))
    }

    /// A second transport between all ranks, for their point-to-point messages. All ranks call it, once.
    pub(crate) fn connect_messages(&self, call: &Call) -> Result<LeaderTransport, Error> {
        // A rank that makes another call is found here, before the others would wait for it at the rendezvous.
        self.agree(call, Ok(()))?;
        let transport = self.join_messages();
        self.agree(call, transport)
    }

    fn join_messages(&self) -> Result<LeaderTransport, Error> {
        let (me, all) = (self.topology.rank(), (0..self.topology.size()).collect::<Vec<usize>>());
        if let Some(messages) = self.lock()?.plans.transport_mut().split(&all, Some(me))? {
            return Ok(messages);
        }
        self.join_rings(&self.rings_of("messages", me, all.len()), &all, u64::MAX)
            .map(|rings| LeaderTransport::Rings(Box::new(rings)))
    }

    /// The options of the rings of a group with this name.
    fn rings_of(&self, name: &str, rank: usize, size: usize) -> RingOptions {
        RingOptions { rank, size, key: format!("{}-{name}", self.rings.key), ..self.rings.clone() }
    }

    /// Joins the rings of a new group of the ranks `group`; fails when one of them dies or gives up joining.
    fn join_rings(&self, options: &RingOptions, group: &[usize], number: u64) -> Result<Rings, Error> {
        let absent = || {
            let absent = self.lock().ok()?.plans.transport_mut().absent(group, Some(number))?;
            group.iter().position(|rank| *rank == absent)
        };
        let rings = Rings::join_within(options, &absent);
        if rings.is_err() {
            self.lock()?.plans.transport_mut().give_up(number);
        }
        rings
    }

    /// Gathers the words of every rank on every rank.
    pub(super) fn all_gather_words(&self, call: &Call, words: &[u64]) -> Result<Vec<u64>, Error> {
        let mine: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let call = Call { lens: vec![mine.len(); self.topology.size()], ..call.clone() };
        let mut all = vec![0u8; mine.len() * call.lens.len()];
        self.carry_out(&call, (DIRECT, None), ReduceOp::Builtin(Op::Sum), async |phases| {
            phases.all_gather(Cow::Borrowed(&mine), &mut Buf::Borrowed(&mut all)).await.map(Ok)
        })?;
        Ok(all.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Fails on all ranks with the error of the first that has one.
    fn agree<T>(&self, call: &Call, result: Result<T, Error>) -> Result<T, Error> {
        let mine = match &result {
            Ok(_) => 0,
            // The rank most likely lives and reports an error of its own.
            Err(Error::PeerDied { .. }) => 1,
            Err(_) => 2,
        };
        let all = self.all_gather_words(call, &[mine])?;
        let most = all.iter().copied().max().filter(|most| *most > 0);
        let Some(first) = most.and_then(|most| all.iter().position(|of| *of == most)) else { return result };
        // All ranks come here; the error of the first one counts.
        let mine = result.err().map_or([0; ERROR_WORDS], |error| error_codec::to_words(&error));
        let all = self.all_gather_words(call, &mine)?;
        let error = error_codec::from_words(&all[first * ERROR_WORDS..][..ERROR_WORDS]);
        Err(error.unwrap_or_else(|| Error::Poisoned { cause: "it could not split".into() }).of_rank(first))
    }
}

/// The deadline of a rank that is no leader: longer, so that its leader's wait for other nodes does not look like a missing rank.
pub(super) fn patient(deadline: Duration) -> Duration {
    deadline.saturating_mul(4).saturating_add(Duration::from_millis(500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_go_by_key_and_nodes_by_their_first_ranks() {
        let parent = Topology::contiguous(&[2, 3], 4).unwrap();
        // Color + 1 and key of ranks 0 to 4.
        let wanted = [(1, 5), (2, 0), (1, 0), (0, 0), (1, 0)];
        assert_eq!(group_of(&wanted, 4), [2, 4, 0]);
        assert_eq!(nodes_of(&group_of(&wanted, 0), &parent), [vec![0, 1], vec![2]]);
        assert_eq!(nodes_of(&group_of(&wanted, 1), &parent), [vec![0]]);
        assert!(group_of(&wanted, 3).is_empty());
    }
}
