//! A collective call as C describes it: the same arguments for its blocking, its non-blocking and its persistent form.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, is_in_place, zeroed};
use earlybird::{
    CallBuffers, Collective, CollectiveArgs, Communicator, Counts, DType, Datatype, Error, IntoCallBuffers, Op,
    OwnedBytes, Persistent, ReduceOp, SharedReduceOp,
};
use std::ffi::c_void;
use std::sync::Arc;

/// The buffers of a call.
pub struct CallerBuffers {
    pub datatype: Datatype,
    /// The contribution of this rank.
    pub send: BufferArg,
    /// The receive buffer.
    pub recv: BufferArg,
    /// True if the contribution lies in the receive buffer: the block of this rank, or as many elements as it receives; more of
    /// them where the result replaces their beginning only.
    pub in_place: bool,
    /// False if this rank has its result already, so that none is written: the root of a broadcast, and that of a scatter in
    /// place, whose receive buffer has a count but no address.
    pub has_result: bool,
    /// The buffers of a group, each sent and replaced by its result; empty for other calls.
    pub group: Vec<BufferArg>,
}

impl CallerBuffers {
    /// Describes `count` elements at `send` and the receive buffer. `EB_IN_PLACE` stands for the elements of the receive buffer
    /// from element `first` on.
    pub fn new(datatype: Datatype, (send, count): (*const c_void, usize), recv: BufferArg, first: usize) -> Self {
        if !is_in_place(send) {
            return Self::apart(datatype, BufferArg::send(send, count), recv);
        }
        let send = BufferArg { at: recv.at.wrapping_byte_add(first.wrapping_mul(datatype.size())), count, ..recv };
        CallerBuffers { in_place: true, ..Self::apart(datatype, send, recv) }
    }

    /// Describes a send buffer and a receive buffer.
    pub fn apart(datatype: Datatype, send: BufferArg, recv: BufferArg) -> Self {
        CallerBuffers { datatype, send, recv, in_place: false, has_result: true, group: Vec::new() }
    }

    /// Refuses addresses that cannot hold the elements, and groups that overlap.
    fn check(&self) -> Result<(), Error> {
        if !self.group.is_empty() {
            return self.check_group();
        }
        if self.in_place || self.has_result {
            self.recv.check(self.datatype)?;
        }
        self.send.check(self.datatype)
    }

    fn check_group(&self) -> Result<(), Error> {
        self.group.iter().try_for_each(|buffer| buffer.check(self.datatype))?;
        let mut by_address: Vec<&BufferArg> = self.group.iter().filter(|buffer| buffer.count > 0).collect();
        by_address.sort_by_key(|buffer| buffer.at as usize);
        by_address.windows(2).try_for_each(|pair| pair[0].check_disjoint(pair[1], self.datatype.size()))
    }

    /// Returns whether the contribution can be sent from where it lies: not every byte is a valid bool.
    #[inline(always)]
    fn can_send(&self) -> bool {
        self.group.is_empty() && self.datatype != DType::Bool.into()
    }

    /// Returns whether the library can work in the caller's memory.
    #[inline(always)]
    fn are_direct(&self) -> bool {
        let fits = if self.in_place { self.send.count <= self.recv.count } else { self.has_result };
        fits && self.can_send()
    }

    /// Allocates zeros for copies: of one buffer where the result may replace all of the contribution.
    fn zeroed(&self, replaces: bool) -> Result<OwnedBytes, Error> {
        let one = self.send.count == self.recv.count && (self.in_place || replaces);
        let send = if one { None } else { Some(zeroed(self.send.count, self.datatype)?) };
        Ok(OwnedBytes::new(send, zeroed(self.recv.count, self.datatype)?, self.datatype))
    }

    /// The buffers of the group one after the other, or else `one`.
    fn parts<'a>(&'a self, one: &'a BufferArg) -> &'a [BufferArg] {
        if self.group.is_empty() { std::slice::from_ref(one) } else { &self.group }
    }

    /// Copies the contribution. The buffers are checked.
    ///
    /// # Safety
    /// C.
    pub unsafe fn read(&self, copies: &mut OwnedBytes) {
        let mut to = copies.send.as_mut().unwrap_or(&mut copies.recv).as_mut_slice();
        for part in self.parts(&self.send) {
            // SAFETY: C, checked.
            let from = unsafe { part.bytes(self.datatype.size()) };
            let (now, rest) = to.split_at_mut(from.len());
            match self.datatype == DType::Bool.into() {
                true => now.iter_mut().zip(from).for_each(|(to, from)| *to = u8::from(*from != 0)),
                false => now.copy_from_slice(from),
            }
            to = rest;
        }
    }

    /// Copies the result back. The buffers are checked.
    ///
    /// # Safety
    /// C.
    pub unsafe fn write(&self, copies: &OwnedBytes) {
        let mut from = copies.recv.as_slice();
        for part in self.parts(&self.recv).iter().filter(|_| self.has_result) {
            // SAFETY: C, checked.
            let to = unsafe { part.bytes_mut(self.datatype.size()) };
            let (now, rest) = from.split_at(to.len());
            to.copy_from_slice(now);
            from = rest;
        }
    }
}

/// A collective call.
pub struct Call<'a> {
    pub collective: Collective,
    /// Without effect where nothing is reduced.
    pub op: SharedReduceOp,
    pub root: Option<usize>,
    pub counts: Counts<'a>,
    pub buffers: CallerBuffers,
}

impl<'a> Call<'a> {
    /// Describes a call that moves data, with blocks of `counts`.
    pub fn moving(collective: Collective, root: Option<usize>, counts: Counts<'a>, buffers: CallerBuffers) -> Self {
        Call { collective, op: Op::Sum.into(), root, counts, buffers }
    }

    #[inline(always)]
    fn args<'c, B: IntoCallBuffers<'c, Item = u8>>(&'c self, buffers: B) -> B::Args<SharedReduceOp> {
        CollectiveArgs::describe(self.collective, self.root, self.counts, buffers, &self.op)
    }

    /// Makes the blocking call.
    ///
    /// # Safety
    /// C.
    #[inline(always)]
    pub unsafe fn run(self, comm: &Communicator) -> Result<(), Error> {
        let Call { collective, op, root, counts, buffers } = self;
        if !buffers.are_direct() {
            // SAFETY: by the caller's contract.
            return unsafe { Call { collective, op, root, counts, buffers }.run_on_copies(comm) };
        }
        // Copied out of the call, so that a small one by an operator of the library's stays in registers.
        let CallerBuffers { datatype, send, recv, in_place, .. } = buffers;
        let size = datatype.size();
        recv.check(datatype)?;
        if !in_place {
            send.check(datatype)?;
            send.check_disjoint(&recv, size)?;
        }
        // SAFETY: by the caller's contract, and apart unless in place, as checked.
        let (send, recv) = unsafe { ((!in_place).then(|| send.bytes(size)), recv.bytes_mut(size)) };
        let bytes = CallBuffers::of_bytes(send, recv, datatype);
        match op {
            SharedReduceOp::Builtin(op) => {
                comm.run(CollectiveArgs::describe(collective, root, counts, bytes, ReduceOp::Builtin(op)))
            }
            SharedReduceOp::User(op) => {
                comm.run(CollectiveArgs::describe(collective, root, counts, bytes, ReduceOp::User(&*op)))
            }
        }
    }

    /// # Safety
    /// C.
    #[cold]
    unsafe fn run_on_copies(self, comm: &Communicator) -> Result<(), Error> {
        let buffers = &self.buffers;
        buffers.check()?;
        if !buffers.in_place {
            buffers.send.check_disjoint(&buffers.recv, buffers.datatype.size())?;
        }
        let mut copies = buffers.zeroed(false)?;
        let send = match buffers.can_send() {
            // SAFETY: C.
            true => Some(unsafe { buffers.send.bytes(buffers.datatype.size()) }),
            false => {
                // SAFETY: C.
                unsafe { buffers.read(&mut copies) };
                copies.send.as_deref()
            }
        };
        comm.run(self.args(CallBuffers::of_bytes(send, &mut copies.recv, buffers.datatype)))?;
        // SAFETY: C.
        unsafe { buffers.write(&copies) };
        Ok(())
    }

    /// Checks the call, and prepares it to be started on copies of its buffers, which are zeros so far.
    pub fn init(&self, comm: &Arc<Communicator>) -> Result<Persistent<'static, OwnedBytes>, Error> {
        self.buffers.check()?;
        comm.init_owned(self.args(self.buffers.zeroed(self.collective == Collective::AllReduce)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use earlybird::Identity;

    #[test]
    fn any_byte_is_read_as_bool() {
        let identity = Identity::named(&format!("bool-{}", std::process::id()), 0, 1).unwrap();
        let comm = Communicator::builder().identity(identity).connect().unwrap();
        let (send, mut recv) = ([2u8, 0, 255], [7u8, 7, 0]);
        let to = BufferArg::recv(recv.as_mut_ptr().cast(), 3);
        let buffers = CallerBuffers::new(DType::Bool.into(), (send.as_ptr().cast(), 3), to, 0);
        let (collective, op, counts) = (Collective::AllReduce, Op::LogicalOr.into(), Counts::Uniform);
        // SAFETY: three bytes each.
        let done = unsafe { Call { collective, op, root: None, counts, buffers }.run(&comm) };
        assert_eq!((done, recv), (Ok(()), [1, 0, 1]));
    }
}
