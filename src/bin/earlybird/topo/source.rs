//! The source of a machine: /sys for this one, a copy of that for another one, or the hwloc library for either.

#[cfg(feature = "hwloc")]
use super::hwloc;
use super::machine::Machine;
use super::sysfs;
use clap::Args;
use earlybird::Error;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[group(multiple = false)]
pub struct SourceArgs {
    /// Read the machine from a copy of another one's /sys; all of its processors are allowed
    #[arg(long, value_name = "DIR")]
    sysfs: Option<PathBuf>,

    /// Ask the hwloc library instead of /sys
    #[cfg(feature = "hwloc")]
    #[arg(long)]
    hwloc: bool,

    /// Let hwloc make up a machine, for example "pack:2 numa:1 l3:1 core:4 pu:2"
    #[cfg(feature = "hwloc")]
    #[arg(long, value_name = "DESCRIPTION")]
    synthetic: Option<String>,

    /// Let hwloc read another machine from a file that lstopo has written
    #[cfg(feature = "hwloc")]
    #[arg(long, value_name = "FILE")]
    xml: Option<PathBuf>,
}

impl SourceArgs {
    /// The machine, and whether it is the one on which this program runs.
    pub fn read(&self) -> Result<(Machine, bool), Error> {
        #[cfg(feature = "hwloc")]
        match (&self.synthetic, &self.xml, self.hwloc) {
            (Some(description), ..) => return hwloc::synthetic(description),
            (_, Some(path), _) => return hwloc::xml(path),
            (.., true) => return hwloc::native(),
            (None, None, false) => {}
        }
        let machine = sysfs::read(self.sysfs.as_deref().unwrap_or(Path::new("/sys")))?;
        Ok((machine, self.sysfs.is_none()))
    }
}
