//! New communicators of some ranks of several nodes.
//!
//! All ranks tell all what they want, each node splits its group, and the leaders of the new groups meet. After each step that
//! can fail on some ranks alone all learn whether it has, so a split succeeds on all ranks or is the same error on all, and
//! then the communicator goes on.

use super::call::DIRECT;
use super::leader_channel::{LeaderChannel, LeaderTransport};
use super::moves;
use super::operation::Buf;
use super::{Call, Hierarchy, Topology};
use crate::{Error, Op};
use earlybird_shm::channel::{RingOptions, Rings};
use earlybird_shm::{NodeComm, ReduceOp, text};
use std::borrow::Cow;
use std::time::Duration;

/// A new group as one of its ranks gets it.
pub(crate) struct Part {
    pub node: NodeComm,
    /// Where it has several nodes.
    pub between: Option<Hierarchy>,
    pub rank: usize,
    /// Its ranks in order, by their numbers in the communicator that was split.
    pub ranks: Vec<usize>,
    /// Tells it from every other group of this communicator.
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
    /// As `NodeComm::split`, for ranks of all nodes.
    pub(crate) fn split(
        &self,
        comm: &NodeComm,
        call: &Call,
        color: Option<u32>,
        key: i64,
    ) -> Result<Option<Part>, Error> {
        let (topology, me) = (&self.topology, self.topology.rank());
        let mine = [color.map_or(0, |color| u64::from(color) + 1), key as u64];
        let all = self.tell(comm, call, &mine)?;
        let wanted: Vec<(u64, i64)> = all.chunks_exact(2).map(|words| (words[0], words[1] as i64)).collect();
        let number = self.lock()?.calls;
        let label = format!("{number}-{}", mine[0]);

        let node = match comm.split(color, key) {
            Err(error @ (Error::NoSpace { .. } | Error::System { .. } | Error::Unsupported { .. })) => Err(error),
            Err(error) => return Err(self.fail(self.lock()?.plans.transport_mut(), comm, call.signature, &error)),
            Ok(node) => Ok(node),
        };
        let group = group_of(&wanted, me);
        let members = nodes_of(&group, topology);
        // The second group of the node's ranks that started calls between nodes need.
        let node = node.and_then(|node| {
            let again = node.as_ref().filter(|_| members.len() > 1).map(NodeComm::duplicate).transpose()?;
            Ok((node, again))
        });
        let (node, again) = self.agree(comm, call, node)?;
        let between = self.agree(comm, call, self.meet(&group, members, (number, &label), again))?;
        let Some(node) = node else { return Ok(None) };
        let deadline = match &between {
            Some(between) if !between.topology.leads() => self.deadline.map(patient),
            _ => self.deadline,
        };
        node.set_deadline(deadline)?;
        if let Some(between) = &between {
            between.started.set_deadline(deadline)?;
        }
        let rank = group.iter().position(|rank| *rank == me).unwrap_or(0);
        Ok(Some(Part { node, between, rank, ranks: group, label }))
    }

    /// Connects the leaders of a new group; nothing where it has one node, or this rank none.
    fn meet(
        &self,
        group: &[usize],
        members: Vec<Vec<usize>>,
        (number, label): (u64, &str),
        again: Option<NodeComm>,
    ) -> Result<Option<Hierarchy>, Error> {
        let me = group.iter().position(|rank| *rank == self.topology.rank());
        let over_messages = self.lock()?.plans.transport_mut().split(group, me)?;
        let (Some(me), Some(again)) = (me, again) else { return Ok(None) };
        let topology = Topology::new(members, me)?.with_endpoints(self.topology.wanted_endpoints());
        let meeting = RingOptions {
            rank: me,
            size: group.len(),
            key: format!("{}-{label}", self.meeting.key),
            ..self.meeting.clone()
        };
        let line = match over_messages {
            Some(line) => line,
            None => LeaderTransport::Rings(Box::new(self.join_rings(&meeting, group, number)?)),
        };
        let mut wire = LeaderChannel::new(line, &topology, self.deadline);
        let mut state = self.lock()?;
        wire.number_as_in(state.plans.transport_mut(), group);
        let progress = state.progress.clone();
        drop(state);
        wire.set_progress(progress.clone());
        let exchanges = self.exchanges.of_group(topology.nodes());
        let made = Hierarchy::over(wire, topology, again, exchanges, (self.deadline, meeting));
        made.lock()?.progress = progress;
        Ok(Some(made))
    }

    /// Joins the rings of a new group of the ranks `group`, which ends when one of them is lost to this communicator, or gives up.
    fn join_rings(&self, meeting: &RingOptions, group: &[usize], number: u64) -> Result<Rings, Error> {
        let absent = || {
            let absent = self.lock().ok()?.plans.transport_mut().absent(group, Some(number))?;
            group.iter().position(|rank| *rank == absent)
        };
        let rings = Rings::join_within(meeting, &absent);
        if rings.is_err() {
            self.lock()?.plans.transport_mut().give_up(number);
        }
        rings
    }

    /// The words of every rank, on every rank.
    pub(super) fn tell(&self, comm: &NodeComm, call: &Call, words: &[u64]) -> Result<Vec<u64>, Error> {
        let mine: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let lens = vec![mine.len(); self.topology.size()];
        let mut all = vec![0u8; mine.len() * lens.len()];
        let op = ReduceOp::Builtin(Op::Sum);
        self.carry_out(comm, call, DIRECT, op, async |phases| {
            moves::all_gather(phases, Cow::Borrowed(&mine), &mut Buf::Borrowed(&mut all), &lens).await.map(Ok)
        })?;
        Ok(all.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Fails on all ranks with the error of the first that has one.
    fn agree<T>(&self, comm: &NodeComm, call: &Call, result: Result<T, Error>) -> Result<T, Error> {
        let mine = match &result {
            Ok(_) => 0,
            // Most likely one that lives, and has more to say.
            Err(Error::PeerDied { .. }) => 1,
            Err(_) => 2,
        };
        let all = self.tell(comm, call, &[mine])?;
        let most = all.iter().copied().max().filter(|most| *most > 0);
        let Some(first) = most.and_then(|most| all.iter().position(|of| *of == most)) else { return result };
        // All ranks come here, and tell what they know; that of the first counts.
        let mine = result.err().map_or([0; ERROR_WORDS], |error| to_words(&error));
        let all = self.tell(comm, call, &mine)?;
        Err(from_words(first, &all[first * ERROR_WORDS..][..ERROR_WORDS]))
    }
}

/// Words of an error on its way to the others: bytes needed and free, where it is that there is no room, then a text.
const ERROR_WORDS: usize = 48;

fn to_words(error: &Error) -> [u64; ERROR_WORDS] {
    let mut words = [0; ERROR_WORDS];
    let told = match error {
        Error::NoSpace { needed, free, hint } => {
            words[..3].copy_from_slice(&[1, *needed, *free]);
            hint.clone()
        }
        other => other.to_string(),
    };
    text::pack(&told, &mut words[3..]);
    words
}

/// The error of rank `rank`.
fn from_words(rank: usize, words: &[u64]) -> Error {
    let told = format!("rank {rank}: {}", text::unpack(&words[3..]));
    match words[0] {
        1 => Error::NoSpace { needed: words[1], free: words[2], hint: told },
        _ => Error::system("splitting a communicator", told),
    }
}

/// How long a rank waits that is no leader: its leader's wait for other nodes must not look like a rank that is missing.
pub(super) fn patient(deadline: Duration) -> Duration {
    deadline.saturating_mul(4).saturating_add(Duration::from_millis(500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_the_same_on_all_ranks_and_keeps_its_hint() {
        let full =
            Error::NoSpace { needed: 7, free: 3, hint: "set EARLYBIRD_DIR to a directory with free space".into() };
        let told = from_words(2, &to_words(&full));
        let hint = "rank 2: set EARLYBIRD_DIR to a directory with free space".into();
        assert_eq!(told, Error::NoSpace { needed: 7, free: 3, hint });
        let told = from_words(0, &to_words(&Error::system("opening a socket", "Too many open files")));
        assert_eq!(told.to_string(), "splitting a communicator: rank 0: opening a socket: Too many open files");
    }

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
