//! Calls that are under way while their caller does something else: requests, and calls that are started again and again.

use super::Communicator;
use super::plan_lane::plan_of;
use super::prepared_call::{Completion, PreparedCall};
use crate::hierarchy::Prepared;
use crate::{Element, Error, Op};
use earlybird_shm::{Collective, OwnedBuffers, engine};

/// Many buffers that are reduced as one message.
pub(super) type Grouped<T> = Vec<Vec<T>>;

/// What a call gives, and what it gets.
pub(super) type Pair<T> = (Vec<T>, Vec<T>);

/// Carries on with everything that this process has posted and that is not complete, on every communicator, as far as that
/// goes without waiting; whether something may be left.
///
/// Whoever waits in a call of this library does it anyway, at least every 200 microseconds or, where the call that waits is
/// itself posted, every millisecond. Call it where this process waits for something else that may need a rank which waits for
/// a posted call: inside MPI, a socket, a lock. Costs a load where nothing is posted, and what is to be folded and sent where
/// something is. Any thread may call it; a communicator that another thread is inside of, or that was made from MPI and
/// that this thread may not use, is left out. What goes wrong is told by the call that it belongs to, and looked for there: to
/// wait for a call use its `wait` or `test`.
///
/// ```
/// # let (comm, done) = (earlybird::Communicator::from_env()?, std::sync::atomic::AtomicBool::new(true));
/// let sum = comm.immediate_all_reduce(vec![1u32; 1000], earlybird::Op::Sum)?;
/// while !done.load(std::sync::atomic::Ordering::Acquire) {
///     earlybird::progress();
/// }
/// assert_eq!(sum.wait()?, vec![1; 1000]);
/// # Ok::<(), earlybird::Error>(())
/// ```
pub fn progress() -> bool {
    engine::progress()
}

/// A call under way, which owns its buffers until it is complete: what `immediate_…` gives.
///
/// The contribution is deposited in the posting call where the memory for it is free, otherwise in a later call of this
/// communicator: a call is posted without waiting for anybody. Every call of the communicator carries on with all that is
/// under way, and so does every wait of this process in another one, and [`progress`]; a rank that computes meanwhile holds
/// up nobody who has its contribution, but for a large call and for the leader of a node. Calls count in the order in
/// which they were made, on all ranks the same, blocking ones included; requests may be waited for in any order.
///
/// A request that is dropped lets go of its call: it is completed inside later calls of the communicator, at the latest
/// when that is dropped, and its buffers are freed then.
///
/// ```
/// let comm = earlybird::Communicator::from_env()?;
/// let sum = comm.immediate_all_reduce(vec![1.0f32, 2.0], earlybird::Op::Sum)?;
/// let squares: u64 = (0..100).map(|x| x * x).sum(); // meanwhile
/// let sum = sum.wait()?;
/// assert_eq!((sum, squares), (vec![1.0, 2.0], 328350));
/// # Ok::<(), earlybird::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a request that is dropped lets go of its result"]
pub struct Request<'c, B> {
    comm: &'c Communicator,
    /// Under which the call is posted; `None` once it has ended.
    number: Option<u64>,
    take: fn(PreparedCall) -> B,
}

impl<B> Request<'_, B> {
    /// Waits for the result and gives the buffers back.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]. [`Error::Usage`] when another thread is inside a call; the call goes on then
    /// as if the request had been dropped.
    pub fn wait(mut self) -> Result<B, Error> {
        let number = self.number.expect("a request has its number until it ends");
        let ended = self.comm.finish(number)?;
        self.end(ended)
    }

    /// The buffers if the result is there, the request itself if it is not; never waits for another rank.
    ///
    /// # Errors
    /// As [`Request::wait`]. Deaths and different calls are noticed by asking again, as by waiting.
    pub fn test(mut self) -> Result<Result<B, Self>, Error> {
        let number = self.number.expect("a request has its number until it ends");
        match self.comm.ask(number)? {
            Some(ended) => self.end(ended).map(Ok),
            None => Ok(Err(self)),
        }
    }

    fn end(&mut self, (ready, result): Completion) -> Result<B, Error> {
        self.number = None;
        result.map(|()| (self.take)(ready))
    }
}

impl<B> Drop for Request<'_, B> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.comm.detach(number);
        }
    }
}

/// A call that is prepared once and started again and again: what `…_init` gives. It owns its buffers; starting and
/// completing it allocates nothing on one node, nor does an allreduce over several.
///
/// ```
/// let comm = earlybird::Communicator::from_env()?;
/// let mut sum = comm.all_reduce_init(vec![0.0f32; 3], earlybird::Op::Sum)?;
/// for step in 0..10 {
///     sum.buffer_mut()?.fill(step as f32);
///     sum.start()?;
///     // compute
///     sum.wait()?;
///     assert_eq!(sum.buffer_mut()?, [step as f32; 3]);
/// }
/// # Ok::<(), earlybird::Error>(())
/// ```
///
/// Each start is a call like an `immediate_…` one and must be made by all ranks in the same order among their other
/// calls; preparing it is none. Dropping it while it is under way lets go of it, as of a [`Request`].
#[derive(Debug)]
pub struct Persistent<'c, B> {
    comm: &'c Communicator,
    state: State,
    take: fn(PreparedCall) -> B,
}

#[derive(Debug)]
enum State {
    Inactive(PreparedCall),
    /// Posted under this number.
    Started(u64),
    /// Between two states.
    Moving,
}

impl<'c, B> Persistent<'c, B> {
    /// Posts the call; never waits for another rank.
    ///
    /// # Errors
    /// [`Error::Usage`] when it is under way; others as [`Communicator::all_reduce_into`].
    pub fn start(&mut self) -> Result<(), Error> {
        self.ready_to("start it")?;
        let State::Inactive(ready) = std::mem::replace(&mut self.state, State::Moving) else {
            unreachable!("it is ready")
        };
        self.comm.plans.begin_other_call();
        let (state, result) = match self.comm.post(ready) {
            Ok(number) => (State::Started(number), Ok(())),
            Err((ready, error)) => (State::Inactive(ready), Err(error)),
        };
        self.state = state;
        self.comm.done(result)
    }

    /// Waits until the call that was started is complete; returns at once where none was.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; after a failure of the group it can be had back, not started.
    pub fn wait(&mut self) -> Result<(), Error> {
        let State::Started(number) = self.state else { return Ok(()) };
        let (ready, result) = self.comm.finish(number)?;
        self.state = State::Inactive(ready);
        result
    }

    /// Whether the call that was started is complete; never waits for another rank.
    ///
    /// # Errors
    /// As [`Persistent::wait`].
    pub fn test(&mut self) -> Result<bool, Error> {
        let State::Started(number) = self.state else { return Ok(true) };
        let Some((ready, result)) = self.comm.ask(number)? else { return Ok(false) };
        self.state = State::Inactive(ready);
        result.map(|()| true)
    }

    /// Whether a call was started and its end not been waited for: its buffers are not to be had.
    pub fn is_started(&self) -> bool {
        matches!(self.state, State::Started(_))
    }

    /// Starts and waits.
    ///
    /// # Errors
    /// As [`Persistent::start`] and [`Persistent::wait`].
    pub fn run(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.state, State::Moving) {
            State::Inactive(PreparedCall::MultiNode(prepared)) => {
                let (ready, result) = self.comm.run_prepared(prepared);
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

    /// The buffers, for good.
    ///
    /// # Errors
    /// [`Error::Usage`] while the call is under way, which goes on then as if this had been dropped.
    pub fn into_buffers(mut self) -> Result<B, Error> {
        self.ready_to("take its buffers")?;
        match std::mem::replace(&mut self.state, State::Moving) {
            State::Inactive(ready) => Ok((self.take)(ready)),
            _ => unreachable!("it is ready"),
        }
    }

    /// Posts the call, once.
    pub(super) fn into_request(mut self) -> Result<Request<'c, B>, Error> {
        self.start()?;
        let State::Started(number) = std::mem::replace(&mut self.state, State::Moving) else {
            unreachable!("it was started")
        };
        Ok(Request { comm: self.comm, number: Some(number), take: self.take })
    }

    fn ready_to(&self, what: &str) -> Result<(), Error> {
        match self.state {
            State::Inactive(_) => Ok(()),
            _ => Err(Error::usage(format!("the call is under way; wait for it, then {what}"))),
        }
    }

    fn buffers<T: Send + 'static>(&mut self) -> Result<(&mut [T], &mut [T]), Error> {
        self.ready_to("use its buffers")?;
        match &mut self.state {
            State::Inactive(ready) => {
                ready.buffers().ok_or_else(|| Error::usage("a grouped call has many buffers; use parts_mut"))
            }
            _ => unreachable!("it is ready"),
        }
    }
}

impl<T: Send + 'static> Persistent<'_, Vec<T>> {
    /// The buffer: what the next start gives, what the last one got.
    ///
    /// # Errors
    /// [`Error::Usage`] while the call is under way.
    pub fn buffer_mut(&mut self) -> Result<&mut [T], Error> {
        let (send, recv) = self.buffers()?;
        Ok(if recv.is_empty() { send } else { recv })
    }
}

impl<T: Send + 'static> Persistent<'_, (Vec<T>, Vec<T>)> {
    /// What the next start gives.
    ///
    /// # Errors
    /// [`Error::Usage`] while the call is under way.
    pub fn send_mut(&mut self) -> Result<&mut [T], Error> {
        Ok(self.buffers()?.0)
    }

    /// What the last start got.
    ///
    /// # Errors
    /// [`Error::Usage`] while the call is under way.
    pub fn recv(&mut self) -> Result<&mut [T], Error> {
        Ok(self.buffers()?.1)
    }
}

impl<T: Element> Persistent<'_, Grouped<T>> {
    /// The buffers: what the next start gives, what the last one got. Their lengths must stay as they are.
    ///
    /// # Errors
    /// [`Error::Usage`] while the call is under way.
    pub fn parts_mut(&mut self) -> Result<impl Iterator<Item = &mut [T]>, Error> {
        self.ready_to("use its buffers")?;
        match &mut self.state {
            State::Inactive(ready) => {
                let parts = ready.parts().expect("the type it was made with");
                Ok(parts.iter_mut().map(Vec::as_mut_slice))
            }
            _ => unreachable!("it is ready"),
        }
    }
}

impl<B> Drop for Persistent<'_, B> {
    fn drop(&mut self) {
        if let State::Started(number) = self.state {
            self.comm.detach(number);
        }
    }
}

/// The one buffer of a call, whichever that is.
pub(super) fn one<T: Send + 'static>(ready: PreparedCall) -> Vec<T> {
    let owned = ready.into_buffers::<T>().expect("the type it was made with");
    if owned.recv.is_empty() { owned.send } else { owned.recv }
}

pub(super) fn two<T: Send + 'static>(ready: PreparedCall) -> (Vec<T>, Vec<T>) {
    let owned = ready.into_buffers::<T>().expect("the type it was made with");
    (owned.send, owned.recv)
}

impl Communicator {
    /// A call that takes its contribution from `buffer` and puts its result there.
    pub(super) fn in_place<T: Element>(
        &self,
        collective: Collective,
        op: Op,
        root: Option<usize>,
        buffer: Vec<T>,
    ) -> Result<Persistent<'_, Vec<T>>, Error> {
        self.prepare(collective, op, root, OwnedBuffers::in_place(buffer), one)
    }

    /// A call that only gives.
    pub(super) fn giving<T: Element>(
        &self,
        collective: Collective,
        op: Op,
        root: usize,
        send: Vec<T>,
    ) -> Result<Persistent<'_, Vec<T>>, Error> {
        self.prepare(collective, op, Some(root), OwnedBuffers::apart(send, Vec::new()), one)
    }

    /// A call that only gets.
    pub(super) fn getting<T: Element>(
        &self,
        collective: Collective,
        root: usize,
        recv: Vec<T>,
    ) -> Result<Persistent<'_, Vec<T>>, Error> {
        self.prepare(collective, Op::Sum, Some(root), OwnedBuffers::apart(Vec::new(), recv), one)
    }

    /// A call that gives from one buffer and gets in another.
    pub(super) fn apart<T: Element>(
        &self,
        collective: Collective,
        op: Op,
        root: Option<usize>,
        send: Vec<T>,
        recv: Vec<T>,
    ) -> Result<Persistent<'_, Pair<T>>, Error> {
        self.prepare(collective, op, root, OwnedBuffers::apart(send, recv), two)
    }

    /// A call of which only its end is of interest.
    pub(super) fn meeting(&self) -> Result<Persistent<'_, ()>, Error> {
        let token = OwnedBuffers::in_place(vec![0u64]);
        self.prepare(Collective::Barrier, Op::Sum, None, token, |_| ())
    }

    fn prepare<T: Element, B>(
        &self,
        collective: Collective,
        op: Op,
        root: Option<usize>,
        owned: OwnedBuffers<T>,
        take: fn(PreparedCall) -> B,
    ) -> Result<Persistent<'_, B>, Error> {
        if let Some(across) = self.across() {
            return Ok(self.persistent(across.prepared(collective, op, root, None, owned)?, take));
        }
        let bytes = size_of_val(&owned.recv[..]).max(size_of_val(&owned.send[..]));
        self.prepared(collective, bytes, take, || self.node.ready(collective, op, root, owned))
    }

    /// A call over several nodes.
    pub(super) fn persistent<B>(&self, prepared: Prepared, take: fn(PreparedCall) -> B) -> Persistent<'_, B> {
        Persistent { comm: self, state: State::Inactive(PreparedCall::MultiNode(Box::new(prepared))), take }
    }

    /// A call of one node that `ready` prepares, with buffers of `bytes`.
    pub(super) fn prepared<B>(
        &self,
        collective: Collective,
        bytes: usize,
        take: fn(PreparedCall) -> B,
        ready: impl FnOnce() -> Result<earlybird_shm::InactiveRequest, Error>,
    ) -> Result<Persistent<'_, B>, Error> {
        // What was measured for blocking calls has no say here.
        if let Some(plan) = plan_of(collective, self.settings.asked(collective, bytes)) {
            return Err(Error::Unsupported {
                what: format!("immediate {} by plan:{plan}", collective.name()),
                hint: "make the blocking call of the same name, or choose another algorithm".into(),
            });
        }
        Ok(Persistent { comm: self, state: State::Inactive(ready()?.into()), take })
    }
}
