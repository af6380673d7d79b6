//! A call that can be posted, any number of times, with its buffers.

use super::calls::{self, Asked};
use super::{Begun, Steps};
use crate::{DType, Element, Error};
use earlybird_shm::{Collective, Owned, Signature, bytes};
use std::any::Any;
use std::fmt;

/// Makes the call of its buffers.
type Begin = Box<dyn Fn(&dyn Any, Steps) -> Result<Begun, Error> + Send>;

/// A call that can be posted, any number of times, with its buffers.
pub(crate) struct Prepared {
    pub(super) collective: Collective,
    pub(super) signature: Signature,
    /// `Owned<T>`.
    pub owned: Box<dyn Any + Send>,
    begin: Begin,
    /// Puts the result there.
    put: fn(&mut dyn Any, &[u8]),
}

impl Prepared {
    /// A call on the buffers of `owned`, which have the lengths that it needs.
    pub(crate) fn new<T: Element>(asked: Asked, signature: Signature, owned: Owned<T>) -> Self {
        let collective = asked.collective;
        let begin = move |owned: &dyn Any, steps: Steps| {
            let owned = owned.downcast_ref::<Owned<T>>().expect("the type it was made with");
            let given = if owned.is_in_place() { &owned.recv } else { &owned.send };
            calls::begin(&asked, given, owned.recv.len(), steps)
        };
        Prepared { collective, signature, owned: Box::new(owned), begin: Box::new(begin), put: put::<T> }
    }

    pub(super) fn begin(&self, steps: Steps) -> Result<Begun, Error> {
        (self.begin)(&*self.owned, steps)
    }

    pub(super) fn put(&mut self, result: &[u8]) {
        (self.put)(&mut *self.owned, result);
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("collective", &self.collective).finish_non_exhaustive()
    }
}

/// Puts a result into the buffer for it.
fn put<T: Element>(owned: &mut dyn Any, result: &[u8]) {
    if let Some(owned) = owned.downcast_mut::<Owned<T>>()
        && size_of_val(&owned.recv[..]) == result.len()
    {
        fill(&mut owned.recv, result);
    }
}

/// Elements out of their bytes.
fn fill<T: Element>(to: &mut [T], from: &[u8]) {
    match T::DTYPE {
        DType::Bool => crate::hierarchy::put_truth(to, from),
        _ => bytes::of_mut(to).copy_from_slice(from),
    }
}
