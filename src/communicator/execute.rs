//! The execution of blocking calls: on the fast path by the node, else routed by the settings to a plan, to the node, or to several
//! nodes.

use super::Communicator;
use crate::Error;
use earlybird_shm::{CallOptions, CollectiveArgs};

impl Communicator {
    /// Makes a call that is described by `args` and waits for its end: what every blocking method of a communicator does.
    ///
    /// ```
    /// use earlybird::{CollectiveArgs, Communicator, Op};
    /// let comm = Communicator::from_env()?;
    /// let mut sums = [1.0f32, 2.0];
    /// comm.run(CollectiveArgs::all_reduce(&mut sums[..], Op::Sum))?;
    /// assert_eq!(sums, [1.0, 2.0]);
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Usage`] for a root that does not exist, buffers and counts that do not fit each other, or a second thread;
    /// [`Error::Unsupported`] where the operator does not exist for the datatype: both before anything is shared.
    /// [`Error::PeerDied`], [`Error::Mismatch`], [`Error::Timeout`], [`Error::NoSpace`], [`Error::OperatorPanicked`]: every
    /// rank still in the call gets the same one, a rank that has completed the call gets it at its next. The receive buffer
    /// is of no use then.
    #[doc(hidden)]
    #[inline(always)]
    pub fn run(&self, args: CollectiveArgs<'_>) -> Result<(), Error> {
        match self.settings.fast_options() {
            Some(options) => self.node.execute(args.options(options)),
            // A copy of the arguments for this path alone, so that the fast path has them in registers.
            None => self.run_routed(args.options(CallOptions::default())),
        }
    }

    /// Makes a call that cannot take the fast path.
    #[cold]
    #[inline(never)]
    fn run_routed(&self, args: CollectiveArgs<'_>) -> Result<(), Error> {
        match self.call_trace() {
            Some(trace) => self.run_traced(trace, args),
            None => self.route(args),
        }
    }

    /// Makes a call by the algorithm or plan that the settings choose.
    pub(super) fn route(&self, args: CollectiveArgs<'_>) -> Result<(), Error> {
        if let (Some(counts), Some(across)) = (args.counts_of_owners(), self.across()) {
            return self.run_by_counts_of_root(&across, args, counts);
        }
        let mut checked = args.check(self.rank, self.size)?;
        if let Some(across) = self.across() {
            return across.run(checked);
        }
        let (collective, bytes) = (checked.collective(), checked.selecting_bytes());
        let plan = self.plan_for(collective, bytes).filter(|_| checked.is_plain());
        match plan {
            Some(plan) => self.run_plan(plan, |plans| plans.execute(plan, checked.into_private())),
            None => {
                self.plans.begin_other_call();
                checked.set_options(self.settings.options(collective, bytes));
                self.done(self.node.execute_checked(checked))
            }
        }
    }
}
