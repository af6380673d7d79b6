//! Which plan runs between leaders: the argmin of the cost model under costs that are fixed, so that it is the same plan, and
//! the same bits, on all ranks and in every run.
//!
//! | leaders exchange over | a message | a byte | a byte reduced | a further message in a round |
//! | --- | --- | --- | --- | --- |
//! | MPI | 50 us | 1 ns | 0.2 ns | 5 us |
//!
//! These are an ordinary Ethernet's. What they decide is how many bytes are worth a round, 50 KB; on networks with 10 times the
//! latency or a tenth of it the plan they give has at most twice the rounds, or the bytes, of the best.
//! Over shared memory on one machine a round costs little more than its bytes: a rule of two plans stands there.

use crate::{Choice, Error};
use earlybird_hier::choose::{self, Choice as Candidate, Model};
use earlybird_hier::{Consistency, OpTraits};
use std::collections::HashMap;
use std::sync::Mutex;

/// Up to this many bytes of a vector rounds cost more than bytes, where there is a rule.
pub(super) const FEW_BYTES: usize = 16 << 10;

/// Sizes that are remembered.
const KEPT: usize = 256;

/// Candidates among which the first is taken that users can write.
const LOOKED_AT: usize = 8;

/// What a plan is asked for: bytes, and whether its operator commutes and is exact.
type Question = (usize, bool, bool);

/// The plans of one group of leaders.
#[derive(Debug)]
pub(super) struct Exchanges {
    nodes: usize,
    over_network: bool,
    known: Mutex<HashMap<Question, &'static str>>,
}

impl Exchanges {
    pub(super) fn new(nodes: usize, over_network: bool) -> Self {
        Exchanges { nodes, over_network, known: Mutex::default() }
    }

    /// The plan for a vector of `bytes`. All that can be answered give identical bits, and keep the order of nodes for an
    /// operator that does not commute.
    ///
    /// # Errors
    /// [`Error::Usage`] while another thread is inside a call.
    pub(super) fn plan_for(&self, bytes: usize, op: OpTraits) -> Result<&'static str, Error> {
        if !self.over_network {
            return Ok(if bytes <= FEW_BYTES { "elimination-3-2" } else { "halving-doubling" });
        }
        let mut known = earlybird_shm::enter(&self.known)?;
        if known.len() == KEPT {
            known.clear();
        }
        let question = (bytes, op.commutative, op.exact);
        Ok(known.entry(question).or_insert_with(|| argmin(self.nodes, bytes, op)))
    }
}

fn argmin(nodes: usize, bytes: usize, op: OpTraits) -> &'static str {
    let model = Model { port_s: 5e-6, ..Model::linear(5e-5, 1e-9, 2e-10) };
    let ranking = choose::ranking(nodes, bytes as f64, op, Consistency::Identical, &model, LOOKED_AT);
    ranking.iter().find_map(word).unwrap_or("recursive-doubling")
}

/// A candidate in one word, as users write it, where there is one.
fn word(candidate: &Candidate) -> Option<&'static str> {
    let arguments = candidate.params.to_arguments();
    let parameters = arguments.split(" --").skip(1).map(|pair| {
        let (key, value) = pair.split_once(' ').unwrap_or((pair, "true"));
        format!(":{key}={}", value.replace(',', "x").replace(':', "-"))
    });
    let word = format!("plan:{}{}", candidate.algorithm, parameters.collect::<String>());
    match word.parse() {
        Ok(Choice::Plan(word)) => Some(word),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_take_one_round_and_many_go_once() {
        let op = OpTraits { commutative: true, exact: false };
        for nodes in [2, 3, 5, 6, 7] {
            let exchanges = Exchanges::new(nodes, true);
            let few = exchanges.plan_for(425, op).unwrap();
            let many = exchanges.plan_for(64 << 20, op).unwrap();
            let ordered = exchanges.plan_for(64 << 20, OpTraits { commutative: false, exact: false }).unwrap();
            if nodes > 2 {
                assert_eq!((few, many), ("direct:protocol=latency", "direct:protocol=bandwidth"), "{nodes}");
            }
            assert!(!["ring", "butterfly", "cyclic-shift"].iter().any(|name| ordered.starts_with(name)), "{ordered}");
        }
        assert_eq!(Exchanges::new(5, false).plan_for(425, op), Ok("elimination-3-2"));
    }

    #[test]
    fn many_nodes_do_not_all_send_to_all() {
        let op = OpTraits { commutative: true, exact: true };
        let few = Exchanges::new(200, true).plan_for(425, op).unwrap();
        assert!(!few.starts_with("direct"), "{few}");
    }
}
