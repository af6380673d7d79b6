//! The parts of calls over several nodes, for explanations: of a communicator, or of a job that does not run. Operations of the
//! nodes are found by running the function of the collective, whose steps then list them and carry nothing out.

use super::Hierarchy;
use super::blocking::at_once;
use super::call::Call;
use super::choice::{Exchange, ExchangeSettings, Exchanges};
use super::config_check;
use super::operation::{Buf, NodePhase};
use super::phases::{Listing, Mode, Phases};
use super::segments::segment;
use super::topology::Topology;
use crate::{Collective, CollectiveArgs, Config, DType, Error, FoldOrder, Op};
use earlybird_shm::{CallBuffers, CallOptions, Counts, ReduceOp, Side};

/// The choices of calls over several nodes.
pub(crate) struct LeaderChoice {
    exchanges: Exchanges,
    topology: Topology,
    outnumbers_cpus: bool,
}

/// An operation inside nodes, as a part of a call over several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeOperation {
    /// False for an operation that follows the exchange between leaders.
    pub(crate) comes_before: bool,
    pub(crate) collective: Collective,
    /// Bytes of the largest block, of the largest segment where there are several.
    pub(crate) bytes: usize,
    /// Ranks of the node.
    pub(crate) ranks: usize,
}

impl Hierarchy {
    /// The choices of this communicator.
    pub(crate) fn leader_choice(&self) -> LeaderChoice {
        let exchanges = self.exchanges.of_group(self.topology.nodes());
        LeaderChoice { exchanges, topology: self.topology.clone(), outnumbers_cpus: self.outnumbers_cpus }
    }
}

impl LeaderChoice {
    /// The choices of a job with so many ranks on each node, over a network or one machine's memory. `lacks_cpus` says whether the
    /// ranks of that machine outnumber the CPUs of their masks, and those that they may use at a time.
    ///
    /// # Errors
    /// [`Error::Usage`] for nodes without ranks.
    pub(crate) fn planned(
        config: &Config,
        sizes: &[usize],
        over_network: bool,
        lacks_cpus: [bool; 2],
    ) -> Result<Self, Error> {
        let [outnumbers_cpus, is_oversubscribed] = lacks_cpus;
        let settings = ExchangeSettings::new(config);
        let fitting = config_check::fitting_endpoints(is_oversubscribed, over_network);
        let agreed = config_check::agreed_endpoints(&config_check::words(config.endpoints, &settings, fitting))?;
        let topology = Topology::contiguous(sizes, 0)?.with_endpoints(agreed);
        let exchanges = Exchanges::new(sizes.len(), over_network, settings);
        Ok(LeaderChoice { exchanges, topology, outnumbers_cpus: outnumbers_cpus && !over_network })
    }

    /// The exchange of leaders in a call on so many bytes.
    ///
    /// # Errors
    /// [`Error::Usage`] while another thread is inside a call.
    pub(crate) fn exchange(
        &self,
        collective: Collective,
        (bytes, order): (usize, FoldOrder),
        (dtype, op): (DType, Op),
        requested: Option<&'static str>,
    ) -> Result<Exchange, Error> {
        self.exchanges.decide(collective, Some((dtype, op)), (bytes, order), requested)
    }

    /// The plans for an allreduce by their expected seconds, the fastest first; none without a cost model.
    pub(crate) fn ranking(&self, bytes: usize, call: (DType, Op), order: FoldOrder) -> Vec<(&'static str, f64)> {
        self.exchanges.ranking(bytes, call, order)
    }

    /// Segments of a blocking call on so many bytes of elements of `size`, and the ranks of each node that exchange them.
    pub(crate) fn segments(&self, collective: Collective, bytes: usize, size: usize) -> (usize, usize) {
        let (elements, endpoints) = (bytes / size, self.topology.endpoints());
        match collective {
            Collective::AllReduce => {
                let segments = elements.div_ceil(segment(elements, size, self.outnumbers_cpus, endpoints)).max(1);
                (segments, endpoints.min(segments))
            }
            _ => (1, 1),
        }
    }

    /// The operations inside nodes of a blocking call from rank 0, where it has a root, on blocks of so many bytes: those of a node
    /// with the root and of one without for each number of ranks, without repetitions.
    ///
    /// # Errors
    /// [`Error::Usage`] for blocks that this machine's memory cannot hold.
    pub(crate) fn on_nodes(
        &self,
        collective: Collective,
        (bytes, options): (usize, CallOptions),
        (dtype, op): (DType, Op),
        requested: Option<&'static str>,
    ) -> Result<Vec<NodeOperation>, Error> {
        let mut found: Vec<NodeOperation> = Vec::new();
        let mut seen = Vec::new();
        for node in 0..self.topology.nodes() {
            let members = self.topology.members(node);
            let kind = (members.contains(&0), members.len());
            // Ranks that lead no node touch no data here; a single rank has nobody to meet.
            let [_, .., me] = members else { continue };
            if seen.contains(&kind) {
                continue;
            }
            seen.push(kind);
            let rank = self.topology.seen_by(*me);
            let listed = self.of_rank(&rank, collective, (bytes, options), (dtype, op), requested)?;
            for (phase, collective, bytes) in listed {
                let (comes_before, ranks) = (phase == NodePhase::Collect, members.len());
                let is_same = |other: &&mut NodeOperation| {
                    (other.comes_before, other.collective, other.ranks) == (comes_before, collective, ranks)
                };
                // The last segment may be a shorter one.
                match found.iter_mut().find(is_same) {
                    Some(other) => other.bytes = bytes.max(other.bytes),
                    None => found.push(NodeOperation { comes_before, collective, bytes, ranks }),
                }
            }
        }
        found.sort_by_key(|operation| !operation.comes_before);
        Ok(found)
    }

    /// The operations of the node of one rank, which leads none.
    fn of_rank(
        &self,
        topology: &Topology,
        collective: Collective,
        (bytes, options): (usize, CallOptions),
        (dtype, op): (DType, Op),
        requested: Option<&'static str>,
    ) -> Result<Vec<(NodePhase, Collective, usize)>, Error> {
        let (traits, size) = (collective.traits(), topology.size());
        let blocks = |side: Side, of_all: bool| match side {
            Side::Root if topology.rank() != 0 => zeros(0),
            _ => zeros(bytes.saturating_mul(if of_all { size } else { 1 })),
        };
        let (send, mut recv) = (blocks(traits.senders, traits.in_parts)?, blocks(traits.receivers, traits.joins())?);
        // The root of a broadcast sends from the buffer into which the others receive.
        let is_in_place = traits.senders == Side::Root && !traits.in_parts;
        let buffers = CallBuffers::of_bytes((!is_in_place).then_some(&send[..]), &mut recv, dtype.into());
        let args = match collective {
            Collective::Barrier => CollectiveArgs::barrier(),
            _ => CollectiveArgs::describe(
                collective,
                traits.has_root().then_some(0),
                Counts::Uniform,
                buffers,
                ReduceOp::Builtin(op),
            ),
        };
        let checked = args.options(options).check(topology.rank(), size)?;
        let call = Call::new(&checked, requested);
        let (_, shape) = call.leader_phase(&self.exchanges, topology)?;
        let (send, recv) = checked.into_private().into_bytes();
        let mut operations = Vec::new();
        let listing = Listing { operations: &mut operations, outnumbers_cpus: self.outnumbers_cpus };
        let op = call.lowering.op(ReduceOp::Builtin(op));
        let mut phases = Phases::new(topology, (&call, shape), op, Mode::Listing(listing));
        at_once(phases.collective(send, &mut Buf::Borrowed(recv)))??;
        Ok(operations)
    }
}

/// So many zeros, which take no memory until they are touched.
///
/// # Errors
/// [`Error::Usage`] for more than the system allows.
fn zeros(bytes: usize) -> Result<Vec<u8>, Error> {
    let fits = Vec::<u8>::new().try_reserve_exact(bytes).is_ok();
    if fits {
        Ok(vec![0; bytes])
    } else {
        Err(Error::usage(format!("buffers of {bytes} bytes: this machine has less memory; give fewer bytes")))
    }
}
