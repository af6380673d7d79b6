//! The description of a call over several nodes, the same for one that blocks and one that is started, and what runs between
//! leaders in it.

use super::Hierarchy;
use super::choice::Exchanges;
use super::lowering::Lowering;
use super::topology::Topology;
use crate::plans::{self, Shape, Work};
use crate::{Algorithm, DType, Error, FoldOrder, Op};
use earlybird_shm::bytes::ByteFold;
use earlybird_shm::{CallOptions, CheckedArgs, Collective, ReduceOp, Signature};

/// A call whose arguments were checked, without its buffers and its operator.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(super) collective: Collective,
    pub(super) lowering: Lowering,
    pub(super) root: usize,
    /// Bytes of the vector, for a collective on one vector.
    pub(super) bytes: usize,
    /// Bytes of each rank's block.
    pub(super) lens: Vec<usize>,
    /// The counts of an alltoallv: the elements for each rank, then those from each.
    pub(super) pairs: Option<Vec<u64>>,
    pub(super) options: CallOptions,
    pub(super) signature: Signature,
    /// The plan between leaders, where one was chosen for this call.
    pub(super) exchange: Option<&'static str>,
}

impl Call {
    /// The call with these arguments.
    pub(crate) fn new(checked: &CheckedArgs<'_>, exchange: Option<&'static str>) -> Self {
        let (options, signature) = (checked.settings(), checked.signature());
        let lowering = Lowering::from(checked);
        let mut lens = checked.block_bytes();
        lens.iter_mut().for_each(|len| *len = lowering.bytes(*len));
        let pairs = checked.pair_counts().map(|[send, recv]| send.iter().chain(recv).map(|n| *n as u64).collect());
        let (collective, root, bytes) =
            (checked.collective(), checked.root(), lowering.bytes(checked.selecting_bytes()));
        Call { collective, lowering, root, bytes, lens, pairs, options, signature, exchange }
    }

    /// A call of the library's own, by which the ranks agree.
    pub(crate) fn agreement(collective: Collective, options: CallOptions) -> Self {
        let signature = Signature::new(collective, DType::U64, Op::Sum, FoldOrder::Arrival, Algorithm::Auto, 0);
        let lowering = Lowering::of(DType::U8.into(), ReduceOp::Builtin(Op::Sum));
        let (lens, pairs, exchange) = (Vec::new(), None, None);
        Call { collective, lowering, root: 0, bytes: 0, lens, pairs, options, signature, exchange }
    }

    /// The same call, as it is started: it proceeds while its caller is elsewhere, so arrivals have no order.
    pub(crate) fn started(self) -> Self {
        let options = CallOptions { order: FoldOrder::Rank, ..self.options };
        Call { options, signature: self.signature.started(), ..self }
    }

    /// Chooses what runs between the leaders of these nodes.
    ///
    /// # Errors
    /// Those of [`Hierarchy::choose`].
    pub(super) fn leader_phase(&self, exchanges: &Exchanges, topology: &Topology) -> Result<LeaderPhase, Error> {
        let (collective, builtin) = (self.collective, self.lowering.builtin());
        let exchange = exchanges.decide(collective, builtin, (self.bytes, self.options.order), self.exchange)?;
        let Some(plan) = exchange.plan else {
            if let Some((dtype, op)) = builtin.filter(|_| collective.traits().folds) {
                // Refused by all ranks, like a plan, before anything is shared.
                ByteFold::new(dtype, op)?;
            }
            return Ok((exchange.name, None));
        };
        let hash = self.signature.hash();
        let (size, work) = match builtin {
            Some((dtype, op)) if collective.traits().folds => (dtype.size(), Work::Fold(dtype, op)),
            _ => (1, Work::Move),
        };
        let root = if collective.traits().has_root() { topology.place(self.root).0 } else { 0 };
        let shape = match collective {
            Collective::Barrier => plans::barrier(hash),
            _ => {
                let elements = self.bytes / size;
                Shape { name: exchange.name, collective: plan, root, elements, work, call: hash, turn: 0 }
            }
        };
        Ok((exchange.name, Some(shape)))
    }
}

/// The exchange between leaders: its name, and its plan, if it is one.
pub(super) type LeaderPhase = (&'static str, Option<Shape>);

impl Hierarchy {
    /// Chooses what runs between leaders in a call, the same on all ranks.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an operator that does not exist for the elements; [`Error::Usage`] while another thread is in a
    /// call.
    pub(super) fn choose(&self, call: &Call) -> Result<LeaderPhase, Error> {
        call.leader_phase(&self.exchanges, &self.topology)
    }
}
