//! The placement of a checked call's buffers: its checks, and conversions of the call to other memory.

use crate::Error;
use crate::args::{CollectiveArgs, Placement};
use crate::checked_args::CheckedArgs;
use crate::protocol::collective::Collective;
use crate::protocol::shared_result::SharedResult;
use crate::reduce_op::ReduceOp;

impl CollectiveArgs<'_> {
    /// Refuses a view as the receive buffer of what has no result that all ranks share.
    pub(crate) fn check_placement(&self) -> Result<(), Error> {
        match (&self.placement, self.collective) {
            (Placement::Private | Placement::Registered(_), _) | (_, Collective::AllReduce) => Ok(()),
            (Placement::SharedResult(_), collective) => {
                let name = collective.name();
                Err(Error::usage(format!("{name} into a view; only an allreduce has such a result, give a buffer")))
            }
        }
    }
}

impl<'a> CheckedArgs<'a> {
    /// Converts to a call on private memory: registered buffers count as private ones, and a view gets its own copy.
    pub fn into_private(mut self) -> Self {
        match std::mem::take(&mut self.args.placement) {
            Placement::Private | Placement::Registered(_) => self,
            Placement::SharedResult(view) => {
                let bytes = self.selecting_bytes();
                self.received_in(view.own(bytes))
            }
        }
    }

    /// Returns whether the result is to lie where all ranks read it.
    pub fn has_shared_result(&self) -> bool {
        matches!(self.args.placement, Placement::SharedResult(_))
    }

    /// The arguments, with the parts of buffers in place that are this rank's own.
    pub fn into_args(self) -> CollectiveArgs<'a> {
        self.args
    }

    /// Replaces the receive buffer by these bytes.
    pub(crate) fn received_in<'b>(self, recv: &'b mut [u8]) -> CheckedArgs<'b>
    where
        'a: 'b,
    {
        let mut checked: CheckedArgs<'b> = self;
        checked.args.buffers = checked.args.buffers.received_in(recv);
        checked
    }

    /// Returns whether the call can work in registered buffers.
    pub(crate) fn registers(&self) -> bool {
        matches!((self.args.collective, self.args.op), (Collective::AllReduce, ReduceOp::Builtin(_)))
    }

    /// Takes out where the buffers lie: private memory from here on, and where the call cannot work in registered buffers.
    pub(crate) fn take_placement(&mut self) -> Placement<'a> {
        let registers = self.registers();
        match std::mem::take(&mut self.args.placement) {
            Placement::Registered(_) if !registers => Placement::Private,
            placement => placement,
        }
    }

    /// Converts to a call on registered buffers with these names.
    pub(crate) fn registered(mut self, names: [u64; 2]) -> Self {
        self.args.buffers = self.args.buffers.registered(names);
        self
    }

    /// Converts to a call with a shared result; the receive buffer is used only if the ranks do not agree on a place.
    pub(crate) fn shared<'b>(self, shared: &'b SharedResult) -> CheckedArgs<'b>
    where
        'a: 'b,
    {
        let mut checked: CheckedArgs<'b> = self;
        checked.args.buffers = checked.args.buffers.shared(shared);
        checked
    }
}
