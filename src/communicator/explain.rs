//! Explanations: what a call would run and why, decided by what decides in a call.

use super::Communicator;
use super::comm_plans::plan_of;
use super::settings::{Decider, Settings};
use crate::hierarchy::{ExchangeRule, LeaderChoice, NodeOperation};
use crate::{Algorithm, Choice, Collective, Config, DType, Error, FoldOrder, Op, WaitPreset};
use earlybird_shm::{CallOptions, SelectionRule, Thresholds, folds_in_rank_order};
use serde::Serialize;
use std::fmt;

/// The elements and the operator of explained calls.
const CALL: (DType, Op) = (DType::F32, Op::Sum);

/// The algorithm that a call would run, and the reason: a blocking call on private buffers, which sums `f32` where it reduces.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The collective, by its name.
    pub collective: &'static str,
    /// Bytes of a block.
    pub bytes: usize,
    /// Ranks of the communicator.
    pub ranks: usize,
    /// Nodes, real or virtual.
    pub nodes: usize,
    /// The algorithm, as [`Communicator::last_call`] names it afterwards: on several nodes, that of the leaders.
    pub algorithm: &'static str,
    /// The setting, limit, measurement or cost model that decided.
    pub because: String,
    /// The order of folding; none where nothing is folded.
    pub order: Option<&'static str>,
    /// Segments that are exchanged between nodes one after the other.
    pub segments: usize,
    /// Ranks of each node that exchange segments.
    pub endpoints: usize,
    /// The use that waiting ranks make of their processors.
    pub waiting: String,
    /// Expected time. On one node that from the last arrival to the last exit, which `earlybird tune` has measured; on several that of the
    /// exchange between nodes, where the cost model gives one.
    pub expected_us: Option<f64>,
    /// The operations inside the nodes before that exchange and after it, where there are several nodes.
    pub on_nodes: Vec<NodeStep>,
    /// The other algorithms that could run, the fastest first where there are expected times.
    pub others: Vec<Alternative>,
}

/// The answer of `earlybird explain`: a line per field, then the alternatives.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of {} bytes, {} rank(s) on {} node(s)\n", self.collective, self.bytes, self.ranks, self.nodes)?;
        let mut line = |name: &str, value: &str| writeln!(f, "{name:<10} {value}");
        line("runs", self.algorithm)?;
        line("because", &self.because)?;
        line("folds in", &self.order.map_or("nothing is folded".into(), |order| format!("{order} order")))?;
        if self.nodes > 1 {
            line("segments", &format!("{} by {} rank(s) of each node", self.segments, self.endpoints))?;
        }
        let expected = match (self.expected_us, self.nodes) {
            (Some(us), 1) => format!("{us:.1} us after the last arrival (EARLYBIRD_TUNE)"),
            (Some(us), _) => format!("{us:.1} us between nodes"),
            (None, 1) => "not known: no tail of this size in EARLYBIRD_TUNE (earlybird tune measures it)".into(),
            (None, _) => "no cost model here: earlybird tune measures one".into(),
        };
        if self.ranks > 1 {
            line("expected", &expected)?;
        }
        let are_uniform = self.on_nodes.iter().all(|step| step.ranks == self.on_nodes[0].ranks);
        for step in &self.on_nodes {
            let nodes = if are_uniform { String::new() } else { format!(" in nodes of {} ranks", step.ranks) };
            let NodeStep { collective, bytes, algorithm, because, expected_us, .. } = step;
            let when = if step.comes_before { "before" } else { "after" };
            let us = expected_us.map_or(String::new(), |us| format!(" in {us:.1} us"));
            line(when, &format!("{collective} of {bytes} bytes{nodes} by {algorithm}{us}: {because}"))?;
        }
        line("waits", &self.waiting)?;
        if self.others.is_empty() {
            return Ok(());
        }
        if self.others.iter().all(|other| other.expected_us.is_none()) {
            let names: Vec<&str> = self.others.iter().map(|other| other.algorithm).collect();
            return line("instead", &names.join(", "));
        }
        let width = self.others.iter().map(|other| other.algorithm.len()).max().unwrap_or(0);
        writeln!(f, "\n {:<width$}  expected us", "instead")?;
        self.others.iter().try_for_each(|Alternative { algorithm, expected_us }| {
            let us = expected_us.map_or("-".to_owned(), |us| format!("{us:.1}"));
            writeln!(f, " {algorithm:<width$}  {us:>11}")
        })
    }
}

/// An operation inside nodes, as a part of a call over several nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeStep {
    /// True if it comes before the exchange between nodes, false if after.
    pub comes_before: bool,
    /// The collective, by its name.
    pub collective: &'static str,
    /// Bytes of the largest block, of the largest segment where there are several.
    pub bytes: usize,
    /// Ranks of a node that runs it: nodes of other numbers of ranks have steps of their own, a rank that is alone has none.
    pub ranks: usize,
    /// The algorithm.
    pub algorithm: &'static str,
    /// The setting or limit that decided.
    pub because: String,
    /// The time from the last arrival to the last exit among so many ranks, where `earlybird tune` has measured it.
    pub expected_us: Option<f64>,
}

/// An algorithm that could run instead.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Alternative {
    /// Its name, as settings take it.
    pub algorithm: &'static str,
    /// Expected time, as [`Explanation::expected_us`].
    pub expected_us: Option<f64>,
}

/// A job that need not run. All ranks are on one machine, on the virtual nodes of [`Config::ranks_per_node`], or on nodes of a
/// network. Their processors are of the kind of this machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobShape {
    /// Ranks.
    pub ranks: usize,
    /// Processors that the ranks of one machine may use.
    pub cpus: usize,
    /// Processors' worth of time that a control group grants them.
    pub quota: Option<usize>,
    /// True if the nodes are machines that reach each other over a network.
    pub over_network: bool,
}

/// The settings and limits that decide in the calls of one communicator.
struct Deciders<'a> {
    settings: &'a Settings,
    thresholds: Thresholds,
    leaders: Option<LeaderChoice>,
    ranks: usize,
    nodes: usize,
    /// Processors that the ranks of one machine may use.
    cpus: usize,
    wait: WaitPreset,
    never_spins: bool,
}

/// Explains a call of a job of this shape with these settings, on blocks of `bytes`. Nothing is started.
///
/// ```
/// use earlybird::{Collective, Config, JobShape, explain};
/// let job = JobShape { ranks: 4, cpus: 8, quota: None, over_network: false };
/// let explanation = explain(Collective::AllReduce, 64 << 10, &job, &Config::default())?;
/// assert_eq!((explanation.algorithm, explanation.because.as_str()), ("chain", "messages of more than 2048 bytes"));
/// # Ok::<(), earlybird::Error>(())
/// ```
///
/// # Errors
/// [`Error::Usage`] for no ranks, and for nodes that are not of these ranks.
pub fn explain(collective: Collective, bytes: usize, job: &JobShape, config: &Config) -> Result<Explanation, Error> {
    let JobShape { ranks, cpus, quota, over_network } = *job;
    if ranks == 0 {
        return Err(Error::usage("a job of 0 ranks makes no call; give at least 1"));
    }
    let sizes = config.ranks_per_node.as_ref().map_or_else(|| Ok(vec![ranks]), |nodes| nodes.sizes(ranks))?;
    let nodes = sizes.len();
    // On a network each node has a machine of its own.
    let on_machine = if over_network { sizes.iter().copied().max().unwrap_or(ranks) } else { ranks };
    let never_spins = on_machine > quota.map_or(cpus, |quota| quota.min(cpus));
    let lacks_cpus = [on_machine > cpus, never_spins];
    let leaders = (nodes > 1).then(|| LeaderChoice::planned(config, &sizes, over_network, lacks_cpus)).transpose()?;
    let settings = Settings::of(config, (nodes == 1).then_some(ranks));
    let thresholds = Thresholds::of_this_machine(ranks, cpus);
    Deciders { settings: &settings, thresholds, leaders, ranks, nodes, cpus, wait: config.wait, never_spins }
        .explain(collective, bytes)
}

impl Communicator {
    /// Explains what a call on blocks of `bytes` would run in this communicator, with what was chosen for the calls that follow.
    /// Every rank may ask alone.
    ///
    /// # Errors
    /// [`Error::Usage`] while another thread is inside a call.
    pub fn explain(&self, collective: Collective, bytes: usize) -> Result<Explanation, Error> {
        Deciders {
            settings: &self.settings,
            thresholds: self.node.thresholds(),
            leaders: self.between.as_ref().map(|between| between.leader_choice()),
            ranks: self.size,
            nodes: self.nodes(),
            wait: self.joining.wait,
            cpus: self.node.affine_cpus(),
            never_spins: self.size > self.allowed_cpus(),
        }
        .explain(collective, bytes)
    }
}

impl Deciders<'_> {
    fn explain(&self, collective: Collective, bytes: usize) -> Result<Explanation, Error> {
        let (dtype, _) = CALL;
        let traits = collective.traits();
        // A barrier has no block, and others have elements.
        let bytes = if traits.has_data { (bytes / dtype.size()).max(1) * dtype.size() } else { 0 };
        let order = self.settings.options(collective, bytes).order;
        let ((algorithm, because), others) = match &self.leaders {
            None => self.on_one_node(collective, bytes),
            Some(leaders) => self.between_nodes(leaders, collective, bytes, order)?,
        };
        let on_nodes = self.leaders.as_ref().map(|leaders| self.inside_nodes(leaders, collective, bytes));
        let (segments, endpoints) =
            self.leaders.as_ref().map_or((1, 1), |leaders| leaders.segments(collective, bytes, dtype.size()));
        let ranked = others.iter().find(|other| other.algorithm == algorithm).and_then(|other| other.expected_us);
        let spins =
            if self.never_spins { "never spinning: more ranks than processors" } else { "a processor per rank" };
        Ok(Explanation {
            collective: collective.name(),
            bytes,
            ranks: self.ranks,
            nodes: self.nodes,
            algorithm,
            because,
            order: (traits.folds && traits.has_data).then(|| match traits.prefix {
                Some(_) => FoldOrder::Rank.name(),
                None => order.name(),
            }),
            segments,
            endpoints,
            waiting: format!("{}, {spins}", self.wait),
            expected_us: ranked,
            on_nodes: on_nodes.transpose()?.unwrap_or_default(),
            others: others.into_iter().filter(|other| other.algorithm != algorithm).collect(),
        })
    }

    /// The algorithm that runs, the reason, and the alternatives.
    fn on_one_node(&self, collective: Collective, bytes: usize) -> (Decision, Vec<Alternative>) {
        let (choice, decider) = self.settings.decided(collective, bytes);
        let others = self.measured(collective, bytes);
        if let Some(plan) = plan_of(collective, choice) {
            return ((Choice::Plan(plan).name(), reason_of(decider, collective)), others);
        }
        if self.ranks == 1 {
            return ((Algorithm::Flat.name(), "one rank has its result at once".into()), others);
        }
        let options = self.settings.options(collective, bytes);
        let (algorithm, rule) = decide(&self.thresholds, collective, bytes, self.ranks, options);
        let because = match (rule, decider) {
            (SelectionRule::Requested, decider) => reason_of(decider, collective),
            (rule, Decider::Nothing) => rule.to_string(),
            (rule, _) => format!("{rule}; {} does not carry out {}", choice.name(), collective.name()),
        };
        ((algorithm.name(), because), others)
    }

    /// What can carry out a call on one node: what was measured, the fastest first, then the other algorithms.
    fn measured(&self, collective: Collective, bytes: usize) -> Vec<Alternative> {
        let mut measured = self.settings.expected_us(self.ranks, collective, bytes);
        measured.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        let others = collective.traits().algorithms.iter().map(|algorithm| Choice::Node(*algorithm));
        let others = Vec::from_iter(others.filter(|other| measured.iter().all(|(known, _)| known != other)));
        let measured = measured.into_iter().map(|(choice, us)| (choice, Some(us)));
        let all = measured.chain(others.into_iter().map(|other| (other, None)));
        all.map(|(choice, expected_us)| Alternative { algorithm: choice.name(), expected_us }).collect()
    }

    /// The operations inside nodes of a call over several, with their algorithms.
    fn inside_nodes(
        &self,
        leaders: &LeaderChoice,
        collective: Collective,
        bytes: usize,
    ) -> Result<Vec<NodeStep>, Error> {
        let (choice, decider) = self.settings.decided(collective, bytes);
        let (requested, options) = (choice.plan(), self.settings.options(collective, bytes));
        let step = |operation: NodeOperation| {
            let NodeOperation { comes_before, collective: part, bytes, ranks } = operation;
            let (algorithm, rule) = decide(&Thresholds::of_this_machine(ranks, self.cpus), part, bytes, ranks, options);
            let because = match rule {
                SelectionRule::Requested => reason_of(decider, collective),
                rule => rule.to_string(),
            };
            let expected = self.settings.expected_us(ranks, part, bytes);
            let expected_us = expected.iter().find(|(choice, _)| *choice == algorithm).map(|(_, us)| *us);
            NodeStep {
                comes_before,
                collective: part.name(),
                bytes,
                ranks,
                algorithm: algorithm.name(),
                because,
                expected_us,
            }
        };
        Ok(leaders.on_nodes(collective, (bytes, options), CALL, requested)?.into_iter().map(step).collect())
    }

    /// The exchange between the leaders of several nodes, the reason, and the alternatives.
    fn between_nodes(
        &self,
        leaders: &LeaderChoice,
        collective: Collective,
        bytes: usize,
        order: FoldOrder,
    ) -> Result<(Decision, Vec<Alternative>), Error> {
        let (choice, decider) = self.settings.decided(collective, bytes);
        let exchange = leaders.exchange(collective, (bytes, order), CALL, choice.plan())?;
        let because = match exchange.rule {
            ExchangeRule::OnlyOne => "the exchange of this collective has no other".into(),
            ExchangeRule::Requested => reason_of(decider, collective),
            ExchangeRule::Variable => "EARLYBIRD_EXCHANGE".into(),
            ExchangeRule::UpTo(limit) => format!("vectors of up to {limit} bytes between nodes that share memory"),
            ExchangeRule::Above(limit) => format!("vectors of more than {limit} bytes between nodes that share memory"),
            ExchangeRule::Measured => "the least expected time by the costs of EARLYBIRD_TUNE".into(),
            ExchangeRule::Ordinary => "the least expected time at the costs of an ordinary Ethernet".into(),
        };
        let ranking = match collective {
            Collective::AllReduce => leaders.ranking(bytes, CALL, order),
            _ => Vec::new(),
        };
        let others = ranking.into_iter().map(|(name, seconds)| {
            let (algorithm, us) = (Choice::Plan(name).name(), (seconds * 1e9).round() / 1e3);
            Alternative { algorithm, expected_us: Some(us) }
        });
        Ok(((Choice::Plan(exchange.name).name(), because), others.collect()))
    }
}

/// The algorithm of an operation among the ranks of one node, and the rule.
fn decide(
    thresholds: &Thresholds,
    collective: Collective,
    bytes: usize,
    ranks: usize,
    options: CallOptions,
) -> (Algorithm, SelectionRule) {
    let (dtype, op) = CALL;
    let by_rank = folds_in_rank_order(collective, options.order, dtype, op, ranks);
    thresholds.decide(collective, options.algorithm, bytes, by_rank)
}

/// The algorithm that runs, and the reason.
type Decision = (&'static str, String);

/// The setting that decided, in words.
fn reason_of(decider: Decider, collective: Collective) -> String {
    match decider {
        Decider::Nothing => "nothing else was asked for".into(),
        Decider::AllCalls => "it was chosen for all calls (EARLYBIRD_ALGORITHM, set_algorithm)".into(),
        Decider::Table => {
            format!("it was chosen for this size of {} (EARLYBIRD_ALLREDUCE and its like)", collective.name())
        }
        Decider::Tuning => "it was measured to be the fastest (EARLYBIRD_TUNE)".into(),
    }
}
