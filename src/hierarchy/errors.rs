//! Translates errors of a node into faults of the whole job.

use super::topology::Topology;
use crate::Error;
use earlybird_shm::channel::Fault;
use std::time::Duration;

/// The error of a node's group, as a fault of the job: its ranks numbered as there. `deadline` is the one that was set.
pub(super) fn fault_of(error: &Error, topology: &Topology, deadline: Option<Duration>) -> Fault {
    let here = topology.here();
    let rank_of = |local: usize| here[local.min(here.len() - 1)];
    match error {
        Error::PeerDied { rank, .. } => Fault::PeerDied { rank: rank_of(*rank) },
        Error::Timeout { missing, after, .. } => Fault::Timeout {
            missing: rank_of(missing.first().copied().unwrap_or(0)),
            after_ns: earlybird_shm::nanoseconds(deadline.unwrap_or(*after)),
        },
        Error::Mismatch { rank_a, rank_b, .. } => {
            let (a, b, me) = (rank_of(*rank_a), rank_of(*rank_b), topology.rank());
            let ranks = if b == me { [b, a] } else { [a, b] };
            Fault::Mismatch { ranks, calls: [None; 2] }
        }
        Error::NoSpace { needed, free, .. } => Fault::NoSpace { needed: *needed, free: *free },
        Error::OperatorPanicked { rank, message, .. } => {
            Fault::Panicked { rank: rank_of(*rank), message: message.clone() }
        }
        other => Fault::Other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_node_become_ranks_of_the_job() {
        let topology = Topology::contiguous(&[2, 3], 3).unwrap();
        let fault = |error| fault_of(&error, &topology, Some(Duration::from_secs(1)));
        let died = Error::PeerDied { rank: 2, pid: 1, host: "h".into(), during: "d".into() };
        assert_eq!(fault(died), Fault::PeerDied { rank: 4 });
        let late = Error::Timeout { missing: vec![1, 2], after: Duration::from_secs(9), during: "d".into() };
        assert_eq!(fault(late), Fault::Timeout { missing: 3, after_ns: 1_000_000_000 });
        let differ = Error::Mismatch { rank_a: 0, call_a: "a".into(), rank_b: 1, call_b: "b".into() };
        assert_eq!(fault(differ), Fault::Mismatch { ranks: [3, 2], calls: [None; 2] }, "this rank first");
    }
}
