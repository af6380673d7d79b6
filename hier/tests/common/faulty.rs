//! A transport that delays, reorders across peers, loses packets and dies, chosen by a seed.

use earlybird_hier::exec::{Failure, PacketDecision, PacketHeader, Transport};

/// The faults of a transport; none by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Chooses all draws.
    pub seed: u64,
    /// One in so many receives holds that sender's packets back for some receives (0: never), which changes the order
    /// between senders.
    pub hold_one_in: u32,
    /// One in so many sends finds no room (0: never).
    pub refuse_one_in: u32,
    /// The packet with this number, counted from 0 over all receivers, is lost.
    pub lose: Option<u64>,
    /// The rank is gone before it sends the packet with this number.
    pub die_before: Option<u64>,
}

/// A transport with injected faults.
#[derive(Debug)]
pub struct Faulty<T> {
    /// None once this rank is dead.
    inner: Option<T>,
    rank: usize,
    size: usize,
    packet_bytes: usize,
    faults: Faults,
    state: u64,
    sent: u64,
    /// Per sender, the number of receives for which it is still held back.
    held: Vec<u32>,
}

impl<T: Transport> Faulty<T> {
    /// Wraps a transport.
    pub fn new(inner: T, faults: Faults) -> Self {
        let (rank, size, packet_bytes) = (inner.rank(), inner.size(), inner.packet_bytes());
        let state = faults.seed ^ (rank as u64) << 32;
        Faulty { inner: Some(inner), rank, size, packet_bytes, faults, state, sent: 0, held: vec![0; size] }
    }

    /// SplitMix64: small, and any seed will do.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn one_in(&mut self, n: u32) -> bool {
        n > 0 && self.draw().is_multiple_of(u64::from(n))
    }

    fn alive(&mut self) -> Result<&mut T, Failure> {
        self.inner.as_mut().ok_or(Failure::PeerDied { rank: self.rank })
    }
}

impl<T: Transport> Transport for Faulty<T> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    fn post_send(
        &mut self,
        to: usize,
        head: PacketHeader,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Failure> {
        if self.faults.die_before == Some(self.sent) {
            self.inner = None;
        }
        let lost = self.faults.lose == Some(self.sent);
        let refused = self.one_in(self.faults.refuse_one_in);
        let inner = self.alive()?;
        let gone = match (refused, lost) {
            (true, _) => false,
            (false, true) => {
                write(&mut vec![0; bytes]);
                true
            }
            (false, false) => inner.post_send(to, head, bytes, write)?,
        };
        self.sent += u64::from(gone);
        Ok(gone)
    }

    fn post_receive(&mut self, from: usize, bytes: usize) -> Result<(), Failure> {
        self.alive()?.post_receive(from, bytes)
    }

    fn receive(
        &mut self,
        from: usize,
        take: impl FnOnce(PacketHeader, &[u8]) -> PacketDecision,
    ) -> Result<bool, Failure> {
        if self.held[from] > 0 {
            self.held[from] -= 1;
            return Ok(false);
        }
        if self.one_in(self.faults.hold_one_in) {
            self.held[from] = (self.draw() % 16) as u32;
            return Ok(false);
        }
        self.alive()?.receive(from, take)
    }

    fn is_flushed(&mut self) -> Result<bool, Failure> {
        self.alive()?.is_flushed()
    }

    fn progress(&mut self) -> Result<(), Failure> {
        self.alive()?.progress()
    }

    /// Never sleeps while packets are held back here, because nothing would wake the rank.
    fn idle(&mut self, passes: u32) -> Result<(), Failure> {
        let passes = if self.faults.hold_one_in > 0 || self.faults.refuse_one_in > 0 { 1 } else { passes };
        self.alive()?.idle(passes)
    }

    fn raise(&mut self, failure: Failure) -> Failure {
        match &mut self.inner {
            Some(inner) => inner.raise(failure),
            None => failure,
        }
    }
}
