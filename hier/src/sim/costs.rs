//! The costs of the simulated machine: messages, reductions, ports, nodes.

use crate::plan::{Blocks, elements_in};

/// Messages and reductions on one level, after LogGP (Alexandrov and others, SPAA 1995). Seconds.
///
/// The sender spends `send_s` on the first message of a round and `next_port_s` on every other one, at least `gap_s`
/// apart; then their bytes leave. The last byte of a message is at the receiver `latency_s` after it left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Sender's overhead of a message (o_s); α in the linear model.
    pub send_s: f64,
    /// Receiver's overhead of a message (o_r).
    pub receive_s: f64,
    /// Latency of the wire (L).
    pub latency_s: f64,
    /// Least time between two messages of a sender (g).
    pub gap_s: f64,
    /// Per byte on a port (G); β in the linear model.
    pub per_byte_s: f64,
    /// Per byte reduced; γ.
    pub reduce_per_byte_s: f64,
    /// Sender's overhead of every message of a round beyond the first.
    pub next_port_s: f64,
}

impl Costs {
    /// α per message, β per byte sent, γ per byte reduced; a further message of a round costs α like the first.
    pub fn linear(alpha_s: f64, beta_s_per_byte: f64, gamma_s_per_byte: f64) -> Self {
        Self {
            send_s: alpha_s,
            receive_s: 0.0,
            latency_s: 0.0,
            gap_s: 0.0,
            per_byte_s: beta_s_per_byte,
            reduce_per_byte_s: gamma_s_per_byte,
            next_port_s: alpha_s,
        }
    }

    fn all(&self) -> [(&'static str, f64); 7] {
        [
            ("send", self.send_s),
            ("receive", self.receive_s),
            ("latency", self.latency_s),
            ("gap", self.gap_s),
            ("per-byte", self.per_byte_s),
            ("reduce-per-byte", self.reduce_per_byte_s),
            ("next-port", self.next_port_s),
        ]
    }

    /// The first cost that is not a time: negative, infinite or not a number.
    pub(super) fn wrong(&self) -> Option<(&'static str, f64)> {
        self.all().into_iter().find(|(_, seconds)| !(seconds.is_finite() && *seconds >= 0.0))
    }
}

/// The duplex mode of a rank's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplex {
    /// Sending and receiving do not slow each other down.
    #[default]
    Full,
    /// Both directions share the port.
    Half,
}

/// The number of bytes in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Partition {
    /// Every block is its exact share of the bytes, also a fraction: the cost models' view.
    #[default]
    Even,
    /// Whole elements of so many bytes, cut as the executor cuts them; an empty message is not sent.
    Elements(usize),
}

impl Partition {
    /// Bytes in a set of blocks.
    pub(super) fn bytes(self, set: &Blocks, blocks: usize, bytes: f64) -> f64 {
        match self {
            Partition::Even => set.len() as f64 * (bytes / blocks as f64),
            Partition::Elements(size) => {
                let elements = (bytes / size as f64).floor() as usize;
                (elements_in(set, blocks, elements) * size) as f64
            }
        }
    }
}

/// The simulated machine, but for its network ([`Network`](super::Network)).
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Messages inside a node, and all reductions.
    pub inside: Costs,
    /// Messages between nodes.
    pub between: Costs,
    /// Rank r is on node r / `ranks_per_node`; with 1 all messages are between nodes. A network overrides it.
    pub ranks_per_node: usize,
    /// Ports of the ranks.
    pub duplex: Duplex,
    /// A longer message starts only when its receiver has reached the round (rendezvous); none: all are buffered.
    pub eager_bytes: Option<f64>,
    /// The number of bytes in a block.
    pub partition: Partition,
}

impl Machine {
    /// One rank per node, full-duplex ports, everything buffered.
    pub fn flat(costs: Costs) -> Self {
        Self {
            inside: costs,
            between: costs,
            ranks_per_node: 1,
            duplex: Duplex::Full,
            eager_bytes: None,
            partition: Partition::Even,
        }
    }

    /// The costs of a message.
    pub(super) fn level(&self, from_node: usize, to_node: usize) -> &Costs {
        if from_node == to_node { &self.inside } else { &self.between }
    }
}
