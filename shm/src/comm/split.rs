//! New groups of a group's members, each with a region and a part of the budget of its own: by splitting the group, or formed by
//! the new members alone.
//!
//! To split a group, all members exchange what they want, rank 0 borrows the regions for all the new groups at once, everybody takes
//! its seat, and all agree that everybody has one: a split succeeds on all members or fails with one error on all, and
//! then nothing is allocated and the group goes on. The exchanges are ordinary operations of the group, so a different call,
//! a death and a deadline end a split as they end any call.

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
use crate::protocol::{Member, Patience};
use crate::sync::SyncPoint;
use std::time::Duration;

/// More words than this many operations carry beside the marks go in one.
const MOST_PARTS: usize = 16;

/// The parent of groups that are formed by an exchange of their members alone: no group has this number.
const FORMED: u64 = u64::MAX;

/// A place in a new group, and what the group may use.
struct Seated {
    member: Member<Mapped>,
    windows: Windows,
    bytes: u64,
}

/// The ranks that form groups, as one of them sees them.
trait Founders {
    /// This rank's number among them, and how many they are.
    fn place(&self) -> (usize, usize);
    /// Sums words over them: each rank fills in its own and leaves the others zero.
    fn add_up(&mut self, words: &mut [u64]) -> Result<(), Error>;
    /// Returns whether memory may still be allocated to them.
    fn is_healthy(&self) -> bool;
    /// The board of a new group.
    fn board(&self, group_info: GroupInfo, region: Region) -> Result<Mapped, Error>;
    /// The settings of waits, in which a new group has learnt nothing yet.
    fn patience(&self) -> Patience;
}

/// The members of a group that they split.
struct Dividing<'a> {
    comm: &'a NodeComm,
    state: &'a mut NodeState,
    what: Collective,
}

impl Founders for Dividing<'_> {
    fn place(&self) -> (usize, usize) {
        (self.comm.rank, self.comm.size)
    }
    fn add_up(&mut self, words: &mut [u64]) -> Result<(), Error> {
        self.comm.add_up(self.state, self.what, words)
    }
    /// A member that saw the group fail has looked for its loans already, and would miss one made after that.
    fn is_healthy(&self) -> bool {
        let board = &self.state.member.board;
        board.poison().load(SyncPoint::PoisonAcquire.order()) == board.healthy()
    }
    fn board(&self, group_info: GroupInfo, region: Region) -> Result<Mapped, Error> {
        self.state.member.board.new_part(group_info, region)
    }
    fn patience(&self) -> Patience {
        let Patience { preset, oversubscribed, timeout_ns, .. } = self.state.member.patience;
        Patience::new(preset, oversubscribed, timeout_ns)
    }
}

/// The members of one new group, who tell each other words by means of their own.
struct Forming<'a> {
    comm: &'a NodeComm,
    place: (usize, usize),
    exchange: &'a mut dyn FnMut(&mut [u64]) -> Result<(), Error>,
}

impl Founders for Forming<'_> {
    fn place(&self) -> (usize, usize) {
        self.place
    }
    fn add_up(&mut self, words: &mut [u64]) -> Result<(), Error> {
        (self.exchange)(words)
    }
    fn is_healthy(&self) -> bool {
        true
    }
    fn board(&self, group_info: GroupInfo, region: Region) -> Result<Mapped, Error> {
        Mapped::new(self.comm.segment.clone(), group_info, region)
    }
    fn patience(&self) -> Patience {
        self.comm.patience
    }
}

impl NodeComm {
    /// Forms groups of the ranks that give the same color, ordered by key, then by rank; a rank without a color gets
    /// `None`. Called by all ranks. `docs/internals/memory.md` says what a group costs.
    ///
    /// Ranks of different groups call independently of each other, and a group lives on when this handle is dropped.
    /// Dropping a new handle tells that group's other ranks, which get [`Error::PeerDied`] if they still call.
    ///
    /// # Errors
    /// [`Error::NoSpace`] on all ranks when the budget or the memory for the new groups is used up; this group goes on.
    /// The group's one error otherwise.
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<NodeComm>, Error> {
        self.divide(Collective::Split, color, key)
    }

    /// A second group of the same ranks in the same order, which does not disturb this one.
    ///
    /// # Errors
    /// As [`NodeComm::split`].
    pub fn duplicate(&self) -> Result<NodeComm, Error> {
        let group = self.divide(Collective::Duplicate, Some(0), self.rank as i64)?;
        group.ok_or_else(|| Error::Poisoned { cause: "a duplicate without its own rank".into() })
    }

    /// Forms a group of these ranks, numbered in this order. Only they call it: they tell each other words by `exchange`, which sums
    /// each word over them. No call of this group runs, so its other ranks, and other threads, may go on with theirs.
    /// `serial` is equal on the ranks that form a group, and different for any other one.
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
        let mut founders = Forming { comm: self, place: (me, ranks.len()), exchange };
        let seated = self.seat(&mut founders, &[ranks.to_vec()], origin);
        let seated = seated.inspect_err(|_| self.segment.release_all_of(origin))?;
        seated.map(|seated| self.seated_in(seated)).ok_or_else(|| Error::usage("a group without its own rank"))
    }

    fn divide(&self, what: Collective, color: Option<u32>, key: i64) -> Result<Option<NodeComm>, Error> {
        let mut state = self.lock()?;
        let last = state.last;
        let result = self.divide_in(&mut state, what, color, key);
        // what ran inside is none of the caller's operations
        state.last = last;
        Ok(result?.map(|seated| self.seated_in(seated)))
    }

    fn seated_in(&self, Seated { member, windows, bytes }: Seated) -> NodeComm {
        let thresholds = Thresholds::default_for(member.board.ranks());
        NodeComm::seated(member, self.cpus, thresholds, windows, bytes)
    }

    fn divide_in(
        &self,
        state: &mut NodeState,
        what: Collective,
        color: Option<u32>,
        key: i64,
    ) -> Result<Option<Seated>, Error> {
        let origin = Origin { parent: self.group(), serial: state.member.epoch() };
        let mut wanted = vec![0u64; 2 * self.size];
        wanted[2 * self.rank] = color.map_or(0, |color| u64::from(color) + 1);
        wanted[2 * self.rank + 1] = key as u64;
        let mut founders = Dividing { comm: self, state, what };
        let result = founders.add_up(&mut wanted).and_then(|()| self.seat(&mut founders, &form(&wanted), origin));
        if self.size > 1 && result.is_err() {
            // rank 0 may have come so far as to borrow for this rank, which was not told
            self.segment.release_all_of(origin);
        }
        result
    }

    /// This rank's place in the group that has it, if one does.
    fn seat(
        &self,
        founders: &mut impl Founders,
        groups: &[Vec<usize>],
        origin: Origin,
    ) -> Result<Option<Seated>, Error> {
        let mine = groups.iter().position(|group| group.contains(&self.rank));
        // a group of one shares nothing: it needs no region
        let sharing: Vec<usize> = (0..groups.len()).filter(|&g| groups[g].len() > 1).collect();
        let grants = self.borrow(founders, groups, &sharing, origin)?;
        let seated = mine.map(|g| {
            let grant = sharing.iter().position(|&s| s == g).map(|i| grants[i]);
            self.take_seat(founders, &groups[g], grant)
        });
        let (seated, error) = match seated {
            Some(Ok(seated)) => (Some(seated), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        if !sharing.is_empty() {
            agree(founders, error.as_ref())?;
        }
        error.map_or(Ok(seated), Err)
    }

    /// Sums words over the group: each rank fills in its own and leaves the others zero. Few words travel beside the marks:
    /// that takes no memory, so a split that finds none left does not end this group.
    pub(super) fn add_up(&self, state: &mut NodeState, what: Collective, words: &mut [u64]) -> Result<(), Error> {
        let few = INLINE_BYTES / size_of::<u64>();
        let at_once = if words.len() <= few * MOST_PARTS { few } else { words.len() };
        for part in words.chunks_mut(at_once) {
            self.execute_in(state, CollectiveArgs::internal(what, Buffers::in_place(part)))?;
        }
        Ok(())
    }

    /// The first of the ranks borrows a region for each of the groups that need one; all learn which, or why not.
    fn borrow(
        &self,
        founders: &mut impl Founders,
        groups: &[Vec<usize>],
        sharing: &[usize],
        origin: Origin,
    ) -> Result<Vec<Grant>, Error> {
        if sharing.is_empty() {
            return Ok(Vec::new());
        }
        let mut told = vec![0u64; ERROR_WORDS + 3 * sharing.len()];
        if founders.place().0 == 0 {
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
                    for (words, grant) in told[ERROR_WORDS..].chunks_mut(3).zip(grants) {
                        words.copy_from_slice(&[grant.slot as u64, grant.id, grant.bytes]);
                    }
                }
                // the exchange below ends with the group's own error
                Ok(None) => {
                    let cause = "it failed before it could be split".into();
                    told[..ERROR_WORDS].copy_from_slice(&to_words(&Error::Poisoned { cause }));
                }
                Err(error) => told[..ERROR_WORDS].copy_from_slice(&to_words(&error)),
            }
        }
        founders.add_up(&mut told)?;
        match from_words(&told[..ERROR_WORDS]) {
            Some(error) => Err(error),
            None => Ok(told[ERROR_WORDS..]
                .chunks(3)
                .map(|words| Grant { slot: words[0] as usize, id: words[1], bytes: words[2] })
                .collect()),
        }
    }

    /// This rank's place in its new group, with the lines of its region present.
    fn take_seat(&self, founders: &impl Founders, group: &[usize], grant: Option<Grant>) -> Result<Seated, Error> {
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
        let windows = windows.ok_or_else(|| Error::Poisoned { cause: "a loan that is too small".into() });
        // from here on the board lets go of the loan
        let board = founders.board(group_info, region)?;
        Ok(Seated { member: Member::new(board, founders.patience()), windows: windows?, bytes })
    }
}

/// Fails on all ranks with the error of the first that has one.
fn agree(founders: &mut impl Founders, error: Option<&Error>) -> Result<(), Error> {
    let (me, ranks) = founders.place();
    let mut failed = vec![0u64; ranks.div_ceil(64)];
    failed[me / 64] = u64::from(error.is_some()) << (me % 64);
    founders.add_up(&mut failed)?;
    let Some(first) = (0..ranks).find(|rank| failed[rank / 64] >> (rank % 64) & 1 == 1) else { return Ok(()) };
    let mut told = [0; ERROR_WORDS];
    if let Some(error) = error.filter(|_| first == me) {
        told = to_words(error);
    }
    founders.add_up(&mut told)?;
    Err(from_words(&told).unwrap_or_else(|| Error::Poisoned { cause: format!("rank {first} could not split") }))
}

/// The groups by color, each with its ranks by key and rank, from `color + 1, key` of every rank.
fn form(wanted: &[u64]) -> Vec<Vec<usize>> {
    let mut asked: Vec<(u64, i64, usize)> = wanted.chunks(2).enumerate().map(|(r, w)| (w[0], w[1] as i64, r)).collect();
    asked.retain(|(color, ..)| *color != 0);
    asked.sort_unstable();
    asked.chunk_by(|a, b| a.0 == b.0).map(|group| group.iter().map(|(_, _, rank)| *rank).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_ordered_by_key_then_by_rank() {
        // color + 1 and key of ranks 0 to 5
        let wanted = [2, 0, 1, 5, 0, 9, 2, -3i64 as u64, 1, 5, u64::from(u32::MAX) + 1, 7];
        assert_eq!(form(&wanted), [vec![1, 4], vec![3, 0], vec![5]]);
        assert!(form(&[0, 1, 0, 2]).is_empty());
    }
}
