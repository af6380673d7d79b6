//! The future of a started call: the steps of the blocking one, on copies of its buffers.

use super::steps::Steps;
use crate::Error;
use crate::hierarchy::call::Call;
use crate::hierarchy::operation::Buf;
use crate::hierarchy::phases::{Mode, Phases};
use crate::plans::Shape;
use earlybird_shm::{OwnedCall, ReduceOp, SharedReduceOp};
use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

/// A started call, which ends with the bytes of its receive buffer, a vector for [`Scratch::give_back`](crate::hierarchy::scratch::Scratch).
pub(super) type CallFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>> + Send>>;

/// The steps of a call on the buffers of `owned`, that end with the bytes of the receive buffer as they are carried out.
///
/// # Errors
/// The errors of [`OwnedCall::check`].
pub(super) fn begin(
    owned: &mut OwnedCall,
    (call, shape): (Arc<Call>, Option<Shape>),
    steps: Steps,
) -> Result<CallFuture, Error> {
    let (lowering, op) = (call.lowering, owned.op().clone());
    let (send, recv) = owned.check(steps.topology().rank(), steps.topology().size())?.into_bytes();
    let scratch = steps.scratch();
    let copy = |bytes| match lowering.widened(bytes) {
        Cow::Borrowed(bytes) => scratch.copy_of(bytes),
        Cow::Owned(bytes) => bytes,
    };
    let (mut send, mut recv) = (send.map(copy), Buf::Owned(copy(Cow::Borrowed(recv))));
    let op = match (lowering.op(op.get()), &op) {
        (ReduceOp::Builtin(builtin), _) => builtin.into(),
        (ReduceOp::User(_), op) => SharedReduceOp::clone(op),
    };
    Ok(Box::pin(async move {
        let mut phases = Phases::new(steps.topology(), (&call, shape), op.get(), Mode::Started(&steps, &op));
        // The operations of the node own what they send; a rank that is alone makes none.
        let sent = match steps.topology().is_alone() {
            true => send.as_deref().map(Cow::Borrowed),
            false => send.take().map(Cow::Owned),
        };
        let outcome = phases.collective(sent, &mut recv).await;
        steps.scratch().give_back(send.unwrap_or_default());
        match outcome {
            Ok(Ok(())) => Ok(recv.take()),
            // Nothing was moved, and the communicator goes on.
            Ok(Err(differ)) => Err(differ),
            Err(error) => Err(steps.failed(error)),
        }
    }))
}
