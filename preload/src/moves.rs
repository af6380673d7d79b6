//! Broadcast and allgather. Ranks may give different types of one signature, so what moves is bytes.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::buffers::{Failure, Packable, apart, bytes_of, elements, is_place, not_null, read, write};
use crate::entry::{handed_over, outcome};
use crate::seats::{self, Carried};
use crate::summary::{self, Call, Why};
use std::ffi::{c_int, c_void};

/// Elements of any type.
#[derive(Clone, Copy)]
struct Elements {
    packable: Packable,
    /// Whether their bytes lie side by side, as in the signature.
    dense: bool,
}

impl Elements {
    fn new(seat: &Carried, count: i64, dtype: Handle, comm: Handle) -> Option<Self> {
        let count = elements(count)?;
        let (bytes, dense) = match seat.handles.dtype(dtype) {
            Some(known) => (known.bytes, known.dense),
            None => {
                let bytes = abi::type_size(dtype)?;
                bytes_of(count, bytes)?;
                (bytes, false)
            }
        };
        Some(Elements { packable: Packable { dtype, comm, bytes, count }, dense })
    }

    fn bytes(&self) -> usize {
        self.packable.bytes * self.packable.count
    }

    /// # Safety
    /// `from` points to the elements; `into` is as long as their signature.
    unsafe fn copy_to(&self, from: *const c_void, into: &mut [u8]) -> Result<(), Failure> {
        if !self.dense {
            // SAFETY: by the caller's contract.
            return unsafe { self.packable.pack(from, into) };
        }
        not_null(from, into.len())?;
        // SAFETY: by the caller's contract; `into` is this library's own.
        into.copy_from_slice(unsafe { read(from, into.len()) });
        Ok(())
    }

    /// # Safety
    /// `to` has room for the elements; `from` is as long as their signature.
    unsafe fn copy_from(&self, from: &[u8], to: *mut c_void) -> Result<(), Failure> {
        if !self.dense {
            // SAFETY: by the caller's contract.
            return unsafe { self.packable.unpack(from, to) };
        }
        not_null(to, from.len())?;
        // SAFETY: by the caller's contract; `from` is this library's own.
        unsafe { write(to, from.len()) }.copy_from_slice(from);
        Ok(())
    }
}

/// # Safety
/// The buffer is what MPI demands of the caller.
#[inline]
pub unsafe fn bcast(buffer: *mut c_void, count: i64, dtype: Handle, root: c_int, comm: Handle) -> Option<c_int> {
    let seat = match seats::of(comm) {
        Ok(seat) => seat,
        Err(why) => return handed_over(Call::Bcast, why, count, dtype),
    };
    let elements = Elements::new(seat, count, dtype, comm).filter(|_| root >= 0 && (root as usize) < seat.size);
    let Some(elements) = elements else {
        return handed_over(Call::Bcast, Why::Argument, 0, dtype);
    };
    if seat.rule.is_mpis(Call::Bcast, elements.bytes()) {
        return handed_over(Call::Bcast, Why::Faster, count, dtype);
    }
    summary::taken(Call::Bcast, elements.bytes());
    // SAFETY: by the caller's contract.
    Some(outcome(Call::Bcast, comm, unsafe { bcast_from(seat, buffer, &elements, root as usize) }))
}

/// # Safety
/// `buffer` has the elements.
unsafe fn bcast_from(seat: &Carried, buffer: *mut c_void, all: &Elements, root: usize) -> Result<(), Failure> {
    let from = seat.comm.process_at_rank(root);
    if all.dense {
        not_null(buffer, all.bytes())?;
        // SAFETY: by the caller's contract; bytes have no alignment and no invalid values.
        return Ok(from.broadcast_into(unsafe { write::<u8>(buffer, all.bytes()) })?);
    }
    let mut packed = vec![0u8; all.bytes()];
    // SAFETY: by the caller's contract; `packed` is as long as the signature.
    unsafe {
        if root == seat.rank {
            all.copy_to(buffer, &mut packed)?;
        }
        from.broadcast_into(&mut packed)?;
        if root != seat.rank {
            all.copy_from(&packed, buffer)?;
        }
    }
    Ok(())
}

/// # Safety
/// The buffers are what MPI demands of the caller.
#[inline]
#[allow(clippy::too_many_arguments)]
pub unsafe fn allgather(
    send: *const c_void,
    send_count: i64,
    send_type: Handle,
    receive: *mut c_void,
    count: i64,
    dtype: Handle,
    comm: Handle,
) -> Option<c_int> {
    let seat = match seats::of(comm) {
        Ok(seat) => seat,
        Err(why) => return handed_over(Call::Allgather, why, count, dtype),
    };
    let Some(block) = Elements::new(seat, count, dtype, comm) else {
        return handed_over(Call::Allgather, Why::Argument, 0, dtype);
    };
    if seat.rule.is_mpis(Call::Allgather, block.bytes()) {
        return handed_over(Call::Allgather, Why::Faster, count, dtype);
    }
    summary::taken(Call::Allgather, block.bytes());
    let done = if send == constants().in_place {
        // SAFETY: by the caller's contract.
        unsafe { allgather_of(seat, None, receive, block) }
    } else {
        let own = match (send_count, send_type) == (count, dtype) {
            true => Some(block),
            false => Elements::new(seat, send_count, send_type, comm).filter(|own| own.bytes() == block.bytes()),
        };
        match own {
            // SAFETY: by the caller's contract.
            Some(own) => unsafe { allgather_of(seat, Some((send, own)), receive, block) },
            None => Err(Failure::Argument(constants().err_truncate, "what is sent is not as long as what is received")),
        }
    };
    Some(outcome(Call::Allgather, comm, done))
}

/// # Safety
/// `own` has its elements, unless this rank's lie in their place in `receive`, which has room for a block per rank.
unsafe fn allgather_of(
    seat: &Carried,
    own: Option<(*const c_void, Elements)>,
    receive: *mut c_void,
    block: Elements,
) -> Result<(), Failure> {
    let (bytes, total) = (block.bytes(), block.bytes() * seat.size);
    let direct = block.dense && (is_place(receive) || total == 0);
    match &own {
        // SAFETY: by the caller's contract; bytes have no alignment and no invalid values.
        None if direct => return Ok(seat.comm.all_gather_in_place(unsafe { write::<u8>(receive, total) })?),
        Some((send, own)) if direct && own.dense && is_place(*send) && apart(*send, bytes, receive, total) => {
            // SAFETY: as above, and disjoint.
            return Ok(unsafe { seat.comm.all_gather_into(read::<u8>(*send, bytes), write(receive, total)) }?);
        }
        _ => {}
    }
    let mut gathered = vec![0u8; total];
    let mine = &mut gathered[seat.rank * bytes..(seat.rank + 1) * bytes];
    // SAFETY: by the caller's contract; the vector has a signature for every rank.
    unsafe {
        match &own {
            Some((send, own)) => own.copy_to(*send, mine)?,
            None => {
                let (_, extent) = abi::extent(block.packable.dtype)
                    .ok_or(Failure::Argument(constants().err_other, "MPI does not tell the extent of a type"))?;
                let before = extent.wrapping_mul((seat.rank * block.packable.count) as isize);
                block.copy_to(receive.wrapping_byte_offset(before), mine)?;
            }
        }
        seat.comm.all_gather_in_place(&mut gathered)?;
        let count = block.packable.count * seat.size;
        let everything = Elements { packable: Packable { count, ..block.packable }, ..block };
        everything.copy_from(&gathered, receive)
    }
}
