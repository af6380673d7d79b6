//! The grouped allreduce: many buffers reduced as one message.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, sum};
use crate::call::{Call, CallerBuffers};
use crate::reductions::Reduction;
use crate::requests::export_forms;
use earlybird::{Collective, Counts, Error};
use std::ffi::{c_int, c_void};

/// Reads an array of the caller with an entry for each buffer of a group.
///
/// # Safety
/// C: `at` is null or holds `group` entries.
unsafe fn array<'a, T>(at: *const T, name: &str, group: usize) -> Result<&'a [T], Error> {
    match group {
        0 => Ok(&[]),
        _ if at.is_null() || !at.is_aligned() => {
            Err(Error::usage(format!("{name} at {at:p} are no array; give {group}, one for each buffer")))
        }
        // SAFETY: C, checked.
        _ => Ok(unsafe { std::slice::from_raw_parts(at, group) }),
    }
}

export_forms! {
    fn eb_allreduce_grouped, eb_iallreduce_grouped, eb_allreduce_grouped_init(
        buffers: *const *mut c_void, counts: *const usize, group: usize, dtype: c_int, op: c_int
    ) |comm| {
        let Reduction { datatype, op } = Reduction::of_codes(dtype, op)?;
        // SAFETY: C.
        let (buffers, lens) = unsafe { (array(buffers, "buffers", group)?, array(counts, "counts", group)?) };
        let buffer = |(at, count): (&*mut c_void, &usize)| BufferArg { name: "buffer", ..BufferArg::recv(*at, *count) };
        let all = BufferArg { count: sum(lens)?, ..BufferArg::NO_RECV };
        let buffers = CallerBuffers {
            in_place: true,
            group: buffers.iter().zip(lens).map(buffer).collect(),
            ..CallerBuffers::apart(datatype, all, all)
        };
        Call { collective: Collective::AllReduce, op, root: None, counts: Counts::Segments(lens), buffers }
    }
}
