//! The calls of a communicator of several nodes: checked arguments and the settings chosen for them, passed to [`MultiNodeComm`].

use super::Communicator;
use crate::choice::mark_of;
use crate::hierarchy::{Call, LeaderTransport, MultiNodeComm, Part, Prepared};
use crate::{Choice, Error};
use earlybird_shm::{CallOptions, CheckedArgs, Collective, OwnedCall};

/// The calls of a communicator that spans several nodes.
pub(super) struct MultiNodeCalls<'a> {
    comm: &'a Communicator,
    between: &'a MultiNodeComm,
}

impl Communicator {
    /// The other nodes, where there are some.
    #[inline]
    pub(super) fn across(&self) -> Option<MultiNodeCalls<'_>> {
        self.between.as_ref().map(|between| MultiNodeCalls { comm: self, between })
    }
}

impl MultiNodeCalls<'_> {
    /// Makes a blocking call.
    pub(super) fn run(&self, checked: CheckedArgs<'_>) -> Result<(), Error> {
        let (call, checked) = self.described(checked);
        self.between.block(|hierarchy| hierarchy.run_checked(&call, checked))
    }

    /// A call that can be started; refused here, as on one node, if its arguments do not fit each other.
    pub(super) fn prepared(&self, mut owned: OwnedCall) -> Result<Prepared, Error> {
        owned.become_alltoall(self.comm.rank(), self.comm.size())?;
        let (call, _) = self.described(owned.check(self.comm.rank(), self.comm.size())?);
        Prepared::new(self.between, owned, call.started())
    }

    /// The call with the settings that are chosen for it.
    fn described<'c>(&self, mut checked: CheckedArgs<'c>) -> (Call, CheckedArgs<'c>) {
        let (options, exchange) = self.chosen(checked.collective(), checked.selecting_bytes());
        checked.set_options(options);
        (Call::new(&checked, exchange), checked)
    }

    /// The settings of a call with blocks of so many bytes, and the plan between leaders, where one was chosen. They are a part of
    /// the signature that ranks compare, also on ranks that exchange nothing.
    fn chosen(&self, collective: Collective, bytes: usize) -> (CallOptions, Option<&'static str>) {
        let settings = &self.comm.settings;
        let exchange = settings.choice(collective, bytes).plan();
        let within = exchange.filter(|_| collective == Collective::AllReduce).map_or(0, mark_of);
        (CallOptions { within, ..settings.options(collective, bytes) }, exchange)
    }

    pub(super) fn split(&self, what: Collective, color: Option<u32>, key: i64) -> Result<Option<Part>, Error> {
        let call = Call::agreement(what, self.chosen(what, 0).0);
        self.between.block(|hierarchy| hierarchy.split(&call, color, key))
    }

    /// A second transport between all ranks, for point-to-point messages.
    pub(super) fn connect_messages(&self) -> Result<LeaderTransport, Error> {
        let call = Call::agreement(Collective::Connect, self.chosen(Collective::Connect, 0).0);
        self.between.block(|hierarchy| hierarchy.connect_messages(&call))
    }

    /// The report of the last call.
    pub(super) fn last(&self) -> Option<super::CallReport> {
        let (operation, name) = self.between.last()?;
        Some(super::CallReport { operation, algorithm: Choice::Plan(name), place: None })
    }
}
