//! Progress of one run of a program, by its three kinds of instruction: a local step, a send, a receive.

use super::buffers::Buffers;
use super::endpoint::Endpoint;
use super::fold::Fold;
use super::packets::{ExpectedPacket, PacketCursor, WINDOW};
use super::program::{InstructionKind, Program};
use super::transport::{Failure, PacketDecision, PacketHeader, Transport};

/// The progress of a run.
#[derive(Debug)]
pub(super) struct RunProgress {
    pub(super) operation: Option<u32>,
    /// Per instruction, the number of others that it still waits for.
    waits: Vec<u32>,
    cursors: Vec<PacketCursor>,
    /// Peers with messages left.
    pub(super) open: Vec<u32>,
    /// Local instructions that can be carried out.
    ready: Vec<u32>,
    pub(super) left: usize,
    in_round: Vec<u32>,
    lowest: usize,
}

impl RunProgress {
    pub(super) fn new(program: &Program) -> Self {
        let locals = program.instructions.iter().filter(|i| matches!(i.kind, InstructionKind::Local(_))).count();
        RunProgress {
            operation: None,
            waits: vec![0; program.instructions.len()],
            cursors: vec![PacketCursor::default(); program.channels.len()],
            open: Vec::with_capacity(program.channels.len()),
            ready: Vec::with_capacity(locals),
            left: 0,
            in_round: vec![0; program.per_round.len()],
            lowest: 0,
        }
    }

    /// True if no message is left to exchange with a peer.
    pub(super) fn is_complete(&self, program: &Program, channel: usize) -> bool {
        let (cursor, channel) = (self.cursors[channel], &program.channels[channel]);
        cursor.sent == channel.sends.len() && cursor.received == channel.receives.len()
    }

    /// A rank that this operation waits for: the sender of the earliest packet that has not arrived, if there is one.
    pub(super) fn awaited(&self, program: &Program) -> Option<usize> {
        let next = |channel: &u32| {
            let channel = *channel as usize;
            program.channels[channel].receives.get(self.cursors[channel].received)
        };
        let waiting = self.open.iter().filter(|channel| next(channel).is_some()).min_by_key(|channel| next(channel));
        waiting.or(self.open.first()).map(|channel| program.channels[*channel as usize].peer)
    }

    pub(super) fn begin(&mut self, program: &Program, operation: u32) {
        self.operation = Some(operation);
        self.waits.copy_from_slice(&program.waits);
        self.in_round.copy_from_slice(&program.per_round);
        self.cursors.fill(PacketCursor::default());
        self.open.clear();
        self.open.extend(0..program.channels.len() as u32);
        self.ready.clear();
        let local = |i: &u32| matches!(program.instructions[*i as usize].kind, InstructionKind::Local(_));
        self.ready.extend((0..program.waits.len() as u32).filter(|i| program.waits[*i as usize] == 0 && local(i)));
        self.left = program.instructions.len();
        self.lowest = 0;
        self.settle();
    }

    fn settle(&mut self) {
        while self.in_round.get(self.lowest) == Some(&0) {
            self.lowest += 1;
        }
    }

    fn complete(&mut self, program: &Program, done: u32) {
        let instruction = &program.instructions[done as usize];
        self.left -= 1;
        self.in_round[instruction.round as usize] -= 1;
        self.settle();
        for later in &program.after[instruction.after.0 as usize..instruction.after.1 as usize] {
            let waits = &mut self.waits[*later as usize];
            *waits -= 1;
            if *waits == 0 && matches!(program.instructions[*later as usize].kind, InstructionKind::Local(_)) {
                self.ready.push(*later);
            }
        }
    }

    pub(super) fn locals(
        &mut self,
        program: &Program,
        memory: &mut Buffers,
        data: &mut [u8],
        fold: &impl Fold,
    ) -> bool {
        let moved = !self.ready.is_empty();
        while let Some(next) = self.ready.pop() {
            memory.local(program, next, data, fold);
            self.complete(program, next);
        }
        moved
    }

    pub(super) fn send<T: Transport>(
        &mut self,
        program: &Program,
        channel: usize,
        endpoint: &mut Endpoint<T>,
        memory: &Buffers,
        data: &[u8],
        head: PacketHeader,
    ) -> Result<bool, Failure> {
        let sent = self.cursors[channel].sent;
        let Some(&next) = program.channels[channel].sends.get(sent) else { return Ok(false) };
        if self.waits[next as usize] > 0 {
            return Ok(false);
        }
        let head = PacketHeader { packet: sent as u32, ..head };
        let (peer, bytes) = (program.channels[channel].peer, program.instructions[next as usize].bytes);
        let accepted =
            endpoint.transport.post_send(peer, head, bytes, |room| memory.gather(program, next, data, room))?;
        if accepted {
            self.cursors[channel].sent += 1;
            self.complete(program, next);
        }
        Ok(accepted)
    }

    #[allow(clippy::too_many_arguments)] // the parts of a running operation, borrowed apart
    pub(super) fn receive<T: Transport>(
        &mut self,
        program: &Program,
        channel: usize,
        endpoint: &mut Endpoint<T>,
        memory: &mut Buffers,
        data: &mut [u8],
        fold: &impl Fold,
        head: PacketHeader,
    ) -> Result<bool, Failure> {
        let (cursor, Endpoint { transport, early, running, .. }) = (&mut self.cursors[channel], endpoint);
        let (peer, receives) = (program.channels[channel].peer, &program.channels[channel].receives);
        let Some(&next) = receives.get(cursor.received) else { return Ok(false) };
        while cursor.posted < receives.len().min(cursor.received + WINDOW) {
            transport.post_receive(peer, program.instructions[receives[cursor.posted] as usize].bytes)?;
            cursor.posted += 1;
        }
        let operation = head.operation;
        let ready = self.waits[next as usize] == 0;
        let queued = early.count(peer, operation);
        if queued > 0 && ready {
            // Another operation may have queued the packet, and could not check it.
            let due = ExpectedPacket {
                from: peer,
                to: program.rank,
                head: PacketHeader { packet: cursor.received as u32, ..head },
            };
            let bytes = program.instructions[next as usize].bytes;
            let wrong = early.take(peer, operation, |head, payload| match due.differs(head, payload.len() == bytes) {
                None => {
                    memory.deliver(program, next, data, payload, fold);
                    None
                }
                wrong => wrong,
            });
            if let Some(failure) = wrong.flatten() {
                return Err(failure);
            }
            cursor.received += 1;
            self.complete(program, next);
            return Ok(true);
        }
        // The transport's next packet of this operation comes after the queued ones.
        let due = cursor.received + queued;
        let Some(&coming) = receives.get(due) else { return Ok(false) };
        let instruction = &program.instructions[coming as usize];
        let may_block = instruction.round as usize <= self.lowest || running.several();
        let (mut applied, mut wrong) = (false, None);
        let leaves = !ready && !may_block;
        let expected =
            ExpectedPacket { from: peer, to: program.rank, head: PacketHeader { packet: due as u32, ..head } };
        let taken = transport.receive(peer, |head, payload| {
            if head.operation != operation && running.expects(head.operation) {
                early.keep(peer, head, payload);
                return PacketDecision::Consume;
            }
            if let Some(failure) = expected.differs(head, payload.len() == instruction.bytes) {
                wrong = Some(failure);
            } else if ready && queued == 0 {
                memory.deliver(program, next, data, payload, fold);
                applied = true;
            } else if leaves {
                return PacketDecision::Leave;
            } else {
                early.keep(peer, head, payload);
            }
            PacketDecision::Consume
        })?;
        if let Some(failure) = wrong {
            return Err(failure);
        }
        if applied {
            self.cursors[channel].received += 1;
            self.complete(program, next);
        }
        Ok(taken)
    }
}
