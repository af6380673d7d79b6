//! The shared buffers of an allreduce while it is carried out: marked as in use by the group, so that they are not freed, and
//! known to the other ranks by name. Those of a started call are in use from its start to its completion.
//!
//! Invariant **D (datatype)**: a call on the datatype of the buffers writes only values of their type to them.
#![allow(unsafe_code)]

use crate::Error;
use crate::memory::{AllocationName, BufferUse, Segment};
use crate::op::Datatype;
use crate::protocol::payload::Buffers;
use crate::protocol::request_buffers::{BufferOwner, OwnedBuffers};
use crate::shared_buffer::{Allocations, FindAllocations};
use std::any::Any;
use std::sync::Arc;

/// A group in the table of regions: its region and its number.
type Group = Option<(usize, u64)>;

/// The uses of a call's buffers by an operation of a group.
#[derive(Debug)]
pub(super) struct Uses {
    send: Option<BufferUse>,
    recv: BufferUse,
}

impl Uses {
    /// Begins the uses of these buffers, before their names are published.
    ///
    /// # Errors
    /// [`Error::Usage`] for buffers that the ranks of `segment` do not reach, and for those in use by too many groups.
    pub(super) fn begin((send, recv): &Allocations<'_>, segment: &Arc<Segment>, group: Group) -> Result<Uses, Error> {
        let are_here = [send.unwrap_or(recv), recv].iter().all(|buffer| Arc::ptr_eq(buffer.segment(), segment));
        if !are_here {
            return Err(Error::usage(
                "the shared buffer belongs to another job; allocate it from this communicator or one it was split from",
            ));
        }
        let of_send = send.map(|send| send.begin_use(group)).transpose()?;
        match recv.begin_use(group) {
            Ok(recv) => Ok(Uses { send: of_send, recv }),
            Err(error) => {
                send.zip(of_send).into_iter().for_each(|(send, of_send)| send.end_use(of_send));
                Err(error)
            }
        }
    }

    /// Ends the uses: the operation has succeeded, or has not published the names.
    pub(super) fn end(self, (send, recv): &Allocations<'_>) {
        send.zip(self.send).into_iter().for_each(|(send, of_send)| send.end_use(of_send));
        recv.end_use(self.recv);
    }
}

/// The names of the contribution and of the place of the result.
pub(super) fn names((send, recv): &Allocations<'_>) -> [u64; 2] {
    [send.unwrap_or(recv), recv].map(|at| at.name().map_or(0, AllocationName::word))
}

/// The buffers of a started allreduce, which the ranks of a group reduce where they lie.
#[derive(Debug)]
pub(super) struct RegisteredBuffers {
    owned: OwnedBuffers,
    find: FindAllocations,
    segment: Arc<Segment>,
    group: Group,
    /// Set while the call is active. After a failed call, the buffers stay in use for as long as the group exists.
    uses: Option<Uses>,
}

impl RegisteredBuffers {
    /// The buffers in the allocations that `find` returns, for a call of this group.
    pub(super) fn new(owned: OwnedBuffers, find: FindAllocations, segment: Arc<Segment>, group: Group) -> Self {
        RegisteredBuffers { owned, find, segment, group, uses: None }
    }

    /// Converts them to the buffers of a started call on `datatype`, their own datatype.
    pub(super) fn into_owned(self, datatype: Datatype) -> OwnedBuffers {
        // SAFETY: D, since the buffers were made.
        unsafe { OwnedBuffers::new(Box::new(self), datatype) }
    }

    fn allocations(&mut self) -> Allocations<'_> {
        (self.find)(self.owned.owner_as_any()).expect("the type it was made with")
    }
}

impl BufferOwner for RegisteredBuffers {
    unsafe fn as_buffers(&mut self, _: Datatype) -> Buffers<'_> {
        let names = names(&self.allocations());
        self.owned.as_buffers().registered(names)
    }

    fn begin(&mut self) -> Result<(), Error> {
        let (segment, group) = (self.segment.clone(), self.group);
        self.uses = Some(Uses::begin(&self.allocations(), &segment, group)?);
        Ok(())
    }

    fn end(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        let uses = self.uses.take();
        let (send, recv) = self.allocations();
        match (&outcome, uses) {
            (Ok(()), Some(uses)) => uses.end(&(send, recv)),
            // Ranks that have entered the call may still write there; their reads spoil at most their own failed results.
            _ => recv.detach()?,
        }
        outcome
    }

    fn owner(&mut self) -> &mut dyn Any {
        self.owned.owner_as_any()
    }

    fn into_owner(self: Box<Self>) -> Box<dyn Any + Send> {
        self.owned.into_owner_as_any()
    }
}
