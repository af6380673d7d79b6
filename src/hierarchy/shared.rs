//! The allreduce whose result the ranks of a node read where it lies: one result per node, not one per rank.
//!
//! The node folds into memory that all its ranks map; its leader runs the plan on that, in place, and tells the others when it
//! holds the result of all nodes. Nothing is copied in the node, nor cut into segments.

use super::Hierarchy;
use super::call::Call;
use super::lowering::{Lowering, put_truth};
use crate::plans::Shape;
use crate::{DType, Element, Error, Op, SharedView};
use earlybird_shm::{CallOptions, Collective, NodeComm, ReduceOp, Signature, bytes};

impl Hierarchy {
    /// Reduces `send` of all ranks into one result per node.
    pub(crate) fn all_reduce_shared<'c, T: Element>(
        &self,
        node: &'c NodeComm,
        (options, signature, exchange): (CallOptions, Signature, Option<&'static str>),
        send: &[T],
        op: Op,
    ) -> Result<SharedView<'c, T>, Error> {
        T::DTYPE.must_have(op)?;
        let lowering = Lowering::of(T::DTYPE.into(), ReduceOp::Builtin(op));
        let vector = (lowering, lowering.bytes(size_of_val(send)));
        let call = Call::of_vector(Collective::AllReduce, vector, options, signature.shared(), exchange);
        if lowering.widens() {
            // Its sums are wider than its elements: a copy for each rank.
            let mut result = send.to_vec();
            self.run_bytes(node, &call, ReduceOp::Builtin(op), None, bytes::of_mut(&mut result))?;
            return Ok(SharedView::copied(result));
        }
        let (name, shape) = self.choose(&call)?;
        let carried_out = lowering.op(ReduceOp::Builtin(op));
        self.carry_out(node, &call, (name, shape), carried_out, async |phases| {
            let options = CallOptions { within: call.signature.hash() as u16, ..options };
            let sum = if op == Op::Average { Op::Sum } else { op };
            let mut draft = node.all_reduce_draft(send, sum, options)?;
            if let (Some(result), Some(shape)) = (draft.edit(), shape) {
                let shape = Shape { elements: result.len(), ..shape };
                if T::DTYPE == DType::Bool {
                    let mut truth = bytes::of(result).to_vec();
                    phases.plan(shape, &mut truth).await?;
                    put_truth(result, &truth);
                } else {
                    phases.plan(shape, bytes::of_mut(result)).await?;
                }
                if op == Op::Average {
                    bytes::divide(result, phases.topology.size());
                }
            }
            draft.publish(options).map(Ok)
        })
    }
}
