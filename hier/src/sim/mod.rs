//! The simulator: plans in simulated time.
//!
//! A rank begins a round when it has finished its steps of earlier rounds; there is no barrier between rounds. It
//! starts the messages of the round, then their bytes leave and share its port fairly. The round is finished when its
//! sends have left, its receives have arrived, and its reductions are done, in this order. A message that comes
//! before its receiver has reached the round waits in a buffer, unless it is longer than the eager limit: then it
//! starts only when both ends have reached the round.
//!
//! Without a network, messages share nothing but the ports of their two ranks, and a port is shared by the messages
//! of one round of its rank (`rounds.rs`); plans may be made a few rounds at a time. With a [`Network`], messages are
//! flows that share ports and the links of a tree of switches by max-min fairness (`flows.rs`).
//!
//! [`ThreePhase`] puts a node phase before and after a plan between nodes, in a pipeline of chunks.
//!
//! With all ranks arriving together, no jitter and no network, a plan in which all ranks do the same takes exactly its
//! [`cost`](crate::cost); no plan takes longer.

mod call;
mod costs;
mod fair;
mod flows;
mod network;
mod noise;
mod port;
mod round_work;
mod rounds;
mod simulate;
mod three_phase;

pub use call::{Call, PlanSource, Timeline};
pub use costs::{Costs, Duplex, Machine, Partition};
pub use network::Network;
pub use noise::{Jitter, mix};
pub use simulate::simulate;
pub use three_phase::{NodeFold, ThreePhase};
