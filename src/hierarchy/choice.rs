//! The choice of the plan between leaders: the user's, or the plan of least cost by a cost model. The costs are equal on all ranks, so
//! that the plan is, and the bits are the same in every run with these costs.
//!
//! The costs are those of `EARLYBIRD_TUNE`, where they were measured (`earlybird tune`), and else fixed:
//!
//! | leaders exchange over | a message | a byte | a byte reduced | a further message in a round |
//! | --- | --- | --- | --- | --- |
//! | MPI | 50 us | 1 ns | 0.2 ns | 5 us |
//!
//! These are an ordinary Ethernet's. What they decide is how many bytes are worth a round, 50 KB; on networks with 10 times the
//! latency or a tenth of it the plan they give has at most twice the rounds, or the bytes, of the best.
//! Over shared memory on one machine a round costs little more than its bytes: there a rule of two plans applies where nothing was
//! measured.

use crate::{Choice, Collective, Config, Costs, DType, Error, FoldOrder, Op};
use earlybird_hier::cost::Model;
use earlybird_hier::plan;
use earlybird_hier::select::{self, RankedSchedule};
use earlybird_hier::{Consistency, OpTraits};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Mutex;

/// Up to this many bytes of a vector rounds cost more than bytes, where there is a rule.
pub(super) const FEW_BYTES: usize = 16 << 10;

/// Sizes that are cached.
const MOST_CACHED: usize = 256;

/// Candidates among which the first is taken that users can write.
const CANDIDATES: usize = 8;

/// The key of a plan that was chosen: bytes, and whether the operator is commutative and exact.
type PlanKey = (usize, bool, bool);

/// The settings of the user, the same on all ranks.
#[derive(Debug, Clone, Default)]
pub(super) struct ExchangeSettings {
    pub plan: Option<&'static str>,
    /// The measured costs of messages.
    pub costs: Option<Costs>,
}

impl ExchangeSettings {
    pub(super) fn new(config: &Config) -> Self {
        ExchangeSettings { plan: config.exchange.and_then(Choice::plan), costs: config.tuning.costs().cloned() }
    }
}

/// The name of an exchange of parts, each straight to its node.
pub(super) const DIRECT: &str = "direct";

/// The rule by which the exchange of leaders was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeRule {
    /// The collective has no other.
    OnlyOne,
    /// The plan was chosen for this call.
    Requested,
    /// `EARLYBIRD_EXCHANGE`.
    Variable,
    /// A rule of two plans over shared memory: up to so many bytes, or above.
    UpTo(usize),
    Above(usize),
    /// The least time by the costs of `EARLYBIRD_TUNE`.
    Measured,
    /// The least time by the costs of an ordinary Ethernet.
    Ordinary,
}

/// The exchange of leaders in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) name: &'static str,
    /// The collective of its plan, if it is one.
    pub(crate) plan: Option<plan::Collective>,
    pub(crate) rule: ExchangeRule,
}

/// The plans of one group of leaders.
#[derive(Debug)]
pub(crate) struct Exchanges {
    nodes: usize,
    over_network: bool,
    settings: ExchangeSettings,
    known: Mutex<HashMap<PlanKey, &'static str>>,
}

impl Exchanges {
    pub(super) fn new(nodes: usize, over_network: bool, settings: ExchangeSettings) -> Self {
        Exchanges { nodes, over_network, settings, known: Mutex::default() }
    }

    /// The plans of another group, of leaders of so many nodes.
    pub(super) fn of_group(&self, nodes: usize) -> Self {
        Exchanges::new(nodes, self.over_network, self.settings.clone())
    }

    /// A description of the setting that decides the plan.
    pub(super) fn chooses(&self) -> &'static str {
        match (self.settings.plan, &self.settings.costs, self.over_network) {
            (Some(name), ..) => name,
            (_, Some(_), _) => "the plan of least cost by EARLYBIRD_TUNE",
            (_, None, true) => "the plan of least cost on an ordinary Ethernet",
            (_, None, false) => "a plan by size",
        }
    }

    /// The exchange of leaders in a call on so many bytes, by this operator if it is one of the library's; `requested` is the plan that was
    /// chosen for this call.
    ///
    /// # Errors
    /// [`Error::Usage`] while another thread is inside a call.
    pub(crate) fn decide(
        &self,
        collective: Collective,
        builtin: Option<(DType, Op)>,
        (bytes, order): (usize, FoldOrder),
        requested: Option<&'static str>,
    ) -> Result<Exchange, Error> {
        let only = |name, plan| Exchange { name, plan, rule: ExchangeRule::OnlyOne };
        Ok(match (collective, builtin) {
            (Collective::Barrier, _) => only("dissemination", Some(plan::Collective::Barrier)),
            (Collective::Broadcast, _) => only("binomial", Some(plan::Collective::Broadcast)),
            (Collective::Reduce, Some(_)) => only("binomial", Some(plan::Collective::Reduce)),
            (Collective::AllReduce, Some((dtype, op))) => {
                let (name, rule) = match requested {
                    Some(name) => (name, ExchangeRule::Requested),
                    None => self.plan_for(bytes, traits_of(dtype, op, order))?,
                };
                Exchange { name, plan: Some(plan::Collective::Allreduce), rule }
            }
            _ => only(DIRECT, None),
        })
    }

    /// The plan for a vector of `bytes`, and what decided it. All that can be answered where the user chose none give identical bits,
    /// and keep the order of nodes for an operator that does not commute.
    ///
    /// # Errors
    /// [`Error::Usage`] while another thread is inside a call.
    fn plan_for(&self, bytes: usize, op: OpTraits) -> Result<(&'static str, ExchangeRule), Error> {
        if let Some(name) = self.settings.plan {
            return Ok((name, ExchangeRule::Variable));
        }
        let Some((model, rule)) = self.model() else {
            return Ok(match bytes <= FEW_BYTES {
                true => ("elimination-3-2", ExchangeRule::UpTo(FEW_BYTES)),
                false => ("halving-doubling", ExchangeRule::Above(FEW_BYTES)),
            });
        };
        let mut known = earlybird_shm::enter(&self.known)?;
        if known.len() == MOST_CACHED {
            known.clear();
        }
        let question = (bytes, op.commutative, op.exact);
        let best = || ranked(self.nodes, bytes, op, &model).next().map_or("recursive-doubling", |(name, _)| name);
        Ok((known.entry(question).or_insert_with(best), rule))
    }

    /// The plans for an allreduce of `bytes` by their expected seconds, the fastest first; none without a cost model.
    pub(crate) fn ranking(&self, bytes: usize, (dtype, op): (DType, Op), order: FoldOrder) -> Vec<(&'static str, f64)> {
        let Some((model, _)) = self.model() else { return Vec::new() };
        ranked(self.nodes, bytes, traits_of(dtype, op, order), &model).collect()
    }

    /// The cost model, if there is one, and the rule by which it decides.
    fn model(&self) -> Option<(Cow<'_, Model>, ExchangeRule)> {
        match (&self.settings.costs, self.over_network) {
            (Some(costs), _) => Some((Cow::Borrowed(costs.model()), ExchangeRule::Measured)),
            (None, true) => Some((Cow::Owned(ordinary()), ExchangeRule::Ordinary)),
            (None, false) => None,
        }
    }
}

/// The liberties of a plan with an operator, if contributions are folded in this order.
fn traits_of(dtype: DType, op: Op, order: FoldOrder) -> OpTraits {
    let exact = !dtype.is_inexact(op);
    OpTraits { commutative: exact || order == FoldOrder::Arrival, exact }
}

/// An ordinary Ethernet's costs.
fn ordinary() -> Model {
    Model { port_s: 5e-6, ..Model::linear(5e-5, 1e-9, 2e-10) }
}

/// The candidates that users can write, and their expected seconds, the fastest first.
fn ranked(nodes: usize, bytes: usize, op: OpTraits, model: &Model) -> impl Iterator<Item = (&'static str, f64)> {
    let ranking = select::ranking(nodes, bytes as f64, op, Consistency::Identical, model, CANDIDATES);
    ranking.into_iter().filter_map(|candidate| Some((spec(&candidate)?, candidate.seconds)))
}

/// A candidate as users write it, `ring` or `butterfly:r=1`, where that is possible.
fn spec(candidate: &RankedSchedule) -> Option<&'static str> {
    let arguments = candidate.params.to_arguments();
    let parameters = arguments.split(" --").skip(1).map(|pair| {
        let (key, value) = pair.split_once(' ').unwrap_or((pair, "true"));
        format!(":{key}={}", value.replace(',', "x").replace(':', "-"))
    });
    let word = format!("plan:{}{}", candidate.algorithm, parameters.collect::<String>());
    word.parse::<Choice>().ok()?.plan()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchanges(nodes: usize, over_network: bool, costs: Option<Costs>) -> Exchanges {
        Exchanges::new(nodes, over_network, ExchangeSettings { costs, ..ExchangeSettings::default() })
    }

    #[test]
    fn few_bytes_take_one_round_and_many_go_once() {
        let op = OpTraits { commutative: true, exact: false };
        for nodes in [2, 3, 5, 6, 7] {
            let exchanges = exchanges(nodes, true, None);
            let few = exchanges.plan_for(425, op).unwrap().0;
            let many = exchanges.plan_for(64 << 20, op).unwrap().0;
            let by_rank = OpTraits { commutative: false, exact: false };
            let ordered = exchanges.plan_for(64 << 20, by_rank).unwrap().0;
            if nodes > 2 {
                assert_eq!((few, many), ("direct:protocol=latency", "direct:protocol=bandwidth"), "{nodes}");
            }
            assert!(!["ring", "butterfly", "cyclic-shift"].iter().any(|name| ordered.starts_with(name)), "{ordered}");
        }
        let expected = ("elimination-3-2", ExchangeRule::UpTo(FEW_BYTES));
        assert_eq!(exchanges(5, false, None).plan_for(425, op), Ok(expected));
    }

    #[test]
    fn many_nodes_do_not_all_send_to_all() {
        let op = OpTraits { commutative: true, exact: true };
        let few = exchanges(200, true, None).plan_for(425, op).unwrap().0;
        assert!(!few.starts_with("direct"), "{few}");
    }

    #[test]
    fn measured_costs_decide_how_many_bytes_are_worth_a_round() {
        let op = OpTraits { commutative: true, exact: false };
        let of = |latency_s: f64, s_per_byte: f64| {
            let time = |bytes: u64| (bytes, latency_s + bytes as f64 * s_per_byte);
            Costs::new(&[time(8), time(1 << 20)], latency_s / 100.0, 1e-10).unwrap()
        };
        for over_network in [false, true] {
            // 64 KiB are 0.5 ms on this link: less than a round of a long one, more than rounds of a short one.
            let plan =
                |latency_s| exchanges(3, over_network, Some(of(latency_s, 8e-9))).plan_for(64 << 10, op).unwrap().0;
            assert_eq!([plan(5e-3), plan(1e-6)], ["direct:protocol=latency", "direct:protocol=bandwidth"]);
        }
    }
}
