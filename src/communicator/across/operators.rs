//! Reductions by operators of the caller's on a communicator of several nodes.

use super::Across;
use crate::Error;
use crate::hierarchy::{Call, CallersOp};
use earlybird_shm::{Collective, USER_SIZE_SHIFT};

impl Across<'_> {
    /// What ranks compare of a reduction of `items` by an operator of the caller's.
    pub(super) fn call_with(
        &self,
        collective: Collective,
        op: &impl CallersOp,
        items: usize,
        root: Option<usize>,
    ) -> Result<Call<'_>, Error> {
        let (element, each) = (op.element()?, op.items());
        if !items.is_multiple_of(each) {
            let message = format!("a buffer of {items} bytes is no whole number of elements of {each} bytes");
            return Err(Error::usage(message));
        }
        let count = items / each;
        match count as u64 >> USER_SIZE_SHIFT {
            0 => Ok(self.call_of(collective, element, op.operator(), count, root)),
            _ => Err(Error::usage(format!("{count} elements of a user's operator are too many; reduce them in parts"))),
        }
    }

    pub(in crate::communicator) fn all_reduce_with<O: CallersOp>(
        &self,
        send: Option<&[O::Item]>,
        recv: &mut [O::Item],
        op: &O,
    ) -> Result<(), Error> {
        if let Some(send) = send {
            crate::plans::equal_lengths(send, recv)?;
        }
        let call = self.call_with(Collective::AllReduce, op, recv.len(), None)?;
        self.between.all_reduce_with(&call, send, recv, op)
    }

    /// `recv` is there at the root.
    pub(in crate::communicator) fn reduce_with<O: CallersOp>(
        &self,
        root: usize,
        send: &[O::Item],
        recv: Option<&mut [O::Item]>,
        op: &O,
    ) -> Result<(), Error> {
        match &recv {
            Some(recv) => crate::plans::equal_lengths(send, recv)?,
            None => self.other(root, "reduce_into_with")?,
        }
        let call = self.call_with(Collective::Reduce, op, send.len(), Some(root))?;
        self.between.reduce_with(&call, root, send, recv.unwrap_or(&mut []), op)
    }

    pub(in crate::communicator) fn reduce_scatter_with<O: CallersOp>(
        &self,
        send: &[O::Item],
        recv: &mut [O::Item],
        op: &O,
    ) -> Result<(), Error> {
        self.lengths([send.len(), recv.len()], [self.of_all(recv.len())?, recv.len()])?;
        let call = self.call_with(Collective::ReduceScatter, op, recv.len(), None)?;
        self.between.reduce_scatter_with(&call, send, recv, op)
    }
}
