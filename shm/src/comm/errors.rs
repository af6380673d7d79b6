//! The group's one error, decoded from the poison word and the details beside it; all values found there are checked.

use super::node_comm::NodeComm;
use crate::Error;
use crate::mapped::Mapped;
use crate::memory::Grant;
use crate::protocol::NAMED_MOST;
use crate::protocol::board::{Board, SLOTS};
use crate::protocol::collective::Collective;
use crate::protocol::lines::DETAILS;
use crate::protocol::signature::Signature;
use crate::protocol::word::{self, Cause, PoisonWord};
use crate::protocol::{Member, Stop};
use crate::sync::Ordering;
use crate::text;
use std::time::Duration;

impl NodeComm {
    /// The group's one error: the same on all ranks at any time, since the reporter does not change its words any more. The
    /// values are checked: a bad peer can make the error wrong, not harmful.
    pub(super) fn error_of(&self, member: &Member<Mapped>, stop: Stop) -> Error {
        let (board, poison) = (&member.board, stop.0);
        let reporter = poison.reporter();
        if reporter >= self.size {
            return Error::Poisoned { cause: format!("unreadable poison word {:#x}", poison.0) };
        }
        let detail = |i: usize| board.member(reporter).details[i].load(Ordering::Relaxed);
        let named = |i: usize| (detail(i) as usize).min(self.size - 1);
        let during_of = |rank: Option<usize>| {
            format!("{} {}{}", failed_in(board, poison), poison.epoch(), self.sub_communicator(member, rank))
        };
        let during = || during_of(None);
        let text = || text::unpack(&(1..DETAILS).map(detail).collect::<Vec<_>>());
        match poison.cause() {
            Cause::PeerDied => {
                let rank = named(0);
                let peer = board.peer(rank);
                Error::PeerDied { rank, pid: peer.pid, host: peer.host, during: during_of(Some(rank)) }
            }
            Cause::Timeout => Error::Timeout {
                missing: self.missing(named(0), |word| detail(2 + word)),
                after: Duration::from_nanos(detail(1)),
                during: during_of(Some(named(0))),
            },
            Cause::Mismatch => {
                let call_a = Signature { kind: detail(3), count: detail(4) };
                let call_b = Signature { kind: detail(1), count: detail(2) };
                // Found by the call history hash, in a later operation or at the end.
                let before =
                    if call_a == call_b && detail(5) == detail(6) { " after a call that differed" } else { "" };
                let last = |i: usize| match detail(i) {
                    0 => String::new(),
                    number => format!(" as its last call, operation {number}"),
                };
                Error::Mismatch {
                    rank_a: reporter,
                    call_a: format!("{}{before}{}", call_a.describe(), last(6)),
                    rank_b: named(0),
                    call_b: format!("{}{before}{}", call_b.describe(), last(5)),
                }
            }
            Cause::NoSpace => Error::NoSpace {
                needed: detail(0),
                free: detail(1),
                hint: format!(
                    "rank {} could not reserve it in {}; lower EARLYBIRD_ARENA_MAX or free memory",
                    reporter,
                    during()
                ),
            },
            Cause::OperatorPanicked => Error::OperatorPanicked { rank: reporter, during: during(), message: text() },
            Cause::Panicked => {
                Error::Poisoned { cause: format!("rank {reporter} panicked in {} and cannot go on", during()) }
            }
            Cause::Interrupted => Error::Poisoned { cause: format!("rank {reporter} was interrupted in {}", during()) },
            Cause::Lost => Error::Poisoned { cause: "its shared memory belongs to another communicator by now".into() },
            Cause::System => {
                let (errno, bytes) = (detail(0) as i32, detail(1));
                let owner =
                    detail(2).checked_sub(1).map_or(String::new(), |rank| format!(" that rank {rank} has allocated"));
                let context = format!(
                    "rank {reporter} could not have {bytes} bytes{owner} in {}; raise its limit of address space (ulimit -v), or \
                     set EARLYBIRD_ARENA_MAX lower",
                    during()
                );
                match errno {
                    0 => Error::system(
                        context,
                        "its program has closed the arena's descriptor (close_range, closefrom?)",
                    ),
                    errno => Error::system(context, std::io::Error::from_raw_os_error(errno)),
                }
            }
            Cause::Corrupt if detail(0) > 0 => {
                Error::Poisoned { cause: format!("rank {reporter} in {}: {}", during(), text()) }
            }
            Cause::Corrupt => {
                Error::Poisoned { cause: format!("rank {reporter} found a damaged shared word in {}", during()) }
            }
        }
    }

    /// The name of a communicator other than the job's, with the number that its `rank` has on the node.
    fn sub_communicator(&self, member: &Member<Mapped>, rank: Option<usize>) -> String {
        match member.board.group_info().allocation {
            Some((_, id)) if id != Grant::BASE => {
                let on_node =
                    |rank: usize| format!("; its rank {rank} is rank {} of the node", self.group_info.members[rank]);
                format!(" of sub-communicator {id} ({} ranks{})", self.size, rank.map_or_else(String::new, on_node))
            }
            _ => String::new(),
        }
    }

    /// The ranks that had not entered the operation when the reporter looked; at least the one that it named.
    fn missing(&self, named: usize, set: impl Fn(usize) -> u64) -> Vec<usize> {
        let was_missing = |rank: usize| rank < NAMED_MOST && set(rank / 64) >> (rank % 64) & 1 == 1;
        (0..self.size).filter(|&rank| rank == named || was_missing(rank)).collect()
    }
}

/// The name of the operation in which the reporter failed, as the reporter described it on entry.
fn failed_in(board: &Mapped, poison: PoisonWord) -> &'static str {
    let line = board.line((poison.epoch() % SLOTS as u64) as usize, poison.reporter());
    let is_of = word::has_entered(line.entered.load(Ordering::Relaxed), poison.epoch());
    let collective = Collective::from_repr(line.call[0].load(Ordering::Relaxed) as u8);
    collective.filter(|_| is_of).map_or("operation", Collective::name)
}
