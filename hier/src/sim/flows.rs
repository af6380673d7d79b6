//! The simulation of a plan on a network: messages are flows that share ports and links by max-min fairness.
//!
//! Events in order of time: a rank enters its next round, a message starts to flow, a message has arrived. Between
//! them rates are constant; they are computed anew whenever a flow starts or ends. As without a network, a port is
//! shared by the messages of one round of its rank; a link is shared by all that cross it.

use super::call::{Call, Timeline, bad};
use super::costs::{Costs, Duplex, Machine};
use super::fair::{FairShares, ResourceUse};
use super::network::Network;
use super::round_work::RoundWork;
use crate::plan::{Plan, PlanError, Step};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Times that differ by rounding only are one time.
const SAME: f64 = 1e-12;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Enter(usize),
    Start(usize),
    Arrive(usize),
}

/// A message.
#[derive(Debug)]
struct Flow {
    from: usize,
    to: usize,
    round: i32,
    bytes: f64,
    left: f64,
    rate: f64,
    posted_s: f64,
    travel_s: f64,
    uses: Vec<ResourceUse>,
}

/// The sends and receives that a rank still waits for in its round.
#[derive(Debug, Clone, Copy, Default)]
struct RankRound {
    round: i32,
    entered_s: f64,
    sends: usize,
    receives: usize,
    receive_s: f64,
    reduce_s: f64,
    /// True after the end of the round; the entry stays, so that others see the rank's round.
    ended: bool,
}

/// Messages of a round that came to a rank.
#[derive(Debug, Clone, Copy, Default)]
struct Arrived {
    count: usize,
    last_s: f64,
}

struct FlowSimulation<'a> {
    plan: &'a Plan,
    machine: &'a Machine,
    network: &'a Network,
    call: &'a Call<'a>,
    now_s: f64,
    /// Times as bits: times are not negative, so bits are in the order of times.
    events: BinaryHeap<Reverse<(u64, Event)>>,
    flows: Vec<Flow>,
    active: Vec<usize>,
    next_step: Vec<usize>,
    turns: Vec<Option<RankRound>>,
    post_s: Vec<f64>,
    arrived: HashMap<(usize, i32), Arrived>,
    /// Long messages whose receiver has not reached the round.
    held: HashMap<(usize, i32), Vec<usize>>,
    ports: HashMap<(usize, i32, bool), usize>,
    part: RoundWork,
    exits_s: Vec<f64>,
    messages: u64,
    bytes: f64,
}

/// Runs the plan, whose messages must pair up.
pub(super) fn run(
    plan: &Plan,
    machine: &Machine,
    network: &Network,
    call: &Call,
    arrivals_s: Vec<f64>,
) -> Result<Timeline, PlanError> {
    let ranks = plan.ranks();
    if network.ranks() != ranks {
        return Err(bad(
            "topology",
            format!("a tree of {} ranks", network.ranks()),
            format!("{ranks} ranks, as in the plan"),
        ));
    }
    let mut run = FlowSimulation {
        plan,
        machine,
        network,
        call,
        now_s: 0.0,
        events: BinaryHeap::new(),
        flows: Vec::new(),
        active: Vec::new(),
        next_step: vec![0; ranks],
        turns: vec![None; ranks],
        post_s: vec![0.0; ranks],
        arrived: HashMap::new(),
        held: HashMap::new(),
        ports: HashMap::new(),
        part: RoundWork::default(),
        exits_s: arrivals_s.clone(),
        messages: 0,
        bytes: 0.0,
    };
    for (rank, arrival_s) in arrivals_s.iter().enumerate() {
        run.at(*arrival_s, Event::Enter(rank));
    }
    run.all();
    let FlowSimulation { exits_s, messages, bytes, .. } = run;
    Ok(Timeline { arrivals_s, exits_s, rounds: plan.rounds, messages, bytes })
}

impl<'a> FlowSimulation<'a> {
    fn at(&mut self, time_s: f64, what: Event) {
        self.events.push(Reverse((time_s.max(self.now_s).to_bits(), what)));
    }

    fn all(&mut self) {
        let (mut fair, mut rates) = (FairShares::default(), Vec::new());
        loop {
            let flows = &self.flows;
            let ends = self.active.iter().map(|f| self.now_s + flows[*f].left / flows[*f].rate);
            let end_s = ends.fold(f64::INFINITY, f64::min);
            let event_s = self.events.peek().map_or(f64::INFINITY, |Reverse((bits, _))| f64::from_bits(*bits));
            let next_s = end_s.min(event_s);
            if next_s == f64::INFINITY {
                return;
            }
            let passed_s = next_s - self.now_s;
            for f in &self.active {
                let flow = &mut self.flows[*f];
                // an infinite rate leaves nothing, also in no time
                flow.left = if flow.rate.is_finite() { flow.left - flow.rate * passed_s } else { 0.0 };
            }
            self.now_s = next_s;
            if self.handle_events(next_s * (1.0 + SAME)) {
                let uses: Vec<&[ResourceUse]> = self.active.iter().map(|f| &self.flows[*f].uses[..]).collect();
                fair.rates(self.resources(), &uses, &mut rates);
                for (f, rate) in self.active.iter().zip(&rates) {
                    self.flows[*f].rate = *rate;
                }
            }
        }
    }

    /// Handles the events up to a time. True if flows started or ended.
    fn handle_events(&mut self, until_s: f64) -> bool {
        let mut changed = false;
        let mut done = Vec::new();
        let flows = &self.flows;
        self.active.retain(|f| {
            let flow = &flows[*f];
            let ended = flow.left <= flow.bytes * SAME || self.now_s + flow.left / flow.rate <= until_s;
            if ended {
                done.push(*f);
            }
            !ended
        });
        for f in done {
            changed = true;
            self.leave(f);
        }
        while let Some(Reverse((bits, what))) = self.events.peek().copied()
            && f64::from_bits(bits) <= until_s
        {
            self.events.pop();
            self.now_s = self.now_s.max(f64::from_bits(bits));
            match what {
                Event::Enter(rank) => self.enter(rank),
                Event::Start(f) if self.flows[f].uses.iter().all(|(_, weight)| *weight == 0.0) => self.leave(f),
                Event::Start(f) if self.flows[f].bytes == 0.0 => self.leave(f),
                Event::Start(f) => {
                    changed = true;
                    self.active.push(f);
                }
                Event::Arrive(f) => {
                    let (to, round) = (self.flows[f].to, self.flows[f].round);
                    let arrived = self.arrived.entry((to, round)).or_default();
                    *arrived = Arrived { count: arrived.count + 1, last_s: self.now_s };
                    self.flows[f].uses = Vec::new();
                    self.check(to);
                }
            }
        }
        changed
    }

    /// The last byte of a flow has left its sender.
    fn leave(&mut self, f: usize) {
        let (from, travel_s) = (self.flows[f].from, self.flows[f].travel_s);
        self.at(self.now_s + travel_s, Event::Arrive(f));
        if let Some(turn) = &mut self.turns[from] {
            turn.sends -= 1;
        }
        self.check(from);
    }

    /// A rank begins its next round, or is done.
    fn enter(&mut self, rank: usize) {
        let steps = &self.plan.programs[rank][self.next_step[rank]..];
        let Some(Step { round, .. }) = steps.first() else {
            self.exits_s[rank] = self.now_s;
            return;
        };
        let steps = &steps[..steps.partition_point(|step| step.round <= *round)];
        self.next_step[rank] += steps.len();
        let mut part = std::mem::take(&mut self.part);
        part.read(self.plan, self.machine, self.call.bytes, steps);
        let first = self.flows.len();
        let (mut overhead_s, mut gaps_s) = (0.0, 0.0);
        for (nth, (to, bytes)) in part.sends.iter().enumerate() {
            let costs = self.costs(rank, *to);
            overhead_s += if nth == 0 { costs.send_s } else { costs.next_port_s.max(costs.gap_s) };
            gaps_s += costs.gap_s;
            self.create(rank, *to, *round, nth, *bytes);
        }
        let turn = RankRound {
            round: *round,
            entered_s: self.now_s,
            sends: part.sends.len(),
            receives: part.receives.len(),
            receive_s: part.receives.iter().map(|(from, _)| self.costs(*from, rank).receive_s).sum(),
            reduce_s: part.reduced * self.machine.inside.reduce_per_byte_s,
            ended: false,
        };
        self.part = part;
        let from_s = self.now_s.max(self.post_s[rank]);
        self.post_s[rank] = from_s + gaps_s;
        self.turns[rank] = Some(turn);
        for f in first..self.flows.len() {
            self.post(f, from_s + overhead_s);
        }
        for f in self.held.remove(&(rank, *round)).unwrap_or_default() {
            self.at(self.flows[f].posted_s, Event::Start(f));
        }
        self.check(rank);
    }

    fn costs(&self, from: usize, to: usize) -> &'a Costs {
        self.machine.level(self.network.machine(from), self.network.machine(to))
    }

    fn create(&mut self, from: usize, to: usize, round: i32, nth: usize, bytes: f64) {
        let costs = self.costs(from, to);
        let half = self.machine.duplex == Duplex::Half;
        let mut links = Vec::new();
        self.network.path(from, to, &mut links);
        let mut uses: Vec<ResourceUse> = links.into_iter().map(|link| (link, self.network.per_byte_s())).collect();
        for (rank, out) in [(from, true), (to, false)] {
            let next = self.network.links() + self.ports.len();
            let port = *self.ports.entry((rank, round, out && !half)).or_insert(next);
            uses.push((port, costs.per_byte_s));
        }
        let travel_s = costs.latency_s + self.call.jitter.delay_s(round, from, to, nth);
        self.flows.push(Flow { from, to, round, bytes, left: bytes, rate: 0.0, posted_s: 0.0, travel_s, uses });
        self.messages += 1;
        self.bytes += bytes;
    }

    fn resources(&self) -> usize {
        self.network.links() + self.ports.len()
    }

    /// Lets a flow start at `time_s`; a long one not before its receiver has reached the round.
    fn post(&mut self, f: usize, time_s: f64) {
        let (to, round) = (self.flows[f].to, self.flows[f].round);
        self.flows[f].posted_s = time_s;
        let there = self.turns[to].is_some_and(|turn| turn.round >= round);
        if self.machine.eager_bytes.is_some_and(|limit| self.flows[f].bytes > limit) && !there {
            self.held.entry((to, round)).or_default().push(f);
        } else {
            self.at(time_s, Event::Start(f));
        }
    }

    /// Ends the round of a rank if its sends and receives are complete.
    fn check(&mut self, rank: usize) {
        let Some(turn) = self.turns[rank].filter(|turn| !turn.ended) else { return };
        let arrived = self.arrived.get(&(rank, turn.round)).copied().unwrap_or_default();
        if turn.sends == 0 && turn.receives == arrived.count {
            self.turns[rank] = Some(RankRound { ended: true, ..turn });
            self.arrived.remove(&(rank, turn.round));
            let done_s = self.now_s.max(arrived.last_s.max(turn.entered_s) + turn.receive_s) + turn.reduce_s;
            self.at(done_s, Event::Enter(rank));
        }
    }
}
