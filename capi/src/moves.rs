//! The operations that move data: from a root, to a root, from all to all.
#![allow(unsafe_code)]

use crate::buffers::{Place, counts, is_in_place, lend, of_all, starts};
use crate::codes::{self, with_type};
use crate::comm::{Comm, of};
use crate::entry::export;
use crate::reductions::root;
use earlybird::{Communicator, Element, Error};
use std::ffi::{c_int, c_void};

/// How much each rank has: the same, or its own count.
#[derive(Clone, Copy)]
pub enum Each<'a> {
    Same(usize),
    Own(&'a [usize]),
}

/// The whole buffer and this rank's block in it.
pub struct Blocks {
    pub all: usize,
    pub start: usize,
    pub own: usize,
}

impl Each<'_> {
    pub fn blocks(&self, comm: &Communicator) -> Result<Blocks, Error> {
        let (rank, size) = (comm.rank(), comm.size());
        Ok(match *self {
            Each::Same(count) => Blocks { all: of_all(count, size)?, start: rank * count, own: count },
            Each::Own(counts) => {
                let starts = starts(counts)?;
                Blocks { all: starts[size], start: starts[rank], own: counts[rank] }
            }
        })
    }
}

/// # Safety
/// C.
unsafe fn all_to_all_unequal<T: Element>(
    comm: &Communicator,
    send: *const c_void,
    send_counts: *const usize,
    recv: *mut c_void,
    recv_counts: *const usize,
) -> Result<(), Error> {
    // SAFETY: C.
    unsafe {
        let gets = counts(recv_counts, comm.size())?;
        let to = Place::recv(recv, starts(gets)?[comm.size()]);
        if is_in_place(send) {
            return lend::<T>(None, to, |_, recv| comm.all_to_all_varcount_in_place(recv, gets));
        }
        let gives = counts(send_counts, comm.size())?;
        let from = Place::send(send, starts(gives)?[comm.size()]);
        lend::<T>(Some(from), to, |send, recv| comm.all_to_all_varcount_into(send.unwrap_or(&[]), gives, recv, gets))
    }
}

/// What is not there.
pub const NOTHING: Place = Place { name: "receive buffer", at: std::ptr::null_mut(), count: 0 };

/// # Safety
/// C.
unsafe fn all_gather<T: Element>(
    comm: &Communicator,
    send: *const c_void,
    recv: *mut c_void,
    each: Each<'_>,
) -> Result<(), Error> {
    let Blocks { all, start, own } = each.blocks(comm)?;
    let recv = Place::recv(recv, all);
    let run = |send: &[T], recv: &mut [T]| match each {
        Each::Same(_) => comm.all_gather_into(send, recv),
        Each::Own(counts) => comm.all_gather_varcount_into(send, recv, counts),
    };
    // SAFETY: C.
    unsafe {
        if !is_in_place(send) {
            return lend::<T>(Some(Place::send(send, own)), recv, |send, recv| run(send.unwrap_or(&[]), recv));
        }
        lend::<T>(None, recv, |_, recv| match each {
            Each::Same(_) => comm.all_gather_in_place(recv),
            Each::Own(_) => {
                let given = recv[start..][..own].to_vec();
                run(&given, recv)
            }
        })
    }
}

/// # Safety
/// C.
unsafe fn gather<T: Element>(
    comm: &Communicator,
    send: *const c_void,
    recv: *mut c_void,
    each: Each<'_>,
    root: usize,
) -> Result<(), Error> {
    let (to, Blocks { all, start, own }) = (comm.process_at_rank(root), each.blocks(comm)?);
    let run = |send: &[T], recv: &mut [T]| match each {
        Each::Same(_) => to.gather_into_root(send, recv),
        Each::Own(counts) => to.gather_varcount_into_root(send, recv, counts),
    };
    // SAFETY: C.
    unsafe {
        match (comm.rank() == root, is_in_place(send)) {
            (false, _) => {
                lend::<T>(Some(Place::send(send, own)), NOTHING, |send, _| match (send.unwrap_or(&[]), each) {
                    (send, Each::Same(_)) => to.gather_into(send),
                    (send, Each::Own(counts)) => to.gather_varcount_into(send, counts),
                })
            }
            (true, false) => {
                let (send, recv) = (Place::send(send, own), Place::recv(recv, all));
                lend::<T>(Some(send), recv, |send, recv| run(send.unwrap_or(&[]), recv))
            }
            (true, true) => lend::<T>(None, Place::recv(recv, all), |_, recv| match each {
                Each::Same(_) if comm.nodes() == 1 => to.gather_in_place_root(recv),
                _ => {
                    let given = recv[start..][..own].to_vec();
                    run(&given, recv)
                }
            }),
        }
    }
}

/// # Safety
/// C.
unsafe fn scatter<T: Element>(
    comm: &Communicator,
    send: *const c_void,
    recv: *mut c_void,
    each: Each<'_>,
    root: usize,
) -> Result<(), Error> {
    let (from, Blocks { all, own, .. }) = (comm.process_at_rank(root), each.blocks(comm)?);
    // SAFETY: C.
    unsafe {
        if comm.rank() != root {
            return lend::<T>(None, Place::recv(recv, own), |_, recv| match each {
                Each::Same(_) => from.scatter_into(recv),
                Each::Own(counts) => from.scatter_varcount_into(recv, counts),
            });
        }
        let send = Place::send(send, all);
        let run = |send: &[T], recv: &mut [T]| match each {
            Each::Same(_) => from.scatter_into_root(send, recv),
            Each::Own(counts) => from.scatter_varcount_into_root(send, recv, counts),
        };
        if !is_in_place(recv) {
            return lend::<T>(Some(send), Place::recv(recv, own), |send, recv| run(send.unwrap_or(&[]), recv));
        }
        // The root's own block stays where it is.
        lend::<T>(Some(send), NOTHING, |send, _| {
            let send = send.unwrap_or(&[]);
            run(send, &mut send[..own].to_vec())
        })
    }
}

export! {
    fn eb_broadcast(comm: *const Comm, buffer: *mut c_void, count: usize, dtype: c_int, from: usize) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let (from, mut buffer) = (comm.process_at_rank(root(comm, from)?), Place::recv(buffer, count));
            buffer.name = "buffer";
            with_type!(codes::dtype(dtype)?, T => lend::<T>(None, buffer, |_, buffer| from.broadcast_into(buffer)))
        }
    }

    fn eb_allgather(comm: *const Comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            with_type!(codes::dtype(dtype)?, T => all_gather::<T>(comm, send, recv, Each::Same(count)))
        }
    }

    fn eb_allgatherv(comm: *const Comm, send: *const c_void, recv: *mut c_void, each: *const usize, dtype: c_int) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let each = Each::Own(counts(each, comm.size())?);
            with_type!(codes::dtype(dtype)?, T => all_gather::<T>(comm, send, recv, each))
        }
    }

    fn eb_gather(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        to: usize,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let to = root(comm, to)?;
            with_type!(codes::dtype(dtype)?, T => gather::<T>(comm, send, recv, Each::Same(count), to))
        }
    }

    fn eb_gatherv(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
        to: usize,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let (each, to) = (Each::Own(counts(each, comm.size())?), root(comm, to)?);
            with_type!(codes::dtype(dtype)?, T => gather::<T>(comm, send, recv, each, to))
        }
    }

    fn eb_scatter(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        from: usize,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let from = root(comm, from)?;
            with_type!(codes::dtype(dtype)?, T => scatter::<T>(comm, send, recv, Each::Same(count), from))
        }
    }

    fn eb_scatterv(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
        from: usize,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let (each, from) = (Each::Own(counts(each, comm.size())?), root(comm, from)?);
            with_type!(codes::dtype(dtype)?, T => scatter::<T>(comm, send, recv, each, from))
        }
    }

    fn eb_alltoall(comm: *const Comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let all = of_all(count, comm.size())?;
            let send = (!is_in_place(send)).then(|| Place::send(send, all));
            with_type!(codes::dtype(dtype)?, T => lend::<T>(send, Place::recv(recv, all), |send, recv| match send {
                Some(send) => comm.all_to_all_into(send, recv),
                None => comm.all_to_all_in_place(recv),
            }))
        }
    }

    fn eb_alltoallv(
        comm: *const Comm,
        send: *const c_void,
        send_counts: *const usize,
        recv: *mut c_void,
        recv_counts: *const usize,
        dtype: c_int,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            with_type!(codes::dtype(dtype)?, T => {
                all_to_all_unequal::<T>(comm, send, send_counts, recv, recv_counts)
            })
        }
    }
}
