//! Three phases in time: every node reduces, the nodes exchange by any plan, every node publishes, chunk by chunk.
//!
//! Each node has one endpoint. It enters the exchange of a chunk when the node's partial result of the chunk is
//! complete and its exchange of the previous chunk has ended, so folding, exchange and publishing of different
//! chunks overlap; the endpoint's part in the fold costs the exchange nothing. Inside a node ranks meet in shared
//! memory: handing a chunk over costs the sender's overhead and its bytes once, and no rank waits for a port.

use super::call::{Call, PlanSource, Timeline, bad, checked_machine, times};
use super::costs::Machine;
use super::noise::{Jitter, mix};
use super::simulate::simulate;
use crate::plan::{PlanError, unknown};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// The reduction inside a node, named after the node layer's algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = unknown::<NodeFold>)]
pub enum NodeFold {
    /// All deposit, rank 0 of the node waits for all and then folds.
    StaticLeader,
    /// All deposit, the first to arrive folds deposits as they come.
    Leader,
    /// Each rank folds its data into the chunks in arrival order.
    Chain,
    /// All deposit, then each folds its slice of every chunk.
    Slices,
}

/// A three-phase allreduce.
#[derive(Debug, Clone, Copy)]
pub struct ThreePhase<'a> {
    /// Number of ranks; node n holds `ranks_per_node` of the machine from n·`ranks_per_node` on, the last maybe fewer.
    pub ranks: usize,
    /// The reduction inside nodes.
    pub fold: NodeFold,
    /// Number of chunks in the pipeline, at least 1.
    pub chunks: usize,
    /// The exchange, a plan over as many ranks as there are nodes.
    pub exchange: PlanSource<'a>,
}

/// The end of a node's reduction, before the exchange.
struct NodeResult {
    /// Time at which the partial result of each chunk is complete.
    complete_s: Vec<f64>,
    /// Time at which each rank of the node has done its part.
    free_s: Vec<f64>,
}

impl ThreePhase<'_> {
    /// Simulates the allreduce. `rounds`, messages and bytes are those of the exchange of all chunks. The errors are those
    /// of [`simulate`], and an exchange of another number of ranks than there are nodes.
    pub fn simulate(&self, machine: &Machine, call: &Call) -> Result<Timeline, PlanError> {
        checked_machine(machine, call)?;
        let arrivals_s = times(self.ranks, call.arrivals_s)?;
        let nodes: Vec<&[f64]> = arrivals_s.chunks(machine.ranks_per_node).collect();
        let ends = self.exchange.header().ranks();
        if ends != nodes.len() {
            return Err(bad(
                "exchange",
                format!("a plan of {ends} ranks"),
                format!("one rank for each of {} nodes", nodes.len()),
            ));
        }
        if self.chunks == 0 {
            return Err(bad("chunks", 0, "at least 1"));
        }
        let bytes = call.bytes / self.chunks as f64;
        let folded: Vec<NodeResult> = nodes.iter().map(|its| self.fold(machine, its, bytes)).collect();
        let mut total =
            Timeline { arrivals_s: arrivals_s.clone(), exits_s: Vec::new(), rounds: 0, messages: 0, bytes: 0.0 };
        let mut free_s: Vec<Vec<f64>> = folded.iter().map(|node| node.free_s.clone()).collect();
        let mut endpoint_s = vec![0.0; nodes.len()];
        let between = Machine { ranks_per_node: 1, ..machine.clone() };
        let copy_s = machine.inside.receive_s + bytes * machine.inside.per_byte_s;
        for chunk in 0..self.chunks {
            let ready_s: Vec<f64> =
                folded.iter().zip(&endpoint_s).map(|(node, free_s)| node.complete_s[chunk].max(*free_s)).collect();
            let seed = mix(call.jitter.seed ^ chunk as u64);
            let exchange = Call { bytes, arrivals_s: &ready_s, jitter: Jitter { seed, ..call.jitter } };
            let done = simulate(self.exchange, &between, None, &exchange)?;
            for (node, its) in free_s.iter_mut().enumerate() {
                let visible_s = done.exits_s[node] + machine.inside.send_s;
                for free_s in its {
                    *free_s = free_s.max(visible_s) + copy_s;
                }
            }
            endpoint_s = done.exits_s;
            total.rounds += done.rounds;
            total.messages += done.messages;
            total.bytes += done.bytes;
        }
        total.exits_s = free_s.concat();
        Ok(total)
    }

    fn fold(&self, machine: &Machine, arrivals_s: &[f64], bytes: f64) -> NodeResult {
        let chunks = self.chunks;
        let reduce_s = bytes * machine.inside.reduce_per_byte_s;
        let give_s = machine.inside.send_s + bytes * machine.inside.per_byte_s;
        let given = |arrival_s: f64, chunk: usize| arrival_s + (chunk + 1) as f64 * give_s;
        let all_given = |chunk| arrivals_s.iter().map(|a| given(*a, chunk)).fold(0.0, f64::max);
        let mut free_s: Vec<f64> = arrivals_s.iter().map(|a| given(*a, chunks - 1)).collect();
        let others = (arrivals_s.len() - 1) as f64;
        let mut order: Vec<usize> = (0..arrivals_s.len()).collect();
        order.sort_by(|a, b| arrivals_s[*a].total_cmp(&arrivals_s[*b]));
        let mut complete_s = vec![0.0; chunks];
        match self.fold {
            NodeFold::StaticLeader => {
                let mut now_s = free_s[0];
                for (chunk, complete_s) in complete_s.iter_mut().enumerate() {
                    now_s = now_s.max(all_given(chunk)) + others * reduce_s;
                    *complete_s = now_s;
                }
                free_s[0] = now_s;
            }
            NodeFold::Leader => {
                let leader = order[0];
                let mut deposits: Vec<(f64, usize)> =
                    order[1..].iter().flat_map(|r| (0..chunks).map(|c| (given(arrivals_s[*r], c), c))).collect();
                deposits.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                let mut now_s = free_s[leader];
                complete_s.fill(now_s);
                for (given_s, chunk) in deposits {
                    now_s = now_s.max(given_s) + reduce_s;
                    complete_s[chunk] = now_s;
                }
                free_s[leader] = now_s;
            }
            NodeFold::Chain => {
                for (place, rank) in order.into_iter().enumerate() {
                    let mut now_s = arrivals_s[rank];
                    for complete_s in &mut complete_s {
                        now_s = now_s.max(*complete_s) + give_s + if place == 0 { 0.0 } else { reduce_s };
                        *complete_s = now_s;
                    }
                    free_s[rank] = now_s;
                }
            }
            NodeFold::Slices => {
                let mut now_s = 0.0f64;
                for (chunk, complete_s) in complete_s.iter_mut().enumerate() {
                    // every slice is folded when the last rank has folded its own
                    now_s = now_s.max(all_given(chunk)) + others / (others + 1.0) * reduce_s;
                    *complete_s = now_s;
                }
                free_s.fill(now_s);
            }
        }
        NodeResult { complete_s, free_s }
    }
}
