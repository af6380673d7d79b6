//! New groups of a group's members, each with its own region and part of the budget: made by splitting the group, or formed by
//! the new members alone.
//!
//! To split a group, all members exchange colors and keys, rank 0 allocates the regions for all new groups at once, every member
//! maps its region, and all agree that everyone has. So a split succeeds on all members or fails with one error on all; then
//! nothing is allocated and the group goes on. The exchanges are ordinary operations of the group, so a different call, a
//! death and a deadline end a split as they end any call.

use super::node_comm::{NodeComm, NodeState};
use crate::Error;
use crate::args::CollectiveArgs;
use crate::error_codec::{ERROR_WORDS, from_words, to_words};
use crate::layout::{Layout, Windows};
use crate::mapped::{GroupInfo, Mapped};
use crate::memory::{Claim, Grant, Origin, Region};
use crate::protocol::board::Board;
use crate::protocol::collective::Collective;
use crate::protocol::decide::Thresholds;
use crate::protocol::lines::INLINE_BYTES;
use crate::protocol::payload::Buffers;
use crate::protocol::rotation::Rotation;
use crate::protocol::{Member, Patience};
use crate::sync::SyncPoint;
use std::time::Duration;

/// The most operations that [`NodeComm::add_up`] cuts a sum into, so that the words travel beside the marks.
const MOST_PARTS: usize = 16;

/// The parent of groups formed by their members alone: no group has this number.
const FORMED: u64 = u64::MAX;

/// This rank's membership in a new group, and the memory that the group may use.
struct NewMember {
    member: Member<Mapped>,
    windows: Windows,
    bytes: u64,
}

/// The ranks that form groups, as one of them sees them.
trait Founders {
    /// This rank's number among them, and how many they are.
    fn rank_and_size(&self) -> (usize, usize);
    /// Sums words over them: each rank fills in its own and leaves the others zero.
    fn add_up(&mut self, words: &mut [u64]) -> Result<(), Error>;
    /// Returns whether memory may still be allocated to them.
    fn is_healthy(&self) -> bool;
    /// The board of a new group.
    fn board(&self, group_info: GroupInfo, region: Region, rotation: Rotation) -> Result<Mapped, Error>;
    /// The settings of waits, for a group that has not measured its waits yet.
    fn patience(&self) -> Patience;
}

/// The members of a group that is split.
struct Splitting<'a> {
    comm: &'a NodeComm,
    state: &'a mut NodeState,
    call: Collective,
}

impl Founders for Splitting<'_> {
    fn rank_and_size(&self) -> (usize, usize) {
        (self.comm.rank, self.comm.size)
    }
    fn add_up(&mut self, words: &mut [u64]) -> Result<(), Error> {
        self.comm.add_up(self.state, self.call, words)
    }
    /// A member that saw the group fail has released its allocations already, and would miss one made after that.
    fn is_healthy(&self) -> bool {
        let board = &self.state.member.board;
        board.poison().load(SyncPoint::PoisonAcquire.order()) == board.healthy()
    }
    fn board(&self, group_info: GroupInfo, region: Region, rotation: Rotation) -> Result<Mapped, Error> {
        self.state.member.board.new_part(group_info, region, rotation)
    }
    fn patience(&self) -> Patience {
        let Patience { preset, oversubscribed, timeout_ns, .. } = self.state.member.patience;
        Patience::new(preset, oversubscribed, timeout_ns)
    }
}

/// The members of one new group, which exchange words by a function of the caller's.
struct Forming<'a> {
    comm: &'a NodeComm,
    rank_and_size: (usize, usize),
    exchange: &'a mut dyn FnMut(&mut [u64]) -> Result<(), Error>,
}

impl Founders for Forming<'_> {
    fn rank_and_size(&self) -> (usize, usize) {
        self.rank_and_size
    }
    fn add_up(&mut self, words: &mut [u64]) -> Result<(), Error> {
        (self.exchange)(words)
    }
    fn is_healthy(&self) -> bool {
        true
    }
    fn board(&self, group_info: GroupInfo, region: Region, rotation: Rotation) -> Result<Mapped, Error> {
        Mapped::new(self.comm.segment.clone(), group_info, region, rotation)
    }
    fn patience(&self) -> Patience {
        self.comm.patience
    }
}

impl NodeComm {
    /// Forms groups of the ranks with the same color, ordered by key, then by rank; a rank without a color gets `None`. Called
    /// by all ranks. `docs/internals/memory.md` has the cost of a group.
    ///
    /// Ranks of different groups call independently of each other, and a group lives on when this handle is dropped.
    /// After a new handle is dropped, that group's other ranks get [`Error::PeerDied`] if they still call.
    ///
    /// # Errors
    /// [`Error::NoSpace`] on all ranks when the budget or the memory for the new groups is used up; this group goes on.
    /// The group's one error otherwise.
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<NodeComm>, Error> {
        self.split_as(Collective::Split, color, key)
    }

    /// A second group of the same ranks in the same order, which does not disturb this one.
    ///
    /// # Errors
    /// As [`NodeComm::split`].
    pub fn duplicate(&self) -> Result<NodeComm, Error> {
        let group = self.split_as(Collective::Duplicate, Some(0), self.rank as i64)?;
        group.ok_or_else(|| Error::Poisoned { cause: "a duplicate without its own rank".into() })
    }

    /// Forms a group of these ranks, numbered in this order. Only they call it, and communicate by `exchange`, which sums each
    /// word over them. No call of this group runs, so its other ranks, and other threads, may go on with theirs. `serial` is
    /// equal on the ranks that form a group, and different for any other one.
    ///
    /// # Errors
    /// [`Error::NoSpace`] on all of them as for [`NodeComm::split`]; [`Error::Usage`] for ranks that are not here, are named twice or
    /// do not include this one; the error of `exchange`, after which the others may have no group.
    pub fn form(
        &self,
        ranks: &[usize],
        serial: u64,
        exchange: &mut dyn FnMut(&mut [u64]) -> Result<(), Error>,
    ) -> Result<NodeComm, Error> {
        let is_named_once =
            |rank: &usize| *rank < self.size && ranks.iter().filter(|other| *other == rank).count() == 1;
        let me = ranks.iter().position(|rank| *rank == self.rank).filter(|_| ranks.iter().all(is_named_once));
        let Some(me) = me else {
            let (rank, size) = (self.rank, self.size);
            return Err(Error::usage(format!(
                "rank {rank} of {size} cannot form a group of ranks {ranks:?}; name it and others once"
            )));
        };
        if self.is_forked() {
            return Err(Error::Forked);
        }
        let origin = Origin { parent: FORMED, serial };
        let mut founders = Forming { comm: self, rank_and_size: (me, ranks.len()), exchange };
        let joined = self.join_new(&mut founders, &[ranks.to_vec()], origin);
        let joined = joined.inspect_err(|_| self.segment.release_all_of(origin))?;
        joined.map(|joined| self.handle_of(joined)).ok_or_else(|| Error::usage("a group without its own rank"))
    }

    fn split_as(&self, call: Collective, color: Option<u32>, key: i64) -> Result<Option<NodeComm>, Error> {
        let mut state = self.lock()?;
        let last = state.last;
        let result = self.split_in(&mut state, call, color, key);
        // The last call that callers see is theirs, not one of the operations in here.
        state.last = last;
        Ok(result?.map(|joined| self.handle_of(joined)))
    }

    fn handle_of(&self, NewMember { member, windows, bytes }: NewMember) -> NodeComm {
        let thresholds = Thresholds::of_this_machine(member.board.ranks(), self.segment.affine_cpus());
        NodeComm::of_member(member, self.cpus, thresholds, windows, bytes)
    }

    fn split_in(
        &self,
        state: &mut NodeState,
        call: Collective,
        color: Option<u32>,
        key: i64,
    ) -> Result<Option<NewMember>, Error> {
        let origin = Origin { parent: self.group(), serial: state.member.epoch() };
        let mut words = vec![0u64; 2 * self.size];
        words[2 * self.rank] = color.map_or(0, |color| u64::from(color) + 1);
        words[2 * self.rank + 1] = key as u64;
        let mut founders = Splitting { comm: self, state, call };
        let summed = founders.add_up(&mut words);
        let result = summed.and_then(|()| self.join_new(&mut founders, &groups_by_color(&words), origin));
        if self.size > 1 && result.is_err() {
            // rank 0 may have allocated for this rank without this rank knowing the allocation
            self.segment.release_all_of(origin);
        }
        result
    }

    /// Joins the one of the new `groups` that contains this rank, if any.
    fn join_new(
        &self,
        founders: &mut impl Founders,
        groups: &[Vec<usize>],
        origin: Origin,
    ) -> Result<Option<NewMember>, Error> {
        // a group of one shares nothing: it needs no region
        let sharing: Vec<usize> = (0..groups.len()).filter(|&g| groups[g].len() > 1).collect();
        let grants = self.allocate_regions(founders, groups, &sharing, origin)?;
        let mine = groups.iter().position(|group| group.contains(&self.rank));
        let joined = mine.map(|g| {
            let grant = sharing.iter().position(|&s| s == g).map(|i| grants[i]);
            self.map_region(founders, &groups[g], grant)
        });
        let joined = joined.transpose();
        if !sharing.is_empty() {
            agree(founders, joined.as_ref().err())?;
        }
        joined
    }

    /// Sums words over the group: each rank fills in its own and leaves the others zero. A short list travels beside the marks,
    /// which needs no memory, so a split that finds none left does not fail this group.
    pub(super) fn add_up(&self, state: &mut NodeState, call: Collective, words: &mut [u64]) -> Result<(), Error> {
        let inline = INLINE_BYTES / size_of::<u64>();
        let at_once = if words.len() <= inline * MOST_PARTS { inline } else { words.len() };
        for part in words.chunks_mut(at_once) {
            self.execute_in(state, CollectiveArgs::internal(call, Buffers::in_place(part)))?;
        }
        Ok(())
    }

    /// Allocates a region for each of the groups that need one, on the first rank, and shares the grants or the error.
    fn allocate_regions(
        &self,
        founders: &mut impl Founders,
        groups: &[Vec<usize>],
        sharing: &[usize],
        origin: Origin,
    ) -> Result<Vec<Grant>, Error> {
        if sharing.is_empty() {
            return Ok(Vec::new());
        }
        let mut words = vec![0u64; ERROR_WORDS + 3 * sharing.len()];
        if founders.rank_and_size().0 == 0 {
            let claim = |&g: &usize| {
                let (ranks, layout) = (groups[g].len(), Layout::new(groups[g].len()));
                Claim {
                    members: groups[g].iter().map(|&rank| self.group_info.members[rank]).collect(),
                    lines: layout.control_bytes(),
                    least: Windows::least_budget_bytes(ranks),
                    most: layout.bytes() as u64,
                }
            };
            let claims: Vec<Claim> = sharing.iter().map(claim).collect();
            let timeout = founders.patience().timeout_ns.map(Duration::from_nanos);
            match self.segment.allocate(&claims, origin, timeout, || founders.is_healthy()) {
                Ok(Some(grants)) => {
                    for (words, grant) in words[ERROR_WORDS..].chunks_mut(3).zip(grants) {
                        words.copy_from_slice(&[grant.slot as u64, grant.id, grant.bytes]);
                    }
                }
                // the exchange below ends with the group's own error
                Ok(None) => {
                    let cause = "it failed before it could be split".into();
                    words[..ERROR_WORDS].copy_from_slice(&to_words(&Error::Poisoned { cause }));
                }
                Err(error) => words[..ERROR_WORDS].copy_from_slice(&to_words(&error)),
            }
        }
        founders.add_up(&mut words)?;
        match from_words(&words[..ERROR_WORDS]) {
            Some(error) => Err(error),
            None => Ok(words[ERROR_WORDS..]
                .chunks(3)
                .map(|words| Grant { slot: words[0] as usize, id: words[1], bytes: words[2] })
                .collect()),
        }
    }

    /// Maps the region of this rank's new group and makes its lines present.
    fn map_region(&self, founders: &impl Founders, group: &[usize], grant: Option<Grant>) -> Result<NewMember, Error> {
        let bytes = Layout::new(group.len()).bytes();
        let me = group.iter().position(|&rank| rank == self.rank).unwrap_or(0);
        let members = group.iter().map(|&rank| self.group_info.members[rank]).collect();
        let group_info = GroupInfo { members, me, allocation: grant.map(|grant| (grant.slot, grant.id)) };
        let region = match grant {
            None => Region::private(bytes)?,
            Some(grant) => {
                self.segment.region(grant.slot, bytes).inspect_err(|_| self.segment.release(grant.slot, grant.id))?
            }
        };
        let bytes = grant.map_or(bytes as u64, |grant| grant.bytes);
        let windows = Windows::within(bytes, group.len());
        let windows = windows.ok_or_else(|| Error::Poisoned { cause: "an allocation that is too small".into() });
        let rotation = Rotation::of(0, windows.as_ref().is_ok_and(Windows::have_small));
        // from here on the board releases the allocation
        let board = founders.board(group_info, region, rotation)?;
        Ok(NewMember { member: Member::new(board, founders.patience()), windows: windows?, bytes })
    }
}

/// Fails on all ranks with the error of the first that has one.
fn agree(founders: &mut impl Founders, error: Option<&Error>) -> Result<(), Error> {
    let (me, ranks) = founders.rank_and_size();
    let mut failed = vec![0u64; ranks.div_ceil(64)];
    failed[me / 64] = u64::from(error.is_some()) << (me % 64);
    founders.add_up(&mut failed)?;
    let Some(first) = (0..ranks).find(|rank| failed[rank / 64] >> (rank % 64) & 1 == 1) else { return Ok(()) };
    let mut words = error.filter(|_| first == me).map_or([0; ERROR_WORDS], to_words);
    founders.add_up(&mut words)?;
    Err(from_words(&words).unwrap_or_else(|| Error::Poisoned { cause: format!("rank {first} could not split") }))
}

/// The groups by color, each with its ranks by key and rank, from `color + 1, key` of every rank.
fn groups_by_color(words: &[u64]) -> Vec<Vec<usize>> {
    let mut ranks: Vec<(u64, i64, usize)> = words.chunks(2).enumerate().map(|(r, w)| (w[0], w[1] as i64, r)).collect();
    ranks.retain(|(color, ..)| *color != 0);
    ranks.sort_unstable();
    ranks.chunk_by(|a, b| a.0 == b.0).map(|group| group.iter().map(|(_, _, rank)| *rank).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_ordered_by_key_then_by_rank() {
        // color + 1 and key of ranks 0 to 5
        let words = [2, 0, 1, 5, 0, 9, 2, -3i64 as u64, 1, 5, u64::from(u32::MAX) + 1, 7];
        assert_eq!(groups_by_color(&words), [vec![1, 4], vec![3, 0], vec![5]]);
        assert!(groups_by_color(&[0, 1, 0, 2]).is_empty());
    }
}
