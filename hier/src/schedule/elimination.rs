//! 3-to-2 and 2-to-1 elimination: any number of ranks, ordered, identical bits.
//!
//! 3-2: groups of equal size pair up level by level; an odd number of groups starts with a triple, in which the
//! third member sends its share to the first two and is eliminated. 2-1, for odd q: one triple, M quadruples in which
//! one pair is eliminated, A pairs; from then on a plain butterfly of the largest power of two q' below q.
//! The bandwidth form splits the data at every exchange and is undone step by step; the latency form sends it whole
//! and serves eliminated ranks in one last round. `mixed:N`: factors of two first, the first N dimensions split.
//!
//! Cost for P = 2^k·q, q odd: latency L + [q>1] rounds and whole vectors on the critical path, L reductions;
//! bandwidth 2L rounds, 2(1 - 2^-k) + 2^-k·2(3/2 - 1/q') of m sent, half of it reduced. Source: RS.

use super::arithmetic::floor_log2;
use super::frame::{self, Dimension, FoldLine, FoldedLine, Line, Region, ReturnMessage};
use super::params::Params;
use crate::plan::{Action, Blocks, Collective, Plan, PlanBuilder, PlanError, Side};
use std::collections::HashMap;

pub(super) fn plan_3_2(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    make("elimination-3-2", fold_3_2, params, collective)
}

pub(super) fn plan_2_1(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    make("elimination-2-1", fold_2_1, params, collective)
}

fn make(name: &str, fold: FoldLine, params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let n = params.ranks;
    let twos = n.trailing_zeros() as usize;
    let odd = n >> twos;
    let mut dims = vec![pairs(); twos];
    if odd > 1 {
        dims.push(dimension(odd, fold));
    }
    let protocol = params.protocol.unwrap_or_default();
    frame::split(name, &mut dims, protocol)?;
    let blocks = frame::blocks(&dims);
    let mut b = params.builder(name, n, blocks);
    b.collective(collective, 0).parameter("protocol", protocol);
    frame::allreduce(&mut b, &dims, blocks);
    Ok(b.finish())
}

/// A dimension whose lines keep a power of two of their ranks.
fn dimension(size: usize, fold: FoldLine) -> Dimension {
    Dimension::new(size, fold, 1 << floor_log2(size))
}

/// A dimension of pairs.
pub(super) fn pairs() -> Dimension {
    dimension(2, fold_3_2)
}

/// The exchanges of one line while they are written.
struct LineWriter<'a, 'b> {
    b: &'a mut PlanBuilder,
    line: &'b Line<'b>,
    region: HashMap<usize, Region>,
    // (round within the line, sender, receiver, blocks), to be undone
    done: Vec<(usize, usize, usize, Blocks)>,
    rounds: usize,
}

impl LineWriter<'_, '_> {
    /// Sends the given part of the region, which in the latency form is the whole region.
    fn send(&mut self, round: usize, from: usize, to: usize, part: Region, side: Side) {
        let blocks = Blocks::range(part.0, part.1);
        self.b.message(self.line.round + round, from, to, 0, 0, blocks.clone(), Action::Reduce(side));
        self.rounds = self.rounds.max(round + 1);
        self.done.push((round, from, to, blocks));
    }

    /// The two parts of a rank's region: halves in the bandwidth form, twice the whole otherwise.
    fn halves(&self, rank: usize) -> (Region, Region) {
        let (lo, hi) = self.region[&rank];
        match self.line.bandwidth {
            true => ((lo, (lo + hi) / 2), ((lo + hi) / 2, hi)),
            false => ((lo, hi), (lo, hi)),
        }
    }

    /// a, before b in rank order, keeps the first half, b the second.
    fn pair(&mut self, round: usize, a: usize, b: usize) {
        let (first, second) = self.halves(a);
        self.send(round, a, b, second, Side::Left);
        self.send(round, b, a, first, Side::Right);
        self.region.insert(a, first);
        self.region.insert(b, second);
    }

    /// p0, p1, p2 in rank order; p2 is eliminated.
    fn triple(&mut self, round: usize, [p0, p1, p2]: [usize; 3]) {
        let (first, second) = self.halves(p0);
        self.send(round, p1, p2, first, Side::Left);
        self.send(round, p2, p1, second, Side::Right);
        self.send(round + 1, p0, p1, second, Side::Left);
        self.send(round + 1, p2, p0, first, Side::Right);
        self.region.insert(p0, first);
        self.region.insert(p1, second);
        self.region.remove(&p2);
    }

    fn finish(self) -> FoldedLine {
        let regions: Vec<Option<Region>> = self.line.ranks.iter().map(|r| self.region.get(r).copied()).collect();
        let back = if self.line.bandwidth {
            let last = self.rounds;
            let undo =
                |(round, from, to, blocks)| ReturnMessage { round: last - 1 - round, from: to, to: from, blocks };
            self.done.into_iter().map(undo).collect()
        } else {
            // fewer ranks are eliminated than survive, so one round on one port serves them all
            let (survivors, eliminated): (Vec<usize>, Vec<usize>) =
                self.line.ranks.iter().partition(|r| self.region.contains_key(*r));
            let whole = Blocks::range(self.line.region.0, self.line.region.1);
            let serve =
                |(from, to): (&usize, &usize)| ReturnMessage { round: 0, from: *from, to: *to, blocks: whole.clone() };
            survivors.iter().zip(&eliminated).map(serve).collect()
        };
        FoldedLine { rounds: self.rounds, regions, back }
    }
}

fn writer<'a, 'b>(b: &'a mut PlanBuilder, line: &'b Line<'b>) -> LineWriter<'a, 'b> {
    let region = line.ranks.iter().map(|r| (*r, line.region)).collect();
    LineWriter { b, line, region, done: Vec::new(), rounds: 0 }
}

/// A group of ranks with the same regions as others of its level, member by member; `late` groups are one round behind.
struct RankGroup {
    members: Vec<usize>,
    late: bool,
}

/// 3-2 elimination of a line of any length of at least 2.
fn fold_3_2(b: &mut PlanBuilder, line: &Line<'_>) -> FoldedLine {
    let mut w = writer(b, line);
    let mut groups: Vec<RankGroup> = line.ranks.iter().map(|r| RankGroup { members: vec![*r], late: false }).collect();
    for level in 0..floor_log2(line.ranks.len()) {
        let mut next = Vec::new();
        let mut rest = &groups[..];
        if groups.len() % 2 == 1 {
            let [g0, g1, g2] = [&groups[0], &groups[1], &groups[2]];
            for j in 0..g0.members.len() {
                w.triple(level, [g0.members[j], g1.members[j], g2.members[j]]);
            }
            next.push(RankGroup { members: [&g0.members[..], &g1.members].concat(), late: true });
            rest = &groups[3..];
        }
        for pair in rest.chunks(2) {
            let (a, c) = (&pair[0], &pair[1]);
            let late = a.late || c.late;
            for (x, y) in a.members.iter().zip(&c.members) {
                w.pair(level + usize::from(late), *x, *y);
            }
            next.push(RankGroup { members: [&a.members[..], &c.members].concat(), late });
        }
        groups = next;
    }
    w.finish()
}

/// 2-1 elimination of a line of odd length of at least 3.
fn fold_2_1(b: &mut PlanBuilder, line: &Line<'_>) -> FoldedLine {
    let ranks = line.ranks;
    let q = ranks.len();
    let power = 1 << floor_log2(q);
    let quadruples = (q - power - 1) / 2;
    let mut w = writer(b, line);
    w.triple(0, [ranks[0], ranks[1], ranks[2]]);
    let mut groups = vec![vec![ranks[0], ranks[1]]];
    let (fours, twos) = ranks[3..].split_at(4 * quadruples);
    for four in fours.chunks(4) {
        w.pair(0, four[0], four[1]);
        w.pair(0, four[2], four[3]);
        for (kept, given) in [(four[0], four[2]), (four[1], four[3])] {
            let part = w.region[&given];
            w.send(1, given, kept, part, Side::Right);
            w.region.remove(&given);
        }
        groups.push(four[..2].to_vec());
    }
    for two in twos.chunks(2) {
        w.pair(0, two[0], two[1]);
        groups.push(two.to_vec());
    }
    let mut round = 2;
    while groups.len() > 1 {
        let mut next = Vec::new();
        for pair in groups.chunks(2) {
            for (x, y) in pair[0].iter().zip(&pair[1]) {
                w.pair(round, *x, *y);
            }
            next.push(pair.concat());
        }
        groups = next;
        round += 1;
    }
    w.finish()
}
