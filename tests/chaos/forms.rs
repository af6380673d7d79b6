//! The table of the forms of calls, and what they have in common: choices, delays, checks.

use crate::common::data::{Sample, contribution, reference};
use crate::common::mix;
use crate::draw::{Rng, plans};
use crate::said::now;
use crate::{folds, messages, moves, overlapping, users};
use earlybird::{Algorithm, BufferOwner, Communicator, Error, FoldOrder, Indexed, Op, Request};
use half::f16;
use num_complex::Complex;
use std::time::Duration;

/// Why a call was not what it must be.
#[derive(Debug)]
pub enum Failure {
    /// An error, and when the call returned it: before the handles are dropped, which ends the calls of others.
    Library { error: Error, at: u64 },
    /// A result that differs from the serial computation, or between ranks.
    Wrong(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Library { error, at: now() }
    }
}

pub type Checked = Result<(), Failure>;

/// The form of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    Into,
    InPlace,
    Immediate,
    Persistent,
    /// Memory of the library's (`alloc`).
    Shared,
    /// One result that all ranks read.
    View,
}

/// A form of call: all ranks of `comm` make it with the same sequence.
pub struct Form {
    pub name: &'static str,
    pub run: fn(&Communicator, &mut Rng) -> Checked,
}

/// One type of each family of arithmetic and of each width.
macro_rules! typed {
    ($rng:ident, $module:ident :: $name:ident ($($arg:expr),*)) => {
        match $rng.below(9) {
            0 => $module::$name::<u8>($($arg),*),
            1 => $module::$name::<i32>($($arg),*),
            2 => $module::$name::<i64>($($arg),*),
            3 => $module::$name::<f32>($($arg),*),
            4 => $module::$name::<f64>($($arg),*),
            5 => $module::$name::<f16>($($arg),*),
            6 => $module::$name::<Complex<f64>>($($arg),*),
            7 => $module::$name::<bool>($($arg),*),
            _ => $module::$name::<Indexed<f32, i32>>($($arg),*),
        }
    };
}

macro_rules! forms {
    (typed { $($module:ident :: $name:ident : $($way:ident)*;)* } plain { $($of:ident :: $plain:ident : $($how:ident)*;)* }) => {
        pub const FORMS: &[Form] = &[
            $($(Form {
                name: concat!(stringify!($name), ".", stringify!($way)),
                run: |comm, rng| typed!(rng, $module::$name(comm, rng, Way::$way)),
            },)*)*
            $($(Form {
                name: concat!(stringify!($plain), ".", stringify!($how)),
                run: |comm, rng| $of::$plain(comm, rng, Way::$how),
            },)*)*
        ];
    };
}

forms! {
    typed {
        folds::all_reduce: Into InPlace Immediate Persistent Shared View;
        folds::all_reduce_shared: Immediate Persistent;
        folds::grouped: InPlace Immediate Persistent;
        folds::reduce: Into InPlace Immediate Persistent;
        folds::reduce_scatter: Into InPlace Immediate Persistent;
        folds::reduce_scatter_varcount: Into InPlace Immediate Persistent;
        moves::broadcast: Into Immediate Persistent;
        moves::all_gather: Into InPlace Immediate Persistent;
        moves::all_gather_varcount: Into Immediate Persistent;
        moves::gather: Into InPlace Immediate Persistent;
        moves::gather_varcount: Into Immediate Persistent;
        moves::scatter: Into InPlace Immediate Persistent;
        moves::scatter_varcount: Into Immediate Persistent;
        moves::all_to_all: Into InPlace Immediate Persistent;
        moves::all_to_all_varcount: Into InPlace Immediate Persistent;
    }
    plain {
        moves::barrier: Into Immediate Persistent;
        folds::scan: Into InPlace Immediate Persistent;
        folds::rounded: Into InPlace Immediate View;
        folds::repeated: InPlace;
        overlapping::overlapping: Immediate Persistent;
        messages::messages_to_all: Immediate;
        messages::messages_from_any: Immediate;
        users::all_reduce_with: Into InPlace Immediate Persistent;
        users::reduce_with: Into InPlace Immediate Persistent;
        users::reduce_scatter_with: Into Immediate Persistent;
        users::raw: Into InPlace Persistent;
    }
}

/// Starts a call and completes it, or prepares it and makes it twice: the buffers.
#[macro_export]
macro_rules! started {
    ($way:ident $rng:ident; $comm:ident, $args:expr) => {
        match $way {
            Way::Immediate => $crate::forms::complete($comm.start($args)?, $rng)?,
            _ => {
                let mut call = $comm.init($args)?;
                call.start()?;
                while !call.try_wait()? {
                    std::thread::yield_now();
                }
                call.run()?;
                call.into_buffers()?
            }
        }
    };
}

/// Waits for a started call, by `wait` or by `try_wait`.
pub fn complete<B: BufferOwner>(mut request: Request<'_, B>, rng: &mut Rng) -> Result<B, Error> {
    if rng.flip() {
        return request.wait();
    }
    loop {
        if let Some(buffers) = request.try_wait()? {
            return Ok(buffers);
        }
        std::thread::yield_now();
    }
}

/// Chooses algorithm and order for the next call of `comm`, and comes late to it on some ranks.
pub fn prepare(comm: &Communicator, rng: &mut Rng, way: Way) -> Result<(), Error> {
    comm.set_order(rng.pick(&[FoldOrder::Arrival, FoldOrder::Rank]))?;
    // A started call is not carried out by plans.
    rng.plan = !matches!(way, Way::Immediate | Way::Persistent) && rng.below(5) == 0;
    match (rng.plan, rng.flip()) {
        (true, _) => comm.set_algorithm(rng.pick(&plans()))?,
        (_, true) => comm.set_algorithm(rng.pick(&Algorithm::ALL))?,
        _ => comm.set_algorithm(Algorithm::Auto)?,
    }
    delay(comm, rng);
    Ok(())
}

/// Lets some ranks come late, rarely by milliseconds.
pub fn delay(comm: &Communicator, rng: &mut Rng) {
    let mut own = rng.of_rank(comm.rank());
    rng.next();
    match own.below(64) {
        0 => std::thread::sleep(Duration::from_micros(own.next() % 5000)),
        1..16 => std::thread::sleep(Duration::from_micros(own.next() % 100)),
        _ => {}
    }
}

/// A buffer for results, full of something else.
pub fn dirty<T: Sample>(count: usize) -> Vec<T> {
    (0..count as u64).map(|i| T::rounded(mix(i ^ 0xd1))).collect()
}

/// A reduction of contributions whose result is exact in any order.
pub struct Fold<T> {
    pub op: Op,
    pub send: Vec<T>,
    /// The result, computed serially.
    pub want: Vec<T>,
}

pub fn fold<T: Sample>(comm: &Communicator, rng: &mut Rng, count: usize) -> Fold<T> {
    let ops: Vec<Op> = Op::ALL.into_iter().filter(|op| T::DTYPE.has(*op)).collect();
    let (op, seed) = (rng.pick(&ops), rng.next());
    let send = contribution(seed, comm.rank(), count, op, true);
    Fold { op, send, want: reference(seed, comm.size(), count, op, true) }
}

/// Compares every element with the serial computation.
pub fn check<T: Sample>(got: &[T], want: &[T], what: &str) -> Checked {
    let wrong = (0..want.len().min(got.len())).filter(|i| got[*i].bits() != want[*i].bits());
    let wrong: Vec<usize> = wrong.collect();
    match wrong.first() {
        None if got.len() == want.len() => Ok(()),
        first => Err(Failure::Wrong(format!(
            "{what}: {} of {} x {} ({} expected), the first {first:?}: {:?} should be {:?}",
            wrong.len(),
            got.len(),
            T::DTYPE.name(),
            want.len(),
            first.map(|i| got[*i]),
            first.map(|i| want[*i]),
        ))),
    }
}
