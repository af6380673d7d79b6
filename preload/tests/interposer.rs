//! The interposer under the MPI libraries that are installed here, with a C program compiled against each.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Runs `world.c` on `ranks` ranks with the interposer; `None` if this MPI is not installed.
fn run(flavour: &str, ranks: usize, mode: &str, vars: &[(&str, &str)]) -> Option<Output> {
    let own = std::env::current_exe().unwrap();
    // Beside the test itself: what cargo built for it, not an older one of `cargo build`.
    let library = own.with_file_name("libearlybird_preload.so");
    assert!(library.exists(), "{} was not built", library.display());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/world.c");
    let program: PathBuf = std::env::temp_dir().join(format!("world.{flavour}.{}.{mode}", std::process::id()));
    let mut compile = Command::new(format!("mpicc.{flavour}"));
    match compile.args(["-O1", "-Wall", "-Werror", "-o"]).arg(&program).arg(source).status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("mpicc.{flavour} is not installed: not tested");
            return None;
        }
        status => assert!(status.unwrap().success()),
    }
    let mut command = Command::new(format!("mpirun.{flavour}"));
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    if flavour == "openmpi" {
        command.args(["--oversubscribe", "--bind-to", "none"]);
    }
    command.args(["-np", &ranks.to_string(), "env"]).arg(format!("LD_PRELOAD={}", library.display()));
    command.args(vars.iter().map(|(name, value)| format!("{name}={value}"))).arg(&program).arg(mode);
    let mut started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Kept open: MPICH's mpiexec passes an end of input on to ranks that may have ended, and dies of the broken pipe.
    let input = started.stdin.take();
    let output = started.wait_with_output().unwrap();
    drop(input);
    std::fs::remove_file(program).unwrap();
    Some(output)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn check(flavour: &str) {
    for (ranks, mode) in [(2, "carried"), (3, "carried"), (3, "other")] {
        let Some(output) = run(flavour, ranks, mode, &[]) else { return };
        let text = text(&output);
        assert!(output.status.success(), "{flavour} {mode}: {text}");
        assert_eq!(text.matches(" right").count(), ranks, "{flavour} {mode}: {text}");
    }
    // A setting that earlybird refuses ends the job: proof that the calls were carried. Calls of the other kind
    // do not reach earlybird and succeed.
    let wrong = [("EARLYBIRD_ALGORITHM", "fast")];
    let Some(output) = run(flavour, 2, "carried", &wrong) else { return };
    let said = text(&output);
    assert!(!output.status.success() && said.contains("EB_USAGE EARLYBIRD_ALGORITHM"), "{flavour}: {said}");
    let Some(output) = run(flavour, 2, "other", &wrong) else { return };
    assert!(output.status.success(), "{flavour}: {}", text(&output));
}

#[test]
fn open_mpi() {
    check("openmpi");
}

#[test]
fn mpich() {
    check("mpich");
}
