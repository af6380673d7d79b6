//! Reductions by functions of Python: the function is called with the interpreter for each fold, in whatever thread folds.
//!
//! An exception in it fails the group, and becomes the cause of the error of the call that it folded for. Operands are copies, so
//! that an array of them which the function keeps is never memory of another rank.
#![allow(unsafe_code)]

use crate::buffers::BufferArg;
use crate::errors::exception;
use crate::op::{Operator, UserFunction};
use crate::operand::Operand;
use earlybird::{Error, Op, OpIdentity, ReduceFn, ReduceOp, SharedReduceOp};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::cell::Cell;
use std::ffi::CString;
use std::panic;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

thread_local! {
    static FOLDING: Cell<bool> = const { Cell::new(false) };
}

/// Refuses a call from inside a function that folds: no other rank need fold at the same time.
#[inline]
pub fn refuse_inside(py: Python<'_>) -> PyResult<()> {
    match FOLDING.get() {
        false => Ok(()),
        true => Err(exception(py, Error::usage("an operator must not make calls of a communicator; only fold in it"))),
    }
}

/// The operator of one call.
#[derive(Clone)]
pub enum CallOp {
    Builtin(Op),
    Function(Arc<Fold>),
}

impl CallOp {
    /// The operator on elements as those of `contribution`.
    pub fn new(op: Operator, contribution: &BufferArg) -> PyResult<CallOp> {
        Ok(match op {
            Operator::Builtin(op) => CallOp::Builtin(op),
            Operator::Function(user) => {
                let (format, bytes) = (contribution.format()?, contribution.datatype.size());
                CallOp::Function(Arc::new(Fold { user, format: Arc::new(format), bytes, raised: Mutex::default() }))
            }
        })
    }

    #[inline(always)]
    pub fn get(&self) -> ReduceOp<'_> {
        match self {
            CallOp::Builtin(op) => ReduceOp::Builtin(*op),
            CallOp::Function(fold) => ReduceOp::User(&**fold),
        }
    }

    /// The operator for a call that keeps it.
    pub fn shared(self) -> SharedReduceOp {
        match self {
            CallOp::Builtin(op) => SharedReduceOp::Builtin(op),
            CallOp::Function(fold) => SharedReduceOp::User(fold),
        }
    }

    /// Adds to the error of a call the exception that the function has raised in it as its cause. One that ends a program, as that
    /// of Ctrl-C does, takes its place.
    pub fn explain<T>(&self, py: Python<'_>, done: PyResult<T>) -> PyResult<T> {
        let (Err(error), CallOp::Function(fold)) = (&done, self) else { return done };
        let Some(raised) = fold.raised().take() else { return done };
        if !raised.is_instance_of::<PyException>(py) {
            return Err(raised);
        }
        error.set_cause(py, Some(raised));
        done
    }
}

/// A function of Python at work for one call.
pub struct Fold {
    user: Arc<UserFunction>,
    /// The format of one element, as the buffer protocol writes it.
    format: Arc<CString>,
    bytes: usize,
    /// The exception of the function.
    raised: Mutex<Option<PyErr>>,
}

impl Fold {
    fn raised(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, left: &Bound<'_, Operand>, right: &Bound<'_, Operand>) -> PyResult<()> {
        let (left, right) = (PyMemoryView::from(left)?, PyMemoryView::from(right)?);
        let format = self.format.to_string_lossy();
        let was_folding = FOLDING.replace(true);
        let returned = self.user.function.call1(left.py(), (&left, &right, format));
        FOLDING.set(was_folding);
        returned.map(drop)
    }
}

impl ReduceFn for Fold {
    fn identity(&self) -> OpIdentity {
        OpIdentity::User { ordered: !self.user.commutes, tag: 0 }
    }

    fn element_bytes(&self) -> usize {
        self.bytes
    }

    unsafe fn fold(&self, dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        if count == 0 {
            return;
        }
        let folded = Python::try_attach(|py| {
            // SAFETY: the contract of the trait: `a`, `b` and `dst` hold `count` elements. Both operands are copied out before the
            // result is copied in.
            unsafe {
                let operand = |at, is_readonly| Operand::copied(py, at, count, self.bytes, &self.format, is_readonly);
                let (left, right) = (operand(a, true)?, operand(b, false)?);
                self.call(&left, &right).map(|()| right.get().copy_to(dst))
            }
        });
        let message = match folded {
            Some(Ok(())) => return,
            Some(Err(error)) => {
                let message = error.to_string();
                self.raised().get_or_insert(error);
                message
            }
            None => "the interpreter has ended".into(),
        };
        // A panic as the library awaits it, without a line on standard error.
        panic::resume_unwind(Box::new(message));
    }
}
