//! MPI libraries that can be started from here, and the interposers that came with this program.

use super::finding::{Finding, State};
use crate::job::own_binary;
use itertools::Itertools;
use std::path::{Path, PathBuf};
use std::process::Command;

const SECTION: &str = "MPI";

/// The file of the interposer.
pub const INTERPOSER: &str = "libearlybird_mpi.so";

/// Launchers of MPI programs, the general name first.
const LAUNCHERS: [&str; 4] = ["mpirun", "mpirun.openmpi", "mpirun.mpich", "mpiexec"];

/// The families of MPI libraries: the launcher's word for itself, and what a program that is linked with one needs.
const FAMILIES: [(&str, &str, &str); 2] = [("Open MPI", "Open MPI", "libmpi.so"), ("MPICH", "HYDRA", "libmpich.so")];

/// All of the section.
pub fn findings() -> Vec<Finding> {
    let launchers =
        LAUNCHERS.iter().filter_map(|name| Launcher::find(name)).unique_by(|it| it.real.clone()).collect_vec();
    let mut found = launchers.iter().map(Launcher::finding).collect_vec();
    if found.is_empty() {
        found.push(Finding::ok(SECTION, "mpirun", "none in PATH", "earlybird run starts ranks without one"));
    }
    found.extend(interposers(&launchers));
    found
}

struct Launcher {
    name: &'static str,
    /// The file behind its links.
    real: PathBuf,
    version: String,
    family: Option<&'static str>,
}

impl Launcher {
    fn find(name: &'static str) -> Option<Launcher> {
        let path = std::env::var_os("PATH")?;
        let mut places = std::env::split_paths(&path).map(|directory| directory.join(name));
        let real = places.find(|place| place.is_file())?.canonicalize().ok()?;
        let output = Command::new(name).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let family = FAMILIES.iter().find(|(_, word, _)| text.contains(word)).map(|(family, ..)| *family);
        let number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.');
        let version = text.split_whitespace().find(number).unwrap_or("of unknown version").to_owned();
        Some(Launcher { name, real, version, family })
    }

    fn finding(&self) -> Finding {
        let value = format!("{} {}, {}", self.family.unwrap_or("unknown MPI"), self.version, self.real.display());
        Finding::ok(SECTION, self.name, value, "its programs join by Communicator::from_mpi, or through the interposer")
    }
}

/// How the interposer is built, where it is missing.
const BUILD: &str = "MPICC=mpicc cargo build --release -p earlybird-preload";

/// The interposers that were built beside this program, or installed with it.
fn interposers(launchers: &[Launcher]) -> Vec<Finding> {
    let binary = own_binary().unwrap_or_default();
    let places = ["", "../lib/earlybird/openmpi", "../lib/earlybird/mpich"];
    let places = places.map(|place| binary.with_file_name(place).join(INTERPOSER));
    let found = places.iter().filter(|path| path.is_file()).map(|path| interposer(path, launchers)).collect_vec();
    if !found.is_empty() {
        return found;
    }
    let effect = "MPI programs run by their MPI alone, unless LD_PRELOAD names an interposer that lies elsewhere";
    vec![Finding::ok(SECTION, "interposer", "none beside this program", effect).noted_if(!launchers.is_empty(), BUILD)]
}

fn interposer(path: &Path, launchers: &[Launcher]) -> Finding {
    let finding = |value: String, effect: &str| {
        Finding::ok(SECTION, "interposer", format!("{}, {value}", path.display()), effect)
    };
    let Some(family) = family_of(path) else {
        return finding("built for no MPI".into(), "it takes over nothing").judged(State::Note, BUILD);
    };
    let has = launchers.iter().any(|launcher| launcher.family == Some(family));
    finding(format!("built for {family}"), "takes over collectives of programs of that MPI, by LD_PRELOAD")
        .noted_if(!has, format!("no launcher of {family} is in PATH: {BUILD}"))
}

/// The family of MPI that a library needs, by the names in its dynamic section.
fn family_of(library: &Path) -> Option<&'static str> {
    let bytes = std::fs::read(library).ok()?;
    let names = bytes.split(|byte| *byte == 0);
    let names = names.filter(|name| name.starts_with(b"libmpi"));
    let needed = |soname: &[u8]| FAMILIES.iter().find(|(.., library)| soname.starts_with(library.as_bytes()));
    names.filter_map(needed).map(|(family, ..)| *family).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_belongs_to_the_mpi_that_it_needs() {
        let path = std::env::temp_dir().join(format!("earlybird-doctor-elf-{}", std::process::id()));
        for (bytes, family) in [
            (&b"\x7fELF\0libc.so.6\0libmpich.so.12\0"[..], Some("MPICH")),
            (b"\x7fELF\0libmpi.so.40\0libc.so.6\0", Some("Open MPI")),
            (b"\x7fELF\0libc.so.6\0not libmpi.so.40\0", None),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(family_of(&path), family);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
