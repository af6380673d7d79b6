//! How far one run of a program has come, and the three things it can do next: a local step, a send, a receive.

use super::endpoint::Endpoint;
use super::fold::Fold;
use super::memory::Memory;
use super::program::{Kind, Program};
use super::transport::{Failure, Head, Take, Transport};

/// Packets per sender that are announced ahead.
const WINDOW: usize = 4;

/// How far a run has come.
#[derive(Debug)]
pub(super) struct State {
    pub(super) operation: Option<u32>,
    /// Per instruction, how many others it still waits for.
    waits: Vec<u32>,
    cursors: Vec<Cursor>,
    /// Lanes with something left.
    pub(super) open: Vec<u32>,
    /// Local instructions that can be carried out.
    ready: Vec<u32>,
    pub(super) left: usize,
    in_round: Vec<u32>,
    lowest: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    sent: usize,
    received: usize,
    posted: usize,
}

impl State {
    pub(super) fn new(program: &Program) -> Self {
        let locals = program.instructions.iter().filter(|i| matches!(i.kind, Kind::Local(_))).count();
        State {
            operation: None,
            waits: vec![0; program.instructions.len()],
            cursors: vec![Cursor::default(); program.lanes.len()],
            open: Vec::with_capacity(program.lanes.len()),
            ready: Vec::with_capacity(locals),
            left: 0,
            in_round: vec![0; program.per_round.len()],
            lowest: 0,
        }
    }

    /// Whether nothing is left in a lane.
    pub(super) fn is_through(&self, program: &Program, lane: usize) -> bool {
        let (cursor, lane) = (self.cursors[lane], &program.lanes[lane]);
        cursor.sent == lane.sends.len() && cursor.received == lane.receives.len()
    }

    /// A rank that this operation waits for: the sender of the earliest packet that has not come, if there is one.
    pub(super) fn awaited(&self, program: &Program) -> Option<usize> {
        let next = |lane: &u32| {
            let lane = *lane as usize;
            program.lanes[lane].receives.get(self.cursors[lane].received)
        };
        let waiting = self.open.iter().filter(|lane| next(lane).is_some()).min_by_key(|lane| next(lane));
        waiting.or(self.open.first()).map(|lane| program.lanes[*lane as usize].peer)
    }

    pub(super) fn begin(&mut self, program: &Program, operation: u32) {
        self.operation = Some(operation);
        self.waits.copy_from_slice(&program.waits);
        self.in_round.copy_from_slice(&program.per_round);
        self.cursors.fill(Cursor::default());
        self.open.clear();
        self.open.extend(0..program.lanes.len() as u32);
        self.ready.clear();
        let local = |i: &u32| matches!(program.instructions[*i as usize].kind, Kind::Local(_));
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
            if *waits == 0 && matches!(program.instructions[*later as usize].kind, Kind::Local(_)) {
                self.ready.push(*later);
            }
        }
    }

    pub(super) fn locals(&mut self, program: &Program, memory: &mut Memory, data: &mut [u8], fold: &impl Fold) -> bool {
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
        lane: usize,
        endpoint: &mut Endpoint<T>,
        memory: &Memory,
        data: &[u8],
        head: Head,
    ) -> Result<bool, Failure> {
        let sent = self.cursors[lane].sent;
        let Some(&next) = program.lanes[lane].sends.get(sent) else { return Ok(false) };
        if self.waits[next as usize] > 0 {
            return Ok(false);
        }
        let head = Head { packet: sent as u32, ..head };
        let (peer, bytes) = (program.lanes[lane].peer, program.instructions[next as usize].bytes);
        let gone = endpoint.transport.post_send(peer, head, bytes, |room| memory.gather(program, next, data, room))?;
        if gone {
            self.cursors[lane].sent += 1;
            self.complete(program, next);
        }
        Ok(gone)
    }

    #[allow(clippy::too_many_arguments)] // the parts of a running operation, borrowed apart
    pub(super) fn receive<T: Transport>(
        &mut self,
        program: &Program,
        lane: usize,
        endpoint: &mut Endpoint<T>,
        memory: &mut Memory,
        data: &mut [u8],
        fold: &impl Fold,
        head: Head,
    ) -> Result<bool, Failure> {
        let (cursor, Endpoint { transport, stash, running, .. }) = (&mut self.cursors[lane], endpoint);
        let (peer, receives) = (program.lanes[lane].peer, &program.lanes[lane].receives);
        let Some(&next) = receives.get(cursor.received) else { return Ok(false) };
        while cursor.posted < receives.len().min(cursor.received + WINDOW) {
            transport.post_receive(peer, program.instructions[receives[cursor.posted] as usize].bytes)?;
            cursor.posted += 1;
        }
        let operation = head.operation;
        let ready = self.waits[next as usize] == 0;
        let kept = stash.count(peer, operation);
        if kept > 0 && ready {
            // Others may have put it aside, who could not tell whether it fits.
            let due = Due { from: peer, to: program.rank, head: Head { packet: cursor.received as u32, ..head } };
            let bytes = program.instructions[next as usize].bytes;
            let wrong = stash.take(peer, operation, |head, payload| match due.differs(head, payload.len() == bytes) {
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
        // What the transport has next for this operation, behind what was put aside.
        let due = cursor.received + kept;
        let Some(&coming) = receives.get(due) else { return Ok(false) };
        let instruction = &program.instructions[coming as usize];
        let aside = instruction.round as usize <= self.lowest || running.several();
        let (mut applied, mut wrong) = (false, None);
        let lowest_cannot_block = !ready && !aside;
        let expected = Due { from: peer, to: program.rank, head: Head { packet: due as u32, ..head } };
        let taken = transport.receive(peer, |head, payload| {
            if head.operation != operation && running.expects(head.operation) {
                stash.keep(peer, head, payload);
                return Take::Taken;
            }
            if let Some(failure) = expected.differs(head, payload.len() == instruction.bytes) {
                wrong = Some(failure);
            } else if ready && kept == 0 {
                memory.deliver(program, next, data, payload, fold);
                applied = true;
            } else if lowest_cannot_block {
                return Take::Left;
            } else {
                stash.keep(peer, head, payload);
            }
            Take::Taken
        })?;
        if let Some(failure) = wrong {
            return Err(failure);
        }
        if applied {
            self.cursors[lane].received += 1;
            self.complete(program, next);
        }
        Ok(taken)
    }
}

/// The packet that comes next from one rank to another.
pub(super) struct Due {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) head: Head,
}

impl Due {
    /// What it means that this one came instead, if it is another one.
    pub(super) fn differs(&self, came: Head, fits: bool) -> Option<Failure> {
        let Due { from, to, head: due } = *self;
        if came.operation == due.operation && came.call != due.call {
            return Some(Failure::Mismatch { rank_a: from.min(to), rank_b: from.max(to) });
        }
        let is_due = came == due && fits;
        (!is_due).then_some(Failure::Lost { from, to, expected: due.packet, found: came.packet })
    }
}
