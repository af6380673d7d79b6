//! The grouped allreduce: many buffers reduced as one message.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, array, sum};
use crate::call::{Call, CallerBuffers};
use crate::reductions::Reduction;
use crate::requests::export_forms;
use earlybird::{Collective, Counts};
use std::ffi::{c_int, c_void};

export_forms! {
    fn eb_allreduce_grouped, eb_iallreduce_grouped, eb_allreduce_grouped_init(
        buffers: *const *mut c_void, counts: *const usize, group: usize, dtype: c_int, op: c_int
    ) |comm| {
        let Reduction { datatype, op } = Reduction::of_codes(dtype, op)?;
        // SAFETY: C.
        let (buffers, lens) =
            unsafe { (array(buffers, "buffers", group, "buffer")?, array(counts, "counts", group, "buffer")?) };
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
