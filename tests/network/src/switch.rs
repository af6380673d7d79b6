//! When a packet leaves the network: pure arithmetic on times, no devices.
//!
//! Every host hangs on one switch by a full-duplex link. A packet occupies its sender's link for its length over the
//! rate, travels for the delay, then occupies the receiver's link; each link carries one packet at a time, in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes that may be under way from one host before further ones are dropped, as a router with a full queue does.
const QUEUE_BYTES: usize = 32 << 20;

/// A packet under way.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InFlight {
    due_ns: u64,
    /// Keeps packets of one due time in order.
    number: u64,
    from: usize,
    to: usize,
    packet: Vec<u8>,
}

/// The switch and the links of its hosts, which are numbered from 0 and own the addresses `10.99.0.(1 + number)`.
#[derive(Debug)]
pub struct Switch {
    delay_ns: u64,
    bits_per_s: u64,
    /// Per host: when the link towards the switch, and the one from it, is free again.
    up_free_ns: Vec<u64>,
    down_free_ns: Vec<u64>,
    queued_bytes: Vec<usize>,
    under_way: BinaryHeap<Reverse<InFlight>>,
    accepted: u64,
    /// Packets that found a full queue or name no host.
    pub dropped: u64,
}

/// A packet that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Receiving host.
    pub to: usize,
    /// When it was due.
    pub due_ns: u64,
    /// The packet as it was sent.
    pub packet: Vec<u8>,
}

impl Switch {
    /// A switch of `hosts` links with `bits_per_s` each way, 0 for no limit.
    pub fn new(hosts: usize, delay_ns: u64, bits_per_s: u64) -> Self {
        Switch {
            delay_ns,
            bits_per_s,
            up_free_ns: vec![0; hosts],
            down_free_ns: vec![0; hosts],
            queued_bytes: vec![0; hosts],
            under_way: BinaryHeap::new(),
            accepted: 0,
            dropped: 0,
        }
    }

    /// Takes a packet that host `from` sent at `now_ns`.
    pub fn accept(&mut self, now_ns: u64, from: usize, packet: &[u8]) {
        let Some(to) = self.receiver(packet).filter(|_| self.queued_bytes[from] + packet.len() <= QUEUE_BYTES) else {
            self.dropped += 1;
            return;
        };
        let occupied_ns = match self.bits_per_s {
            0 => 0,
            rate => packet.len() as u64 * 8 * 1_000_000_000 / rate,
        };
        let sent = now_ns.max(self.up_free_ns[from]) + occupied_ns;
        self.up_free_ns[from] = sent;
        // The head of the packet reaches the receiver's link one delay after it left.
        let due_ns = (sent + self.delay_ns - occupied_ns).max(self.down_free_ns[to]) + occupied_ns;
        self.down_free_ns[to] = due_ns;
        self.queued_bytes[from] += packet.len();
        self.accepted += 1;
        self.under_way.push(Reverse(InFlight { due_ns, number: self.accepted, from, to, packet: packet.to_vec() }));
    }

    /// The next packet that is due at `now_ns`.
    pub fn deliver(&mut self, now_ns: u64) -> Option<Delivery> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        let Reverse(InFlight { due_ns, from, to, packet, .. }) = self.under_way.pop()?;
        self.queued_bytes[from] -= packet.len();
        Some(Delivery { to, due_ns, packet })
    }

    /// When the next packet is due.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.under_way.peek().map(|Reverse(next)| next.due_ns)
    }

    /// The host that an IPv4 packet is addressed to.
    fn receiver(&self, packet: &[u8]) -> Option<usize> {
        let is_ipv4 = packet.len() >= 20 && packet[0] >> 4 == 4;
        let host = match packet.get(16..20)? {
            [10, 99, 0, number] if is_ipv4 => usize::from(*number).checked_sub(1)?,
            _ => return None,
        };
        (host < self.up_free_ns.len()).then_some(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(to: u8, bytes: usize) -> Vec<u8> {
        let mut packet = vec![0; bytes];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&[10, 99, 0, to]);
        packet
    }

    #[test]
    fn a_packet_takes_the_delay_and_its_length_over_the_rate() {
        let mut switch = Switch::new(2, 1_000, 8_000_000_000); // 1 byte per ns
        switch.accept(10, 0, &packet(2, 100));
        assert_eq!(switch.next_due_ns(), Some(10 + 100 + 1_000));
        assert_eq!(switch.deliver(1_109), None);
        let delivery = switch.deliver(1_110).expect("due");
        assert_eq!((delivery.to, delivery.packet.len()), (1, 100));
    }

    #[test]
    fn links_carry_one_packet_at_a_time() {
        let mut switch = Switch::new(3, 0, 8_000_000_000);
        // Two senders, one receiver: the second waits for the receiver's link.
        switch.accept(0, 0, &packet(3, 100));
        switch.accept(0, 1, &packet(3, 100));
        assert_eq!((0..2).map(|_| switch.deliver(1000).expect("due").due_ns).collect::<Vec<_>>(), [100, 200]);
        // One sender, two receivers: the second waits for the sender's link.
        switch.accept(1000, 2, &packet(1, 50));
        switch.accept(1000, 2, &packet(2, 50));
        assert_eq!((0..2).map(|_| switch.deliver(2000).expect("due").due_ns).collect::<Vec<_>>(), [1050, 1100]);
    }

    #[test]
    fn packets_between_two_hosts_keep_their_order() {
        let mut switch = Switch::new(2, 500, 0);
        for length in [20, 21, 22] {
            switch.accept(7, 0, &packet(2, length));
        }
        let lengths: Vec<_> = std::iter::from_fn(|| switch.deliver(507)).map(|d| d.packet.len()).collect();
        assert_eq!(lengths, [20, 21, 22]);
    }

    #[test]
    fn what_names_no_host_or_finds_the_queue_full_is_dropped_and_counted() {
        let mut switch = Switch::new(2, 0, 0);
        switch.accept(0, 0, &packet(3, 20));
        switch.accept(0, 0, &[0x60; 40]);
        switch.accept(0, 0, &[]);
        assert_eq!(switch.dropped, 3);
        for _ in 0..QUEUE_BYTES / (1 << 20) {
            switch.accept(0, 0, &packet(2, 1 << 20));
        }
        assert_eq!(switch.dropped, 3);
        switch.accept(0, 0, &packet(2, 20));
        assert_eq!(switch.dropped, 4);
        switch.deliver(0).expect("due");
        switch.accept(0, 0, &packet(2, 20));
        assert_eq!(switch.dropped, 4);
    }
}
