//! The mapping of the control segment: a memory file without a name, so that nothing of it can stay behind.
//!
//! Every length is checked here before it becomes a pointer.
#![allow(unsafe_code)]

use std::ops::Deref;
use std::os::fd::AsFd;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use super::arena::{SEALS, check_file_limit};
use super::control::{CONTROL_BYTES, Control};
use super::descriptor::Descriptor;
use crate::Error;

/// The mapped control segment.
pub(crate) struct ControlMap {
    map: MmapRaw,
}

impl ControlMap {
    /// Creates the segment, zeroed and with its memory reserved, and the descriptor by which others map it.
    pub fn create() -> Result<(ControlMap, Descriptor), Error> {
        check_file_limit(CONTROL_BYTES)?;
        let refused = |error| Error::system(format!("creating the control segment of {CONTROL_BYTES} bytes"), error);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = Descriptor::from(rustix::fs::memfd_create("earlybird-control", flags).map_err(refused)?);
        rustix::fs::ftruncate(&file, CONTROL_BYTES as u64).map_err(refused)?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(refused)?;
        let reserve = || rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, CONTROL_BYTES as u64);
        rustix::io::retry_on_intr(reserve).map_err(refused)?;
        Ok((ControlMap::map(&file)?, file))
    }

    /// Maps the segment that another rank created, after checking that no process can shorten it.
    pub fn adopt(file: &Descriptor) -> Result<ControlMap, Error> {
        let refused = |error| Error::system("looking at the control segment", error);
        let bytes = rustix::fs::fstat(file).map_err(refused)?.st_size;
        let seals = rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
        if bytes != CONTROL_BYTES as i64 || !seals.contains(SEALS) {
            return Err(Error::usage(format!(
                "the control segment received has {bytes} bytes, seals {seals:?}, where {CONTROL_BYTES} bytes, {SEALS:?} are \
                 expected; all ranks must run the same build of earlybird"
            )));
        }
        ControlMap::map(file)
    }

    fn map(file: &Descriptor) -> Result<ControlMap, Error> {
        let map = MmapOptions::new().len(CONTROL_BYTES).map_raw(&file.as_fd());
        let map = map.map_err(|error| Error::system("mapping the control segment (see ulimit -v)", error))?;
        Ok(ControlMap { map })
    }
}

impl Deref for ControlMap {
    type Target = Control;
    fn deref(&self) -> &Control {
        // SAFETY: the mapping is at least CONTROL_BYTES long, of a file that is sealed against shrinking, page-aligned,
        // which is more than Control's 128, stays mapped while `self` lives, and holds atomics only, for which every bit
        // pattern is a value and which other processes may change meanwhile.
        unsafe { &*self.map.as_ptr().cast::<Control>() }
    }
}
