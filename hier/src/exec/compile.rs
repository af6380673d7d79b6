//! The compiler: makes one rank's flat program from a verified plan.
//!
//! Every message and every local step is cut into pieces of a segment, the same on both ends of a message. A piece
//! waits for the earlier pieces that touch the same bytes in a conflicting way, not for its round. A piece that has
//! arrived is therefore folded and sent on while the rest of its message is under way. Operands are still combined in
//! the order of the plan, because two folds into the same bytes wait for each other.

use super::access::AccessHistory;
use super::program::{Channel, Geometry, Instruction, InstructionKind, Program, Span};
use crate::plan::{Action, Blocks, Collective, Plan, Step, StepKind, offset};
use crate::verify::Verified;
use std::collections::BTreeMap;

/// Pieces begin on cache lines where elements allow it.
const LINE_BYTES: usize = 64;

/// The reason why a plan cannot be compiled for these sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The rank does not exist.
    #[error("rank {rank} of a plan for {ranks} ranks does not exist")]
    Rank {
        /// The requested rank.
        rank: usize,
        /// Ranks of the plan.
        ranks: usize,
    },
    /// Elements of no size, or segments smaller than an element.
    #[error(
        "elements of {element_bytes} bytes do not fit segments of {segment_bytes} bytes; give at least one element"
    )]
    Segment {
        /// Bytes of an element.
        element_bytes: usize,
        /// Bytes of a segment.
        segment_bytes: usize,
    },
    /// More bytes or more pieces than can be counted.
    #[error(
        "{elements} elements of {element_bytes} bytes in segments of {segment_bytes} are too many; use larger segments"
    )]
    TooLarge {
        /// Elements.
        elements: usize,
        /// Bytes of an element.
        element_bytes: usize,
        /// Bytes of a segment.
        segment_bytes: usize,
    },
}

/// Compiles `plan` for `rank`. Every rank must give the same geometry.
///
/// Cost: one pass over the rank's steps, O(log n) per piece for n pieces; memory a few words per piece.
///
/// # Errors
/// [`CompileError`] for impossible sizes.
pub fn compile(plan: &Verified<Plan>, rank: usize, geometry: Geometry) -> Result<Program, CompileError> {
    let Geometry { elements, element_bytes, segment_bytes } = geometry;
    if rank >= plan.ranks() {
        return Err(CompileError::Rank { rank, ranks: plan.ranks() });
    }
    if element_bytes == 0 || segment_bytes < element_bytes {
        return Err(CompileError::Segment { element_bytes, segment_bytes });
    }
    let too_large = CompileError::TooLarge { elements, element_bytes, segment_bytes };
    // a buffer has at most isize::MAX bytes
    let fits = elements.checked_mul(element_bytes).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if !fits {
        return Err(too_large);
    }
    let mut writer = Compiler::new(plan, rank, geometry);
    for steps in plan.programs[rank].chunk_by(|a, b| a.round == b.round) {
        // Sends read the state at the start of the round.
        let (sends, others): (Vec<_>, Vec<_>) =
            steps.iter().partition(|step| matches!(step.kind, StepKind::Send { .. }));
        sends.into_iter().chain(others).for_each(|step| writer.step(step));
        if writer.program.instructions.len() > u32::MAX as usize / 4 {
            return Err(too_large);
        }
    }
    writer.result(plan);
    Ok(writer.finish())
}

struct Compiler {
    program: Program,
    blocks: usize,
    histories: Vec<AccessHistory>,
    /// Per instruction, the instructions that it waits for.
    waits_for: Vec<Vec<u32>>,
    channels: BTreeMap<usize, Channel>,
}

impl Compiler {
    fn new(plan: &Plan, rank: usize, geometry: Geometry) -> Self {
        let mut digest = plan.digest();
        for word in [geometry.elements, geometry.element_bytes, geometry.segment_bytes] {
            digest = (digest ^ word as u64).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
        }
        let program = Program {
            rank,
            ranks: plan.ranks(),
            algorithm: plan.algorithm.clone(),
            collective: plan.collective,
            order: plan.order,
            consistent: plan.consistent,
            geometry,
            buffers: plan.buffers,
            digest,
            instructions: Vec::new(),
            spans: Vec::new(),
            after: Vec::new(),
            waits: Vec::new(),
            per_round: vec![0; plan.rounds + 2],
            channels: Vec::new(),
        };
        let histories = (0..plan.buffers).map(|_| AccessHistory::default()).collect();
        Compiler { program, blocks: plan.blocks, histories, waits_for: Vec::new(), channels: BTreeMap::new() }
    }

    fn step(&mut self, step: &Step) {
        let (kind, peer, source) = match step.kind {
            StepKind::Send { to } => (InstructionKind::Send, Some(to as usize), step.buffer),
            StepKind::Receive { from, action } => (InstructionKind::Receive(action), Some(from as usize), step.buffer),
            StepKind::Local { source, action } => (InstructionKind::Local(action), None, source),
        };
        let spans = self.spans_of(&step.blocks);
        self.pieces(peer, Instruction::new(kind, source, step.buffer, (step.round + 1) as u32), &spans);
    }

    /// Copies the result of the collective from the plan's result buffer into the caller's.
    fn result(&mut self, plan: &Plan) {
        let rank = self.program.rank;
        let promised = match plan.collective {
            Collective::Reduce if rank != plan.root => return,
            Collective::ReduceScatter => plan.own_blocks(rank),
            _ => 0..plan.blocks,
        };
        if plan.result != 0 {
            let spans = self.spans_of(&Blocks::range(promised.start, promised.end));
            let (copy, last) = (InstructionKind::Local(Action::Copy), plan.rounds as u32 + 1);
            self.pieces(None, Instruction::new(copy, plan.result as u32, 0, last), &spans);
        }
    }

    /// The bytes of a set of blocks; empty blocks are dropped and neighbours joined.
    fn spans_of(&self, blocks: &Blocks) -> Vec<Span> {
        let Geometry { elements, element_bytes, .. } = self.program.geometry;
        let byte = |block: u32| offset(block as usize, self.blocks, elements) * element_bytes;
        let mut spans: Vec<Span> = Vec::with_capacity(blocks.runs().len());
        for run in blocks.runs() {
            let span = Span { first: byte(run.first), end: byte(run.end) };
            match spans.last_mut() {
                _ if span.first == span.end => {}
                Some(last) if last.end == span.first => last.end = span.end,
                _ => spans.push(span),
            }
        }
        spans
    }

    /// Cuts an instruction on these bytes, which exchanges them with `peer` if there is one, into pieces.
    fn pieces(&mut self, peer: Option<usize>, whole: Instruction, spans: &[Span]) {
        let total: usize = spans.iter().map(|s| s.end - s.first).sum();
        let piece = piece_bytes(total, &self.program.geometry);
        let (mut left, mut begun) = (0, self.program.spans.len());
        for span in spans {
            let mut first = span.first;
            while first < span.end {
                let end = span.end.min(first + (piece - left));
                self.program.spans.push(Span { first, end });
                left += end - first;
                first = end;
                if left == piece {
                    self.piece(peer, whole, begun, left);
                    (left, begun) = (0, self.program.spans.len());
                }
            }
        }
        if left > 0 {
            self.piece(peer, whole, begun, left);
        }
    }

    /// Adds the piece of `whole` on the spans from number `begun` on.
    fn piece(&mut self, peer: Option<usize>, whole: Instruction, begun: usize, bytes: usize) {
        let Instruction { kind, source, target, round, .. } = whole;
        let me = self.program.instructions.len() as u32;
        let spans = (begun as u32, self.program.spans.len() as u32);
        let mut waits_for = Vec::new();
        for span in &self.program.spans[begun..] {
            if matches!(kind, InstructionKind::Send | InstructionKind::Local(_)) {
                self.histories[source as usize].read(*span, me, &mut waits_for);
            }
            if matches!(kind, InstructionKind::Receive(_) | InstructionKind::Local(_)) {
                self.histories[target as usize].write(*span, me, &mut waits_for);
            }
        }
        waits_for.sort_unstable();
        waits_for.dedup();
        self.waits_for.push(waits_for);
        self.program.instructions.push(Instruction { spans, bytes, ..whole });
        self.program.per_round[round as usize] += 1;
        if let Some(peer) = peer {
            let channel =
                self.channels.entry(peer).or_insert_with(|| Channel { peer, sends: Vec::new(), receives: Vec::new() });
            if kind == InstructionKind::Send { channel.sends.push(me) } else { channel.receives.push(me) }
        }
    }

    fn finish(mut self) -> Program {
        let program = &mut self.program;
        program.waits = self.waits_for.iter().map(|w| w.len() as u32).collect();
        let mut counts = vec![0u32; program.instructions.len()];
        self.waits_for.iter().flatten().for_each(|earlier| counts[*earlier as usize] += 1);
        let mut at = 0;
        for (instruction, count) in program.instructions.iter_mut().zip(&counts) {
            instruction.after = (at, at);
            at += count;
        }
        program.after = vec![0; at as usize];
        for (later, waits_for) in self.waits_for.iter().enumerate() {
            for earlier in waits_for {
                let end = &mut program.instructions[*earlier as usize].after.1;
                program.after[*end as usize] = later as u32;
                *end += 1;
            }
        }
        program.channels = self.channels.into_values().collect();
        self.program
    }
}

/// Bytes of the pieces of a message of `total` bytes: as few as the segment allows, equally long, on cache lines where
/// the segment and the elements allow it.
fn piece_bytes(total: usize, geometry: &Geometry) -> usize {
    let element = geometry.element_bytes;
    let most = geometry.segment_bytes / element * element;
    let pieces = total.div_ceil(most).max(1);
    let line = if LINE_BYTES.is_multiple_of(element) { LINE_BYTES } else { element };
    total.div_ceil(pieces).next_multiple_of(line).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_elements_and_no_more_than_a_segment() {
        for element_bytes in [1, 4, 8, 12, 24] {
            for segment_bytes in [24, 100, 4096] {
                for count in [1, 2, 7, 1000, 100_003] {
                    let piece =
                        piece_bytes(count * element_bytes, &Geometry { elements: count, element_bytes, segment_bytes });
                    assert!(piece > 0 && piece <= segment_bytes && piece.is_multiple_of(element_bytes));
                }
            }
        }
    }
}
