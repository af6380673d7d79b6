//! The buffers of an operation: the caller's is buffer 0, the others are scratch memory allocated once.

use super::fold::Fold;
use super::program::{InstructionKind, Program, Span};
use crate::plan::Action;

/// Buffers 1 and up. Words of 16 bytes, so that every scalar type is aligned.
#[derive(Debug)]
pub(super) struct Buffers {
    scratch: Vec<Vec<u128>>,
    bytes: usize,
}

impl Buffers {
    pub(super) fn new(buffers: usize, bytes: usize) -> Self {
        let words = bytes.div_ceil(size_of::<u128>());
        Buffers { scratch: (0..buffers).map(|_| vec![0; words]).collect(), bytes }
    }

    /// Copies the data of a send into a packet.
    pub(super) fn gather(&self, program: &Program, instruction: u32, data: &[u8], room: &mut [u8]) {
        let instruction = &program.instructions[instruction as usize];
        let source = match instruction.source {
            0 => data,
            n => &bytemuck::cast_slice(&self.scratch[n as usize - 1])[..self.bytes],
        };
        let mut at = 0;
        for Span { first, end } in spans(program, instruction.spans) {
            room[at..at + end - first].copy_from_slice(&source[*first..*end]);
            at += end - first;
        }
    }

    /// Applies a received packet to its target buffer.
    pub(super) fn deliver(
        &mut self,
        program: &Program,
        instruction: u32,
        data: &mut [u8],
        payload: &[u8],
        fold: &impl Fold,
    ) {
        let instruction = &program.instructions[instruction as usize];
        let InstructionKind::Receive(action) = instruction.kind else {
            unreachable!("channels list receives as receives")
        };
        let target = match instruction.target {
            0 => data,
            n => &mut bytemuck::cast_slice_mut(&mut self.scratch[n as usize - 1])[..self.bytes],
        };
        let mut at = 0;
        for Span { first, end } in spans(program, instruction.spans) {
            apply(action, &mut target[*first..*end], &payload[at..at + end - first], fold);
            at += end - first;
        }
    }

    /// Executes a local step.
    pub(super) fn local(&mut self, program: &Program, instruction: u32, data: &mut [u8], fold: &impl Fold) {
        let instruction = &program.instructions[instruction as usize];
        let InstructionKind::Local(action) = instruction.kind else { unreachable!("only local steps are made ready") };
        let (source, target): (&[u8], &mut [u8]) = match (instruction.source as usize, instruction.target as usize) {
            (0, t) => (data, bytemuck::cast_slice_mut(&mut self.scratch[t - 1])),
            (s, 0) => (bytemuck::cast_slice(&self.scratch[s - 1]), data),
            (s, t) => match self.scratch.get_disjoint_mut([s - 1, t - 1]) {
                Ok([source, target]) => (bytemuck::cast_slice(source), bytemuck::cast_slice_mut(target)),
                Err(_) => unreachable!("the verifier refuses a local step within one buffer"),
            },
        };
        for Span { first, end } in spans(program, instruction.spans) {
            apply(action, &mut target[*first..*end], &source[*first..*end], fold);
        }
    }
}

fn spans(program: &Program, (first, end): (u32, u32)) -> &[Span] {
    &program.spans[first as usize..end as usize]
}

fn apply(action: Action, target: &mut [u8], incoming: &[u8], fold: &impl Fold) {
    match action {
        Action::Copy => target.copy_from_slice(incoming),
        Action::Reduce(side) => fold.fold(target, incoming, side),
    }
}
