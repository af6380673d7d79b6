//! Calls that are under way while their caller does something else: requests, and calls that are started again and again.

use super::Communicator;
use super::comm_plans::plan_of;
use super::prepared_call::PreparedCall;
use crate::trace::NewRecord;
use crate::{BufferOwner, Error, OwnedArgs};
use earlybird_shm::{Collective, SharedReduceOp, Started, engine};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// Makes progress in everything that this process has started and that is not complete, on every communicator, as far as that
/// goes without waiting. Returns whether something may be left.
///
/// A thread that waits in a call of this library does it anyway, at least every 200 microseconds or, where the call that it
/// waits for was itself started, every millisecond. Call it where this process waits for something else that may need a rank which waits for
/// a started call: inside MPI, a socket, a lock. Costs a load where nothing is started, and what is to be reduced and sent where
/// something is. Any thread may call it; a communicator that another thread is inside of, or that was made from MPI and
/// that this thread may not use, is left out. An error is returned by the call that it belongs to, and looked for there: to
/// wait for a call use its `wait` or `try_wait`.
///
/// ```
/// # let (comm, done) = (earlybird::Communicator::from_env()?, std::sync::atomic::AtomicBool::new(true));
/// let sum = comm.start(earlybird::CollectiveArgs::all_reduce(vec![1u32; 1000], earlybird::Op::Sum))?;
/// while !done.load(std::sync::atomic::Ordering::Acquire) {
///     earlybird::progress();
/// }
/// assert_eq!(sum.wait()?, vec![1; 1000]);
/// # Ok::<(), earlybird::Error>(())
/// ```
pub fn progress() -> bool {
    engine::progress()
}

/// A call under way, which owns its buffers until it is complete: what [`Communicator::start`] gives.
///
/// The contribution is deposited in the call that starts it where the memory for it is free, otherwise in a later call of this
/// communicator: a call is started without waiting for another rank. Every call of the communicator makes progress in all that is
/// under way, and so does every wait of this process in another one, and [`progress`]; a rank that computes meanwhile holds
/// up no rank that has its contribution, but for a call of more than 1 MiB of private memory and for the leader of a node. Calls count in the order in
/// which they were made, on all ranks the same, blocking ones included; requests may be waited for in any order.
///
/// A request that is dropped releases its call: it is completed inside later calls of the communicator, at the latest
/// when that is dropped, and its buffers are freed then.
///
/// ```
/// use earlybird::{CollectiveArgs, Communicator, Op};
/// let comm = Communicator::from_env()?;
/// let sum = comm.start(CollectiveArgs::all_reduce(vec![1.0f32, 2.0], Op::Sum))?;
/// let squares: u64 = (0..100).map(|x| x * x).sum(); // meanwhile
/// let sum = sum.wait()?;
/// assert_eq!((sum, squares), (vec![1.0, 2.0], 328350));
/// # Ok::<(), earlybird::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a request that is dropped loses its result"]
pub struct Request<'c, B> {
    /// `None` once the call has ended.
    call: Option<Persistent<'c, B>>,
}

impl<B: BufferOwner> Request<'_, B> {
    /// Waits for the result and gives the buffers back.
    ///
    /// # Errors
    /// The errors of [`Communicator::all_reduce_into`]. [`Error::Usage`] when another thread is inside a call; the call goes on then
    /// as if the request had been dropped.
    pub fn wait(self) -> Result<B, Error> {
        let mut call = self.call.ok_or_else(has_ended)?;
        call.wait()?;
        call.into_buffers()
    }

    /// The buffers if the result is there, `None` if it is not; never waits for another rank.
    ///
    /// # Errors
    /// The errors of [`Request::wait`], and [`Error::Usage`] once the buffers were given back. Deaths and different calls are
    /// noticed by trying again, as by waiting.
    pub fn try_wait(&mut self) -> Result<Option<B>, Error> {
        let result = self.call.as_mut().ok_or_else(has_ended)?.try_wait();
        let ended = self.call.take_if(|call| !call.is_started());
        result?;
        ended.map(Persistent::into_buffers).transpose()
    }
}

fn has_ended() -> Error {
    Error::usage("the request has ended and its buffers were given back; start another call")
}

/// Waits for all of these requests, which may have ended in any order, and gives their buffers back.
///
/// ```
/// use earlybird::{CollectiveArgs, Communicator, Op};
/// let comm = Communicator::from_env()?;
/// let layers = [vec![1.0f32; 10], vec![2.0; 1000]];
/// let started = layers.into_iter().map(|layer| comm.start(CollectiveArgs::all_reduce(layer, Op::Average)));
/// let averages = earlybird::wait_all(started.collect::<Result<Vec<_>, _>>()?)?;
/// assert_eq!((averages[0][9], averages[1].len()), (1.0, 1000));
/// # Ok::<(), earlybird::Error>(())
/// ```
///
/// # Errors
/// The first error of [`Request::wait`], when all have ended.
pub fn wait_all<'c, B: BufferOwner>(requests: impl IntoIterator<Item = Request<'c, B>>) -> Result<Vec<B>, Error> {
    let ended: Vec<Result<B, Error>> = requests.into_iter().map(Request::wait).collect();
    ended.into_iter().collect()
}

/// A call that is prepared once and started again and again: what [`Communicator::init`] gives. It owns its buffers; starting and
/// completing it allocates nothing on one node, nor does an allreduce over several.
///
/// ```
/// use earlybird::{CollectiveArgs, Communicator, Op};
/// let comm = Communicator::from_env()?;
/// let mut sum = comm.init(CollectiveArgs::all_reduce(vec![0.0f32; 3], Op::Sum))?;
/// for step in 0..10 {
///     sum.buffers_mut()?.fill(step as f32);
///     sum.start()?;
///     // compute
///     sum.wait()?;
///     assert_eq!(sum.buffers_mut()?[..], [step as f32; 3]);
/// }
/// # Ok::<(), earlybird::Error>(())
/// ```
///
/// Each start is a call like that of [`Communicator::start`] and must be made by all ranks in the same order among their other
/// calls; preparing it is none. Dropping it while it is under way releases the call, as of a [`Request`]. It can be sent to another thread,
/// not shared.
#[derive(Debug)]
#[must_use = "a prepared call does nothing before it is started"]
pub struct Persistent<'c, B> {
    comm: CommRef<'c>,
    call: NewRecord,
    state: State,
    buffers: PhantomData<fn() -> B>,
}

/// The communicator of a call.
#[derive(Debug)]
enum CommRef<'c> {
    Borrowed(&'c Communicator),
    Shared(Arc<Communicator>),
}

impl Deref for CommRef<'_> {
    type Target = Communicator;

    fn deref(&self) -> &Communicator {
        match self {
            CommRef::Borrowed(comm) => comm,
            CommRef::Shared(comm) => comm,
        }
    }
}

#[derive(Debug)]
enum State {
    Inactive(PreparedCall),
    /// Started under this number.
    Started(u64),
    /// Started, and complete by then, with this result; not waited for so far.
    Ended(PreparedCall, Result<(), Error>),
    /// Between two states.
    Moving,
}

impl<B: BufferOwner> Persistent<'_, B> {
    /// Starts the call; never waits for another rank.
    ///
    /// # Errors
    /// [`Error::Usage`] when it is under way; others as [`Communicator::all_reduce_into`].
    pub fn start(&mut self) -> Result<(), Error> {
        let ready = self.take_inactive("start it")?;
        self.comm.plans.begin_other_call();
        let (state, result) = match self.comm.start_prepared(ready, self.call) {
            Ok(Started::UnderWay(number)) => (State::Started(number), Ok(())),
            Ok(Started::Ended((ready, result))) => (State::Ended(ready, result), Ok(())),
            Err((ready, error)) => (State::Inactive(ready), Err(error)),
        };
        self.state = state;
        self.comm.done(result)
    }

    /// Waits until the call that was started is complete; returns at once where none was.
    ///
    /// # Errors
    /// The errors of [`Communicator::all_reduce_into`]; after a failure of the group it can be had back, not started.
    pub fn wait(&mut self) -> Result<(), Error> {
        let (ready, result) = match self.state {
            State::Started(number) => self.comm.finish(number)?,
            _ => return self.take_result(),
        };
        self.state = State::Inactive(ready);
        result
    }

    /// Returns whether the call that was started is complete; never waits for another rank.
    ///
    /// # Errors
    /// The errors of [`Persistent::wait`].
    pub fn try_wait(&mut self) -> Result<bool, Error> {
        let State::Started(number) = self.state else { return self.take_result().map(|()| true) };
        let Some((ready, result)) = self.comm.ask(number)? else { return Ok(false) };
        self.state = State::Inactive(ready);
        result.map(|()| true)
    }

    /// The result of a call that was complete when it had been started; none is left where there is no such call.
    fn take_result(&mut self) -> Result<(), Error> {
        if matches!(self.state, State::Ended(..)) && self.comm.node.is_forked() {
            return Err(Error::Forked);
        }
        match std::mem::replace(&mut self.state, State::Moving) {
            State::Ended(ready, result) => {
                self.state = State::Inactive(ready);
                result
            }
            other => {
                self.state = other;
                Ok(())
            }
        }
    }

    /// Returns whether the call is complete by what this rank has found so far: unlike [`Persistent::try_wait`] it makes no progress.
    #[doc(hidden)]
    pub fn has_ended(&self) -> bool {
        match self.state {
            State::Started(number) => self.comm.has_ended(number),
            State::Inactive(_) | State::Ended(..) | State::Moving => true,
        }
    }

    /// Returns whether a call was started and not yet waited for; its buffers are not available then.
    pub fn is_started(&self) -> bool {
        matches!(self.state, State::Started(_) | State::Ended(..))
    }

    /// Starts and waits.
    ///
    /// # Errors
    /// The errors of [`Persistent::start`] and [`Persistent::wait`].
    pub fn run(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.state, State::Moving) {
            State::Inactive(PreparedCall::MultiNode(prepared)) => {
                let (ready, result) = self.comm.run_prepared(prepared, self.call);
                self.state = State::Inactive(ready);
                result
            }
            state => {
                self.state = state;
                self.start()?;
                self.wait()
            }
        }
    }

    /// The buffers, consuming the prepared call.
    ///
    /// # Errors
    /// [`Error::Usage`] while the call is under way, which goes on then as if this had been dropped.
    pub fn into_buffers(mut self) -> Result<B, Error> {
        let ready = self.take_inactive("take its buffers")?;
        Ok(ready.into_buffers().expect("the type it was made with"))
    }

    /// The inactive call, which the caller puts back or keeps; refused where it has to be waited for before.
    fn take_inactive(&mut self, purpose: &str) -> Result<PreparedCall, Error> {
        match std::mem::replace(&mut self.state, State::Moving) {
            State::Inactive(ready) => Ok(ready),
            active => {
                self.state = active;
                Err(is_under_way(purpose))
            }
        }
    }

    /// The buffers: what the next start sends, what the last one received. Their lengths must stay as they are.
    ///
    /// # Errors
    /// [`Error::Usage`] while the call is under way.
    pub fn buffers_mut(&mut self) -> Result<&mut B, Error> {
        match &mut self.state {
            State::Inactive(ready) => Ok(ready.buffers().expect("the type it was made with")),
            State::Started(_) | State::Ended(..) | State::Moving => Err(is_under_way("use its buffers")),
        }
    }
}

fn is_under_way(purpose: &str) -> Error {
    Error::usage(format!("the call is under way; wait for it, then {purpose}"))
}

impl<B> Drop for Persistent<'_, B> {
    fn drop(&mut self) {
        if let State::Started(number) = self.state {
            self.comm.detach(number);
        }
    }
}

impl<'c> CommRef<'c> {
    fn init<B: BufferOwner>(
        self,
        args: OwnedArgs<'_, B, impl Into<SharedReduceOp>>,
    ) -> Result<Persistent<'c, B>, Error> {
        let (ready, call) = self.prepare(args)?;
        Ok(Persistent { comm: self, call, state: State::Inactive(ready), buffers: PhantomData })
    }
}

impl Communicator {
    /// Starts a call and returns at once: the collective of `args` on buffers that the call owns until it has ended, vectors or
    /// shared buffers of [`Communicator::alloc`].
    ///
    /// ```
    /// use earlybird::{CollectiveArgs, Communicator, Op, UserOp};
    /// use std::sync::Arc;
    /// let comm = Communicator::from_env()?;
    /// let largest = comm.start(CollectiveArgs::all_reduce(vec![1.0f32, 2.0], Op::Max))?;
    /// // A send buffer and a receive buffer, by an operator that the call shares.
    /// let product = Arc::new(UserOp::commutative(|a: &u64, b: &u64| a.wrapping_mul(*b)));
    /// let products = comm.start(CollectiveArgs::all_reduce((vec![3u64], vec![0]), &product))?;
    /// assert_eq!(products.wait()?, (vec![3], vec![3]));
    /// assert_eq!(largest.wait()?, [1.0, 2.0]);
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// Allreduces that are longer than what `flat` carries run `slices`: deposited here, reduced by whichever rank is inside a
    /// call. Reductions are by rank, so the bits are the same in every run. `EARLYBIRD_ALLREDUCE` and
    /// [`Communicator::set_algorithm`] have no say in it, but that a plan is refused; [`Communicator::last_call`] tells what
    /// ran. Over several nodes it runs as the blocking call does, by the plan between them that was chosen when it was
    /// prepared, but not cut into segments. An operator of a user's runs inside any call of this process that makes progress in
    /// what is started, in whatever thread; it must call no communicator. On one node an allreduce of shared buffers by one of the
    /// library's operators is reduced where they lie by the ranks that wait, by rank: however large it is, a rank that has
    /// started it and computes is not needed. All ranks must give such buffers; after an error the one of the result holds
    /// zeros. Every other call takes shared buffers as it takes vectors. An alltoall of unequal blocks compares the counts of
    /// all ranks when it ends: counts that differ are an [`Error::Mismatch`] on all ranks, which go on. On one node what a rank
    /// sends in it lies in shared memory of the node, out of [`Config::arena_max_bytes`](crate::Config): up to 32 MiB of it stay
    /// with the communicator for later calls, more is taken until every rank has received its part, which costs its page faults. Over
    /// several nodes a rank must come back to the communicator for its data to be sent.
    ///
    /// # Errors
    /// Everything that can be refused at once: [`Error::Usage`], [`Error::Unsupported`] where the operator does not exist for
    /// the datatype, and on one node with a plan chosen; the group's one error if it has failed. Others at [`Request::wait`].
    pub fn start<B: BufferOwner>(
        &self,
        args: OwnedArgs<'_, B, impl Into<SharedReduceOp>>,
    ) -> Result<Request<'_, B>, Error> {
        let mut call = self.init(args)?;
        call.start()?;
        Ok(Request { call: Some(call) })
    }

    /// Prepares a call to be started any number of times: MPI calls it persistent. No call is made here.
    ///
    /// # Errors
    /// The errors of [`Communicator::start`], but for those of the group.
    pub fn init<B: BufferOwner>(
        &self,
        args: OwnedArgs<'_, B, impl Into<SharedReduceOp>>,
    ) -> Result<Persistent<'_, B>, Error> {
        CommRef::Borrowed(self).init(args)
    }

    /// Prepares a call as [`Communicator::init`] does, and shares the communicator with it: the call can be kept where no
    /// lifetime fits. The communicator is left when the last handle and the last call that shares it are dropped.
    ///
    /// ```
    /// use earlybird::{CollectiveArgs, Communicator, Op, Persistent};
    /// use std::sync::Arc;
    /// struct Optimizer {
    ///     gradient: Persistent<'static, Vec<f32>>,
    /// }
    /// let comm = Arc::new(Communicator::from_env()?);
    /// let gradient = comm.init_owned(CollectiveArgs::all_reduce(vec![1.0f32; 3], Op::Average))?;
    /// let mut optimizer = Optimizer { gradient };
    /// drop(comm);
    /// optimizer.gradient.run()?;
    /// assert_eq!(optimizer.gradient.buffers_mut()?[..], [1.0; 3]);
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Communicator::init`].
    pub fn init_owned<B: BufferOwner>(
        self: &Arc<Self>,
        args: OwnedArgs<'_, B, impl Into<SharedReduceOp>>,
    ) -> Result<Persistent<'static, B>, Error> {
        CommRef::Shared(self.clone()).init(args)
    }

    /// Checks a call, and hands its buffers to what carries it out. The record is of the call as it was made.
    fn prepare<B: BufferOwner>(
        &self,
        args: OwnedArgs<'_, B, impl Into<SharedReduceOp>>,
    ) -> Result<(PreparedCall, NewRecord), Error> {
        let mut call = args.into_call();
        let record = match NewRecord::of(&call.args(), self.size) {
            // A started barrier sends a token.
            NewRecord { collective: Collective::Barrier, .. } => NewRecord::without_data(Collective::Barrier),
            record => record,
        };
        let ready = match self.across() {
            Some(across) => PreparedCall::MultiNode(Box::new(across.prepared(call)?)),
            None => {
                let ready = PreparedCall::OneNode(self.node.prepare(call)?);
                self.refuse_plan(record)?;
                ready
            }
        };
        Ok((ready, record))
    }

    /// Refuses a call that is started on one node where a plan was chosen for it. Plans that were measured for blocking calls do not
    /// count.
    fn refuse_plan(&self, NewRecord { collective, bytes }: NewRecord) -> Result<(), Error> {
        match plan_of(collective, self.settings.requested(collective, bytes)) {
            None => Ok(()),
            Some(plan) => Err(Error::Unsupported {
                what: format!("a non-blocking {} by plan:{plan}", collective.name()),
                hint: "make the blocking call of the same name, or choose another algorithm".into(),
            }),
        }
    }
}
