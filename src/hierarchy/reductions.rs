//! Reductions over several nodes, and the barrier: the three phases, segment by segment.
//!
//! ```text
//! leader     reduce 0 | start 0 | reduce 1 | start 1 | finish 0 | broadcast 0 | reduce 2 | start 2 | finish 1 | ...
//! network              ~~~~~~~~~~~~~~~~ 0 ~~~~~~~~~~~~~~~~       ~~~~~~~~~~~~~ 1 ~~~~~~~~~~~~~~~~
//! others     give 0   | give 1  | ............................. | take 0      | give 2  | ...      | take 1 | ...
//! ```
//!
//! *reduce s* folds segment s of the node's ranks into the leader's buffer, *start s* and *finish s* run the plan between
//! leaders on it, *broadcast s* gives it to the node. A rank that gives leaves as soon as its data is stored, so the
//! others fold and wait for the last of them while the exchange of the segment before is under way. Short messages are one
//! segment: the three phases one after the other.
//!
//! With several endpoints per node, here two, each has every second segment, and exchanges it while the others exchange theirs:
//!
//! ```text
//! leader     reduce 0 | start 0 | give 1             | reduce 2 | ... | finish 0 | broadcast 0 | take 1      | ...
//! second     give 0             | reduce 1 | start 1 | give 2   | ... | finish 1 | take 0      | broadcast 1 | ...
//! ```

use super::{Call, Fold, Hierarchy, Phases};
use crate::plans::{self, Shape, Work};
use crate::{DType, Error, FoldOrder, Op};
use earlybird_hier::OpTraits;
use earlybird_hier::exec::Parts;
use earlybird_hier::plan;
use earlybird_shm::bytes::ByteFold;
use earlybird_shm::{CollectiveArgs, ReduceOp};

/// Longer messages are cut into segments of about this many bytes: long enough that a segment's three phases cost by
/// bytes and not by rounds, short enough that the first and the last, which overlap with nothing, are a small part.
pub(super) const SEGMENT_BYTES: usize = 512 << 10;

/// Where nothing overlaps a segment is only worth its rounds and its place in the caches: so many bytes, of messages longer than
/// two segments.
const CROWDED_BYTES: usize = 2 << 20;

/// Elements of each segment of an allreduce: as many segments as give every endpoint equally many, where there are several.
fn segment(elements: usize, size: usize, is_crowded: bool, endpoints: usize) -> usize {
    const LINE: usize = 64;
    let bytes = elements * size;
    let most = if is_crowded && bytes > 2 * SEGMENT_BYTES { CROWDED_BYTES } else { SEGMENT_BYTES };
    let segments = match bytes {
        0..=SEGMENT_BYTES => 1,
        _ => bytes.div_ceil(most).next_multiple_of(endpoints),
    };
    elements.div_ceil(segments).next_multiple_of(LINE).max(1)
}

/// A part of the contribution, which lies in `recv` where there is no send buffer.
pub(super) fn part<'a>(send: Option<&'a [u8]>, recv: &'a [u8], first: usize) -> &'a [u8] {
    match send {
        Some(send) => &send[first..first + recv.len()],
        None => recv,
    }
}

impl Hierarchy {
    /// Reduces `send` of all ranks, or `recv` in place, into `recv` of every rank.
    pub(crate) fn all_reduce(
        &self,
        call: &Call<'_>,
        (dtype, op): (DType, Op),
        send: Option<&[u8]>,
        recv: &mut [u8],
    ) -> Result<(), Error> {
        let exact = !dtype.is_inexact(op);
        let traits = OpTraits { commutative: exact || call.options.order == FoldOrder::Arrival, exact };
        let name = self.exchange_for(call.exchange, recv.len(), traits)?;
        let (work, call_hash) = (Work::Fold(dtype, op), call.signature.hash());
        let shape = Shape {
            name,
            collective: plan::Collective::Allreduce,
            root: 0,
            elements: 0,
            work,
            call: call_hash,
            turn: 0,
        };
        self.carry_out(call, name, Some(shape), |phases| phases.all_reduce(shape, send, recv, (dtype, op)))
    }

    /// Reduces `send` of all ranks, or `recv` in place, into `recv` of `root`; no other rank's is touched.
    pub(crate) fn reduce(
        &self,
        call: &Call<'_>,
        root: usize,
        (dtype, op): (DType, Op),
        send: Option<&[u8]>,
        recv: &mut [u8],
    ) -> Result<(), Error> {
        let (home, _) = self.topology.place(root);
        let work = Work::Fold(dtype, op);
        let elements = send.map_or(recv.len(), <[u8]>::len) / dtype.size();
        let (name, collective) = ("binomial", plan::Collective::Reduce);
        let shape = Shape { name, collective, root: home, elements, work, call: call.signature.hash(), turn: 0 };
        self.carry_out(call, name, Some(shape), |phases| phases.reduce(shape, root, send, recv, (dtype, op)))
    }

    /// Returns when every rank has called it.
    pub(crate) fn barrier(&self, call: &Call<'_>) -> Result<(), Error> {
        let shape = plans::barrier(call.signature.hash());
        self.carry_out(call, shape.name, Some(shape), |phases| {
            phases.on_node(CollectiveArgs::barrier())?;
            if phases.topology.leads() {
                phases.plans.run(shape, &mut [0])?;
            }
            phases.on_node(CollectiveArgs::barrier())
        })
    }

    /// Reduces `send` of all ranks and gives rank `r` its `lens[r]` bytes in `recv`.
    pub(crate) fn reduce_scatter(
        &self,
        call: &Call<'_>,
        (dtype, op): (DType, Op),
        send: &[u8],
        recv: &mut [u8],
        lens: &[usize],
    ) -> Result<(), Error> {
        // As the plans do: refused by all ranks before anything is shared.
        let kernel = ByteFold::new(dtype, op)?;
        let combine = |_: &Phases<'_>, mine: &mut [u8], theirs: &[u8]| {
            kernel.fold(mine, theirs, false);
            Ok(())
        };
        self.carry_out(call, "direct", None, |phases| {
            phases.reduce_scatter(send.to_vec(), lens, builtin(dtype, op), combine, recv)
        })
    }
}

fn builtin<'a>(dtype: DType, op: Op) -> Fold<'a> {
    Fold { datatype: dtype.into(), op: ReduceOp::Builtin(op) }
}

impl Phases<'_> {
    fn all_reduce(
        &mut self,
        shape: Shape,
        send: Option<&[u8]>,
        recv: &mut [u8],
        (dtype, op): (DType, Op),
    ) -> Result<(), Error> {
        let (endpoints, mine, size) = (self.topology.endpoints(), self.topology.local(), dtype.size());
        let length = size * segment(recv.len() / size, size, self.is_crowded, endpoints);
        let mut segments: Vec<&mut [u8]> = recv.chunks_mut(length).collect();
        if segments.is_empty() {
            // Nobody waits for anybody where there is nothing to reduce; a different call shows all the same.
            segments.push(&mut []);
        }
        let count = segments.len();
        let of_round = |round: usize| (round * endpoints).min(count)..((round + 1) * endpoints).min(count);
        let of =
            |s: usize, data: &[u8]| Shape { elements: data.len() / size, turn: (s / endpoints) as u8 % 2, ..shape };
        let shapes: Vec<Shape> = segments.iter().enumerate().map(|(s, data)| of(s, data)).collect();
        if self.topology.is_endpoint() {
            shapes.iter().skip(mine).step_by(endpoints).try_for_each(|shape| self.plans.prepare(*shape))?;
        }
        for round in 0..=count.div_ceil(endpoints) {
            for s in of_round(round) {
                let (root, recv) = (s % endpoints, &mut *segments[s]);
                let send = send.map(|send| &send[s * length..s * length + recv.len()]);
                self.reduce_on_node(root, send, recv, builtin(dtype, op))?;
                if root == mine {
                    self.plans.start(shapes[s], recv)?;
                }
            }
            let Some(done) = round.checked_sub(1) else { continue };
            if let Some(s) = of_round(done).find(|s| s % endpoints == mine) {
                let (first, rest) = segments[s..].split_at_mut(1);
                let next = rest.get_mut(endpoints - 1).map(|data| (shapes[s + endpoints], &mut **data));
                self.plans.finish(shapes[s], first[0], next)?;
            }
            for s in of_round(done) {
                self.broadcast_on_node(segments[s], s % endpoints)?;
            }
        }
        Ok(())
    }

    fn reduce(
        &mut self,
        shape: Shape,
        root: usize,
        send: Option<&[u8]>,
        recv: &mut [u8],
        (dtype, op): (DType, Op),
    ) -> Result<(), Error> {
        let ((home, local), fold) = (self.topology.place(root), builtin(dtype, op));
        let is_root = self.topology.rank() == root;
        if !self.topology.leads() {
            self.reduce_on_node(0, Some(send.unwrap_or(recv)), &mut [], fold)?;
        } else if is_root {
            self.reduce_on_node(0, send, recv, fold)?;
            self.plans.run(shape, recv)?;
        } else {
            // The caller's buffer stays as it is.
            let mut partial = send.unwrap_or(recv).to_vec();
            self.reduce_on_node(0, None, &mut partial, fold)?;
            self.plans.run(shape, &mut partial)?;
            if self.topology.node() == home {
                return self.hand_over(&partial, &mut [], 0, local);
            }
        }
        match (self.topology.node() == home && local != 0, is_root) {
            (true, true) => self.hand_over(&[], recv, 0, local),
            // The others of that node take part without data.
            (true, false) => self.hand_over_of(shape.elements * dtype.size(), &[], &mut [], 0, local),
            (false, _) => Ok(()),
        }
    }

    /// Reduces the nodes' vectors to their leaders; `combine` puts what another node sends to the right of what is there.
    pub(super) fn reduce_scatter(
        &mut self,
        mut partial: Vec<u8>,
        lens: &[usize],
        fold: Fold<'_>,
        combine: impl Fn(&Self, &mut [u8], &[u8]) -> Result<(), Error>,
        recv: &mut [u8],
    ) -> Result<(), Error> {
        self.reduce_on_node(0, None, &mut partial, fold)?;
        let here: Vec<usize> = self.topology.here().iter().map(|&rank| lens[rank]).collect();
        let mut mine = vec![0u8; here.iter().sum()];
        if self.topology.leads() {
            // Each node's part of the vector, in the order of its ranks.
            let ours: Vec<Vec<u8>> =
                (0..self.topology.nodes()).map(|node| self.topology.pick(&partial, lens, node)).collect();
            let me = self.topology.node();
            let mut theirs = vec![vec![0u8; mine.len()]; ours.len()];
            theirs[me].copy_from_slice(&ours[me]);
            let mut parts: Vec<Parts<'_>> =
                ours.iter().zip(&mut theirs).map(|(send, receive)| Parts { send, receive }).collect();
            self.plans.exchange(self.call, &mut parts)?;
            mine.copy_from_slice(&theirs[0]);
            theirs[1..].iter().try_for_each(|of_node| combine(self, &mut mine, of_node))?;
        }
        self.deal(&here, &mine, recv)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_whole_lines_and_few() {
        for (elements, size, expected) in [(0, 8, 64), (1, 8, 64), (65_536, 8, 65_536), (100_003, 8, 50_048)] {
            let length = segment(elements, size, false, 1);
            assert_eq!(length.max(64), expected.max(64), "{elements}");
            assert!(length * size <= SEGMENT_BYTES + 64 * size);
        }
        assert_eq!(segment(131_072, 8, true, 1), 65_536, "two segments");
        for elements in [131_073usize, 262_144, 1 << 20] {
            let segments = elements.div_ceil(segment(elements, 8, true, 1));
            assert_eq!(segments, (8 * elements).div_ceil(CROWDED_BYTES), "{elements}");
        }
        // A part for each of three endpoints, but none of a message that is one segment.
        for (elements, is_crowded, expected) in
            [(65_536usize, false, 1), (65_537, false, 3), (196_609, false, 6), (196_608, true, 3), (65_536, true, 1)]
        {
            assert_eq!(elements.div_ceil(segment(elements, 8, is_crowded, 3)), expected, "{elements}");
        }
    }
}
