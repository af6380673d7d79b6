//! Many buffers reduced as one operation.
#![allow(unsafe_code)]

use crate::buffers::Place;
use crate::codes::{self, with_type};
use crate::comm::{Comm, of};
use crate::entry::export;
use crate::requests::both_forms;
use earlybird::{Communicator, DType, Element, Error, Op};
use std::ffi::{c_int, c_void};

/// The buffers of a group, checked.
///
/// # Safety
/// C: `buffers` and `counts` are null or hold `group` entries.
unsafe fn places<T: Element>(
    buffers: *const *mut c_void,
    counts: *const usize,
    group: usize,
) -> Result<Vec<Place>, Error> {
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
    let places: Vec<Place> = pairs.map(|(at, count)| Place { name: "buffer", ..Place::recv(*at, *count) }).collect();
    places.iter().try_for_each(Place::check::<T>)?;
    let mut by_address: Vec<&Place> = places.iter().filter(|place| place.count > 0).collect();
    by_address.sort_by_key(|place| place.at as usize);
    by_address.windows(2).try_for_each(|pair| pair[0].apart::<T>(pair[1]))?;
    Ok(places)
}

/// # Safety
/// C; the places are checked.
unsafe fn reduce<T: Element>(comm: &Communicator, places: &[Place], op: Op) -> Result<(), Error> {
    if T::DTYPE == DType::Bool {
        // SAFETY: by the caller's contract.
        let mut copies = places.iter().map(|place| unsafe { place.copied() }).collect::<Result<Vec<Vec<T>>, _>>()?;
        let mut parts: Vec<&mut [T]> = copies.iter_mut().map(Vec::as_mut_slice).collect();
        comm.all_reduce_grouped_in_place(&mut parts, op)?;
        // SAFETY: as above.
        places.iter().zip(&copies).for_each(|(place, copy)| unsafe { place.fill(copy) });
        return Ok(());
    }
    let part = |place: &Place| match place.count {
        0 => &mut [][..],
        // SAFETY: by the caller's contract; aligned, not null and apart as checked; every pattern of bytes is a value.
        count => unsafe { std::slice::from_raw_parts_mut(place.at.cast::<T>(), count) },
    };
    let mut parts: Vec<&mut [T]> = places.iter().map(part).collect();
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
            with_type!(codes::dtype(dtype)?, T => reduce::<T>(comm, &places::<T>(buffers, counts, group)?, op))
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
    ) |start| {
        let op = codes::op(op)?;
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe {
            let places = places::<T>(buffers, counts, group)?;
            let parts = places.iter().map(|place| start.give::<T>(*place)).collect::<Result<Vec<_>, _>>()?;
            start.make::<T, Vec<Vec<T>>>(&places, &places, |comm| comm.all_reduce_grouped_init(parts, op))
        })
    }
}
