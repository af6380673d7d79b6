//! The group's one error in words: what the poison word and the details beside it say, checked before it is used.

use super::NodeComm;
use crate::Error;
use crate::mapped::Mapped;
use crate::protocol::board::{Board, SLOTS};
use crate::protocol::lines::DETAILS;
use crate::protocol::signature::{Collective, Signature};
use crate::protocol::word::{self, Cause, PoisonWord};
use crate::protocol::{Member, Stop};
use crate::segment::Grant;
use crate::sync::Ordering;
use std::time::Duration;

impl NodeComm {
    /// The group's one error in words. What the words name is checked: a bad peer can make it wrong, not harmful.
    pub(super) fn error_of(&self, member: &Member<Mapped>, stop: Stop, collective: Collective) -> Error {
        let (board, poison) = (&member.board, stop.0);
        if poison.reporter() >= self.size {
            return Error::Poisoned { cause: format!("unreadable poison word {:#x}", poison.0) };
        }
        let detail = |i: usize| board.details(poison.reporter())[i].load(Ordering::Relaxed);
        let during = || {
            let operation = match member.epoch() == poison.epoch() {
                true => collective.name(),
                false => "operation",
            };
            format!("{operation} {}{}", poison.epoch(), self.whereabouts(member))
        };
        let text = || {
            let bytes: Vec<u8> = (1..DETAILS).flat_map(|i| detail(i).to_le_bytes()).collect();
            let length = (detail(0) as usize).min(bytes.len());
            String::from_utf8_lossy(&bytes[..length]).trim_end_matches('\u{fffd}').to_owned()
        };
        match poison.cause() {
            Cause::PeerDied => {
                let rank = (detail(0) as usize).min(self.size - 1);
                let peer = board.peer(rank);
                Error::PeerDied { rank, pid: peer.pid, host: peer.host, during: during() }
            }
            Cause::Timeout => Error::Timeout {
                missing: self.missing(member, poison, detail(0) as usize),
                after: Duration::from_nanos(detail(1)),
                during: during(),
            },
            Cause::Mismatch => {
                let call_a = Signature { kind: detail(3), count: detail(4) };
                let call_b = Signature { kind: detail(1), count: detail(2) };
                // A root that needed nobody has gone on: the difference is found when it is met again.
                let before = if call_a == call_b { " after a call that differed" } else { "" };
                Error::Mismatch {
                    rank_a: poison.reporter(),
                    call_a: format!("{}{before}", call_a.describe()),
                    rank_b: detail(0) as usize,
                    call_b: format!("{}{before}", call_b.describe()),
                }
            }
            Cause::NoSpace => Error::NoSpace {
                needed: detail(0),
                free: detail(1),
                hint: format!(
                    "rank {} could not reserve it in {}; lower EARLYBIRD_ARENA_MAX or free memory",
                    poison.reporter(),
                    during()
                ),
            },
            Cause::OperatorPanicked => {
                Error::OperatorPanicked { rank: poison.reporter(), during: during(), message: text() }
            }
            Cause::Corrupt if detail(0) > 0 => {
                Error::Poisoned { cause: format!("rank {} in {}: {}", poison.reporter(), during(), text()) }
            }
            Cause::System => {
                let (errno, bytes) = (detail(0) as i32, detail(1));
                let whose = detail(2).checked_sub(1).map_or(String::new(), |rank| format!(" that rank {rank} lends"));
                let context = format!(
                    "rank {} could not have {bytes} bytes{whose} in {}; raise its limit of address space (ulimit -v), or \
                     set EARLYBIRD_ARENA_MAX lower",
                    poison.reporter(),
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
            Cause::Corrupt => Error::Poisoned {
                cause: format!("rank {} found a damaged shared word in {}", poison.reporter(), during()),
            },
        }
    }

    /// Which communicator it was, where it is not the one of the whole job.
    fn whereabouts(&self, member: &Member<Mapped>) -> String {
        match member.board.seats().loan {
            Some((_, id)) if id != Grant::BASE => format!(" of sub-communicator {id} ({} ranks)", self.size),
            _ => String::new(),
        }
    }

    /// The ranks that had not entered the operation; at least the one the reporter named.
    fn missing(&self, member: &Member<Mapped>, poison: PoisonWord, named: usize) -> Vec<usize> {
        let slot = (poison.epoch() % SLOTS as u64) as usize;
        let entered = |r: usize| member.board.line(slot, r).entered.load(Ordering::Relaxed);
        (0..self.size).filter(|&r| r == named || !word::has_entered(entered(r), poison.epoch())).collect()
    }
}
