//! The mapping of the control segment: a memory file without a name, so that nothing of it can stay behind.
//!
//! Every length is checked here before it becomes a pointer.
#![allow(unsafe_code)]

use std::ops::Deref;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use super::arena::{SEALS, check_file_limit, set_size};
use super::control::{CONTROL_BYTES, Control};
use super::descriptor::Descriptor;
use super::region;
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
        set_size(&file, CONTROL_BYTES).map_err(refused)?;
        file.checked().and_then(|file| rustix::fs::fcntl_add_seals(file, SEALS)).map_err(refused)?;
        let control = ControlMap::map(&file)?;
        if !region::populate(&control.map, &(0..CONTROL_BYTES)).map_err(refused)? {
            let reserve = || rustix::fs::fallocate(file.checked()?, FallocateFlags::empty(), 0, CONTROL_BYTES as u64);
            rustix::io::retry_on_intr(reserve).map_err(refused)?;
        }
        Ok((control, file))
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
        let lost =
            |errno| Error::system("mapping the control segment, whose descriptor this program has closed", errno);
        let map = MmapOptions::new().len(CONTROL_BYTES).map_raw(&file.checked().map_err(lost)?);
        let map = map.map_err(|error| Error::system("mapping the control segment (see ulimit -v)", error))?;
        // The number is still the segment's, so it was when it was mapped.
        file.checked().map_err(lost)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn another_file_that_has_taken_the_number_is_not_mapped() {
        let ((_ours, mut file), (_others, other)) = (ControlMap::create().unwrap(), ControlMap::create().unwrap());
        assert!(ControlMap::adopt(&file).is_ok());
        // A file of the program's, which happens to have the size and the seals of the segment.
        file.lose_to(&other.as_fd().try_clone_to_owned().unwrap());
        let refused = ControlMap::adopt(&file).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("whose descriptor this program has closed"), "{refused}");
    }
}
