//! Grouped allreduce: many buffers reduced in one operation.
#![allow(unsafe_code)]

use crate::buffers::BufferArg;
use crate::codes::{self, with_type};
use crate::comm::{Comm, of};
use crate::export::export;
use crate::requests::both_forms;
use earlybird::{Communicator, DType, Element, Error, Op};
use std::ffi::{c_int, c_void};

/// Reads and checks the buffers of a group.
///
/// # Safety
/// C: `buffers` and `counts` are null or hold `group` entries.
unsafe fn buffer_args<T: Element>(
    buffers: *const *mut c_void,
    counts: *const usize,
    group: usize,
) -> Result<Vec<BufferArg>, Error> {
    if group == 0 {
        return Ok(Vec::new());
    }
    for (at, name) in [(buffers.cast::<c_void>(), "buffers"), (counts.cast(), "counts")] {
        if at.is_null() || !(at as usize).is_multiple_of(align_of::<usize>()) {
            return Err(Error::usage(format!("{name} at {at:p} are no array; give {group}, one for each buffer")));
        }
    }
    // SAFETY: C, checked.
    let (buffers, counts) =
        unsafe { (std::slice::from_raw_parts(buffers, group), std::slice::from_raw_parts(counts, group)) };
    let pairs = buffers.iter().zip(counts);
    let buffer_args: Vec<BufferArg> =
        pairs.map(|(at, count)| BufferArg { name: "buffer", ..BufferArg::recv(*at, *count) }).collect();
    buffer_args.iter().try_for_each(|buffer| buffer.check(T::DTYPE.into()))?;
    let mut by_address: Vec<&BufferArg> = buffer_args.iter().filter(|buffer| buffer.count > 0).collect();
    by_address.sort_by_key(|buffer| buffer.at as usize);
    by_address.windows(2).try_for_each(|pair| pair[0].check_disjoint(pair[1], size_of::<T>()))?;
    Ok(buffer_args)
}

/// # Safety
/// C; the buffers are checked.
unsafe fn reduce<T: Element>(comm: &Communicator, buffer_args: &[BufferArg], op: Op) -> Result<(), Error> {
    if T::DTYPE == DType::Bool {
        // SAFETY: by the caller's contract.
        let mut copies =
            buffer_args.iter().map(|buffer| unsafe { buffer.copy_in() }).collect::<Result<Vec<Vec<T>>, _>>()?;
        let mut parts: Vec<&mut [T]> = copies.iter_mut().map(Vec::as_mut_slice).collect();
        comm.all_reduce_grouped_in_place(&mut parts, op)?;
        // SAFETY: as above.
        buffer_args.iter().zip(&copies).for_each(|(buffer, copy)| unsafe { buffer.copy_out(copy) });
        return Ok(());
    }
    let part = |buffer: &BufferArg| match buffer.count {
        0 => &mut [][..],
        // SAFETY: by the caller's contract; aligned, not null and apart as checked; every pattern of bytes is a value.
        count => unsafe { std::slice::from_raw_parts_mut(buffer.at.cast::<T>(), count) },
    };
    let mut parts: Vec<&mut [T]> = buffer_args.iter().map(part).collect();
    comm.all_reduce_grouped_in_place(&mut parts, op)
}

export! {
    fn eb_allreduce_grouped(
        comm: *const Comm,
        buffers: *const *mut c_void,
        counts: *const usize,
        group: usize,
        dtype: c_int,
        op: c_int,
    ) {
        // SAFETY: H, C.
        unsafe {
            let (comm, op) = (of(comm)?, codes::op(op)?);
            with_type!(codes::dtype(dtype)?, T => reduce::<T>(comm, &buffer_args::<T>(buffers, counts, group)?, op))
        }
    }
}

both_forms! {
    fn eb_iallreduce_grouped, eb_allreduce_grouped_init(
        buffers: *const *mut c_void,
        counts: *const usize,
        group: usize,
        dtype: c_int,
        op: c_int,
    ) |builder| {
        let op = codes::op(op)?;
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe {
            let buffer_args = buffer_args::<T>(buffers, counts, group)?;
            let parts = buffer_args.iter().map(|buffer| builder.send_buffer::<T>(*buffer)).collect::<Result<Vec<_>, _>>()?;
            builder.build::<T, Vec<Vec<T>>>(&buffer_args, &buffer_args, |comm| comm.all_reduce_grouped_init(parts, op))
        })
    }
}
