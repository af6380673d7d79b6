//! Compares the functions that the interposer defines with those of the MPI library: no call is intercepted under a wrong name.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use support::{Program, has_mpi, library};

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The dynamic symbols that a library defines, without their versions.
fn symbols(library: &Path) -> BTreeSet<String> {
    let listed = output(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library));
    listed.lines().filter_map(|line| Some(line.split([' ', '@']).next()?.to_owned())).collect()
}

/// The symbols of the MPI libraries that these programs are linked with.
fn of_mpi(programs: &[&str]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for program in programs {
        let listed = output(Command::new("ldd").arg(Program::compile(program).path()));
        let paths = listed.lines().filter_map(|line| line.split_once(" => ")?.1.split(' ').next());
        let is_mpi = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with("libmpi"));
        paths.filter(is_mpi).for_each(|path| all.extend(symbols(Path::new(path))));
    }
    all
}

/// The functions of MPI among `ours`, in C or Fortran, that are not among `theirs`.
fn unknown(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> Vec<String> {
    let is_mpi = |name: &&String| name.to_lowercase().trim_start_matches('p').starts_with("mpi");
    ours.iter().filter(is_mpi).filter(|name| !theirs.contains(*name)).cloned().collect()
}

#[test]
fn every_intercepted_function_exists_in_mpi() {
    if !has_mpi() {
        return;
    }
    let (mut ours, theirs) = (symbols(&library()), of_mpi(&["allreduce.c", "old.f90", "new.f90"]));
    assert!(ours.contains("MPI_Allreduce") && theirs.contains("MPI_Allreduce") && theirs.contains("mpi_init_"));
    assert_eq!(unknown(&ours, &theirs), [""; 0]);
    ours.extend(["MPI_Alreduce", "mpi_barrier_f90_"].map(str::to_owned));
    assert_eq!(unknown(&ours, &theirs), ["MPI_Alreduce", "mpi_barrier_f90_"]);
}
