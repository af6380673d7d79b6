//! Asks the compiler of an MPI library (`MPICC`, else `mpicc`) for what its header says and how to link with it.
//!
//! One build is for one binary interface. Without `MPICC` and without an `mpicc` the library is built empty, with a
//! warning, so that the workspace builds on machines without MPI.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=MPICC");
    println!("cargo:rerun-if-changed=src/abi.c");
    for cfg in ["mpi", "open_mpi", "large_counts", "persistent"] {
        println!("cargo:rustc-check-cfg=cfg({cfg})");
    }
    let requested = std::env::var("MPICC").ok();
    let compiler = requested.clone().unwrap_or_else(|| "mpicc".into());
    let header = match header(&compiler) {
        Ok(header) => header,
        Err(why) if requested.is_some() => panic!("MPICC={compiler}: {why}"),
        Err(why) => {
            println!("cargo:warning=the MPI interposer is built empty: {compiler}: {why}; install an MPI or set MPICC");
            println!("cargo:rustc-env=PRELOAD_MPI=none");
            return;
        }
    };
    println!("cargo:rustc-cfg=mpi");
    // A thread of the library may still run when a program unloads it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    if header.open_mpi {
        println!("cargo:rustc-cfg=open_mpi");
    }
    if header.version >= 4 {
        println!("cargo:rustc-cfg=large_counts");
    }
    // Open MPI 4 has the persistent collectives as an extension, under names of its own.
    if header.persistent.is_some() {
        println!("cargo:rustc-cfg=persistent");
    }
    let prefix = header.persistent.unwrap_or("MPI_");
    println!("cargo:rustc-env=PRELOAD_PERSISTENT={prefix}");
    println!("cargo:rustc-env=PRELOAD_PERSISTENT_LOWER={}", prefix.to_lowercase());
    println!("cargo:rustc-env=PRELOAD_MPI={}", if header.open_mpi { "openmpi" } else { "mpich" });
    cc::Build::new().compiler(&compiler).file("src/abi.c").warnings(true).compile("earlybird_mpi_abi");
    let shown = output(Command::new(&compiler).arg("-show")).unwrap_or_else(|why| panic!("{compiler} -show: {why}"));
    for word in shown.split_whitespace() {
        if let Some(directory) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={directory}");
        } else if let Some(library) = word.strip_prefix("-l") {
            println!("cargo:rustc-link-lib=dylib={library}");
        } else if word.starts_with("-Wl,") {
            // The run-time path of the library: an environment of Python may have one of its own beside the system's.
            println!("cargo:rustc-link-arg={word}");
        }
    }
}

struct Header {
    open_mpi: bool,
    version: u32,
    /// The first letters of its persistent collectives, if it has them.
    persistent: Option<&'static str>,
}

/// The library and the version of MPI, by macros of its header.
fn header(compiler: &str) -> Result<Header, String> {
    let source = Path::new(&std::env::var("OUT_DIR").expect("cargo sets it")).join("header.c");
    let text = concat!(
        "#include <mpi.h>\n#if __has_include(<mpi-ext.h>)\n#include <mpi-ext.h>\n#endif\n",
        "#ifdef OPEN_MPI\nis_open_mpi\n#endif\nmpi_version_is MPI_VERSION\n"
    );
    std::fs::write(&source, text).map_err(|error| error.to_string())?;
    let seen = output(Command::new(compiler).arg("-E").arg(&source))?;
    let version = seen.lines().find_map(|line| line.strip_prefix("mpi_version_is ")?.trim().parse().ok());
    let version = version.ok_or("its mpi.h does not say MPI_VERSION")?;
    let persistent = ["MPI_", "MPIX_"].into_iter().find(|prefix| seen.contains(&format!(" {prefix}Allreduce_init(")));
    Ok(Header { open_mpi: seen.lines().any(|line| line.trim() == "is_open_mpi"), version, persistent })
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
