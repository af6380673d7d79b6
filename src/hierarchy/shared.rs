//! The allreduce whose result the ranks of a node read where it lies: one result per node, not one per rank.
//!
//! The node reduces into memory that all its ranks map; its leader runs the plan on that, in place, and tells the others when it
//! holds the result of all nodes. Nothing is copied in the node, nor cut into segments.

use super::Hierarchy;
use super::call::{Call, LeaderPhase};
use crate::{Error, Op};
use earlybird_shm::{CallOptions, CheckedArgs, ReduceOp};

impl Hierarchy {
    /// Makes a call whose result is to lie where all ranks of a node read it, by an operator of the library's that nodes carry out on
    /// its elements.
    pub(super) fn run_shared(&self, call: &Call, leaders: LeaderPhase, checked: CheckedArgs<'_>) -> Result<(), Error> {
        let (lowering, op, shape) = (call.lowering, checked.op(), leaders.1);
        let options = CallOptions { within: call.signature.hash() as u16, ..call.options };
        let args = checked.into_args().options(options);
        let args = if let ReduceOp::Builtin(Op::Average) = op { args.op(Op::Sum) } else { args };
        let checked = self.node.check_draft(args)?;
        self.carry_out(call, leaders, lowering.op(op), async |phases| {
            let mut draft = self.node.execute_draft(checked)?;
            if let (Some(result), Some(shape)) = (draft.edit(), shape) {
                phases.plan(shape, result).await?;
                lowering.finish(None, result, phases.topology.size());
            }
            draft.publish(options).map(Ok)
        })
    }
}
