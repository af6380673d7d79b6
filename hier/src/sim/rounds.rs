//! The simulation of a plan round by round, with ports but without shared links.
//!
//! A rank's round depends on earlier rounds only, so rounds can be simulated one after another for all ranks although
//! ranks are in different rounds at any time. State is a few numbers per rank.

use super::call::{Call, Timeline};
use super::costs::{Costs, Duplex, Machine};
use super::port::{PortJob, busy_until, share};
use super::round_work::RoundWork;
use crate::plan::Plan;

/// A message of the round in progress.
#[derive(Debug, Clone, Copy)]
struct Delivery {
    to: u32,
    /// The earliest arrival of the first byte, and the time that the receiver's port needs for all bytes.
    job: PortJob,
    arrival_s: f64,
    receive_s: f64,
}

/// A rank's times in the round in progress.
#[derive(Debug, Clone, Copy, Default)]
struct RoundTimes {
    /// Time at which the last byte has left.
    sent_s: f64,
    /// Time at which the last message has arrived.
    received_s: f64,
    reduce_s: f64,
    /// The messages sent, as work for a port that is shared by both directions.
    out: Option<PortJob>,
}

pub(super) struct RoundSimulation<'a> {
    machine: &'a Machine,
    call: &'a Call<'a>,
    arrivals_s: Vec<f64>,
    /// Time at which a rank has finished its rounds so far.
    ready_s: Vec<f64>,
    /// Time from which a rank may start the next message.
    post_s: Vec<f64>,
    rounds: usize,
    messages: u64,
    bytes: f64,
}

impl<'a> RoundSimulation<'a> {
    pub(super) fn new(header: &Plan, machine: &'a Machine, call: &'a Call<'a>, arrivals_s: Vec<f64>) -> Self {
        let ready_s = arrivals_s.clone();
        let post_s = vec![0.0; ready_s.len()];
        Self { machine, call, arrivals_s, ready_s, post_s, rounds: header.rounds, messages: 0, bytes: 0.0 }
    }

    /// Runs rounds `first..end`; the plan may be without the steps of other rounds.
    pub(super) fn window(&mut self, plan: &Plan, first: i32, end: i32) {
        let mut next: Vec<usize> =
            plan.programs.iter().map(|program| program.partition_point(|step| step.round < first)).collect();
        let (mut messages, mut turns, mut part) = (Vec::new(), Vec::new(), RoundWork::default());
        for round in first..end {
            messages.clear();
            turns.clear();
            for (rank, program) in plan.programs.iter().enumerate() {
                let begin = next[rank];
                while program.get(next[rank]).is_some_and(|step| step.round == round) {
                    next[rank] += 1;
                }
                if begin < next[rank] {
                    part.read(plan, self.machine, self.call.bytes, &program[begin..next[rank]]);
                    let mut turn = self.send(round, rank, &part.sends, &mut messages);
                    turn.reduce_s = part.reduced * self.machine.inside.reduce_per_byte_s;
                    turns.push((rank, turn));
                }
            }
            self.receive(&mut messages, &mut turns);
            for (rank, turn) in &turns {
                let both = turn.sent_s.max(turn.received_s);
                self.ready_s[*rank] = self.ready_s[*rank].max(both) + turn.reduce_s;
            }
        }
    }

    pub(super) fn finish(self) -> Timeline {
        Timeline {
            arrivals_s: self.arrivals_s,
            exits_s: self.ready_s,
            rounds: self.rounds,
            messages: self.messages,
            bytes: self.bytes,
        }
    }

    fn costs(&self, from: usize, to: usize) -> &'a Costs {
        let node = |rank: usize| rank / self.machine.ranks_per_node;
        self.machine.level(node(from), node(to))
    }

    /// Sends the messages of a rank and computes when they leave and arrive.
    fn send(&mut self, round: i32, rank: usize, sends: &[(usize, f64)], messages: &mut Vec<Delivery>) -> RoundTimes {
        if sends.is_empty() {
            return RoundTimes::default();
        }
        let (mut overhead_s, mut gaps_s, mut work_s) = (0.0, 0.0, 0.0);
        for (nth, (to, bytes)) in sends.iter().enumerate() {
            let costs = self.costs(rank, *to);
            overhead_s += if nth == 0 { costs.send_s } else { costs.next_port_s.max(costs.gap_s) };
            gaps_s += costs.gap_s;
            work_s += bytes * costs.per_byte_s;
            self.bytes += bytes;
        }
        self.messages += sends.len() as u64;
        let from_s = self.ready_s[rank].max(self.post_s[rank]);
        let posted_s = from_s + overhead_s;
        self.post_s[rank] = from_s + gaps_s;
        let job = |(to, bytes): &(usize, f64)| {
            let waits = self.machine.eager_bytes.is_some_and(|limit| *bytes > limit);
            let release_s = if waits { posted_s.max(self.ready_s[*to]) } else { posted_s };
            PortJob { release_s, work_s: bytes * self.costs(rank, *to).per_byte_s }
        };
        let jobs: Vec<PortJob> = sends.iter().map(job).collect();
        let mut ends_s = Vec::new();
        share(&jobs, &mut ends_s);
        for (nth, ((to, _), (job, end_s))) in sends.iter().zip(jobs.iter().zip(&ends_s)).enumerate() {
            let costs = self.costs(rank, *to);
            let travel_s = costs.latency_s + self.call.jitter.delay_s(round, rank, *to, nth);
            messages.push(Delivery {
                to: *to as u32,
                job: PortJob { release_s: job.release_s + travel_s, work_s: job.work_s },
                arrival_s: end_s + travel_s,
                receive_s: costs.receive_s,
            });
        }
        let sent_s = ends_s.into_iter().fold(0.0, f64::max);
        RoundTimes { sent_s, out: Some(PortJob { release_s: posted_s, work_s }), ..RoundTimes::default() }
    }

    /// Computes when each rank has all its messages. `turns` is in order of ranks.
    fn receive(&self, messages: &mut [Delivery], turns: &mut [(usize, RoundTimes)]) {
        messages
            .sort_unstable_by(|a, b| (a.to, a.job.release_s).partial_cmp(&(b.to, b.job.release_s)).expect("finite"));
        let mut jobs: Vec<PortJob> = Vec::new();
        for incoming in messages.chunk_by(|a, b| a.to == b.to) {
            let rank = incoming[0].to as usize;
            let Ok(at) = turns.binary_search_by_key(&rank, |(rank, _)| *rank) else {
                unreachable!("every message has two ends")
            };
            let turn = &mut turns[at].1;
            jobs.clear();
            jobs.extend(incoming.iter().map(|m| m.job));
            if let (Duplex::Half, Some(out)) = (self.machine.duplex, turn.out) {
                jobs.push(out);
                jobs.sort_unstable_by(|a, b| a.release_s.total_cmp(&b.release_s));
            }
            let last_s = incoming.iter().map(|m| m.arrival_s).fold(0.0, f64::max);
            let overhead_s: f64 = incoming.iter().map(|m| m.receive_s).sum();
            turn.received_s = last_s.max(busy_until(jobs.iter().copied())).max(self.ready_s[rank]) + overhead_s;
        }
    }
}
