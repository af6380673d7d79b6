//! The allreduce whose result the ranks of a node read where it lies: one result per node, not one per rank.
//!
//! The node folds into memory that all its ranks map; its leader runs the plan on that, in place, and tells the others when it
//! holds the result of all nodes. Nothing is copied in the node, nor cut into segments.

use super::{Call, Hierarchy, of_bytes, put_truth};
use crate::plans::{Shape, Work};
use crate::{DType, Element, Error, FoldOrder, Op, SharedView};
use earlybird_hier::OpTraits;
use earlybird_hier::plan;
use earlybird_shm::bytes;

impl Hierarchy {
    /// Reduces `send` of all ranks into one result per node. Not for averages of half types, whose sums are wider than they.
    pub(crate) fn all_reduce_shared<'c, T: Element>(
        &self,
        call: &Call<'c>,
        send: &[T],
        op: Op,
    ) -> Result<SharedView<'c, T>, Error> {
        let (dtype, by) = match (T::DTYPE, op) {
            (DType::Bool, op) => (DType::U8, of_bytes(op)),
            (dtype, Op::Average) => (dtype, Op::Sum),
            (dtype, op) => (dtype, op),
        };
        T::DTYPE.must_have(op)?;
        let exact = !dtype.is_inexact(by);
        let traits = OpTraits { commutative: exact || call.options.order == FoldOrder::Arrival, exact };
        let name = self.exchange_for(call.exchange, size_of_val(send), traits)?;
        let (collective, work, hash) = (plan::Collective::Allreduce, Work::Fold(dtype, by), call.signature.hash());
        let shape = Shape { name, collective, root: 0, elements: 0, work, call: hash, turn: 0 };
        let node = call.node;
        self.carry_out(call, name, Some(shape), |phases| {
            let mut draft =
                node.all_reduce_draft(send, if op == Op::Average { Op::Sum } else { op }, phases.options)?;
            if let Some(result) = draft.edit() {
                let shape = Shape { elements: result.len(), ..shape };
                if T::DTYPE == DType::Bool {
                    let mut truth = bytes::of(result).to_vec();
                    phases.plans.run(shape, &mut truth)?;
                    put_truth(result, &truth);
                } else {
                    phases.plans.run(shape, bytes::of_mut(result))?;
                }
                if op == Op::Average {
                    bytes::divide(result, phases.topology.size());
                }
            }
            draft.publish(phases.options)
        })
    }
}
