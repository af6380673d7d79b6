//! Programs of the tests: compiled against the header, linked with the library that cargo built for the tests, run by
//! `earlybird run`.
#![allow(dead_code)] // not every test has use for everything

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The directory of this package.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A directory that is gone with its owner.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("earlybird-capi-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The directory of the libraries under test: that of the test itself, not of an older `cargo build`.
pub fn built() -> PathBuf {
    let built = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    assert!(built.join("libearlybird_capi.so").exists(), "no library in {}", built.display());
    built
}

/// The launcher, which belongs to another package: built here where only this package is tested.
pub fn launcher() -> PathBuf {
    let target = built().parent().unwrap().to_path_buf();
    let launcher = target.join("earlybird");
    if !launcher.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "earlybird", "--bin", "earlybird"]);
        cargo.arg("--target-dir").arg(target.parent().unwrap()).current_dir(home());
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "{cargo:?}");
    }
    launcher
}

/// Returns whether there is a compiler of this name; says loudly if not.
pub fn has(compiler: &str) -> bool {
    let there = Command::new(compiler).arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIPPED: no {compiler} on this machine");
    }
    there
}

/// Returns whether the compiler makes programs with these options.
pub fn compiles(compiler: &[&str]) -> bool {
    let (scratch, mut command) = (Scratch::new(), Command::new(compiler[0]));
    let source = scratch.0.join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }").unwrap();
    command.args(&compiler[1..]).arg(&source).args(["-x", "none", "-o"]).arg(scratch.0.join("empty"));
    command.output().is_ok_and(|output| output.status.success())
}

pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The compiler's options for every program.
pub const C: &[&str] = &["cc", "-std=c99", "-x", "c"];
pub const CPP: &[&str] = &["g++", "-std=c++11", "-x", "c++"];
const STRICT: &[&str] = &["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"];

/// A program that was compiled.
pub struct Program {
    scratch: Scratch,
}

impl Program {
    /// The source `name` of `tests/programs`.
    pub fn compile(compiler: &[&str], name: &str) -> Program {
        let scratch = Scratch::new();
        let library = built().join("libearlybird_capi.so");
        for link in ["libearlybird.so", "libearlybird.so.0"] {
            std::os::unix::fs::symlink(&library, scratch.0.join(link)).unwrap();
        }
        let mut command = Command::new(compiler[0]);
        command.args(&compiler[1..]).args(STRICT).arg("-I").arg(home().join("include"));
        command.arg(home().join("tests/programs").join(name)).args(["-x", "none", "-o"]).arg(scratch.0.join("program"));
        command.arg("-L").arg(&scratch.0).args(["-learlybird", "-Wl,-rpath"]).arg(&scratch.0);
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(output.status.success() && output.stderr.is_empty(), "{command:?}: {}", text(&output));
        Program { scratch }
    }

    pub fn path(&self) -> PathBuf {
        self.scratch.0.join("program")
    }

    /// Runs it on `ranks` ranks.
    pub fn run(&self, ranks: usize) -> Output {
        self.run_with(ranks, &[])
    }

    /// Runs it on `ranks` ranks with more options of `earlybird run`.
    pub fn run_with(&self, ranks: usize, options: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120"]).arg(launcher()).args(["run", "-n", &ranks.to_string()]);
        command.args(options).arg("--").arg(self.path());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EARLYBIRD_")) {
            command.env_remove(name);
        }
        command.output().unwrap()
    }

    /// Runs it on `ranks` ranks, each of which must say ` right`.
    pub fn is_right(&self, name: &str, ranks: usize) {
        self.is_right_with(name, ranks, &[]);
    }

    /// The same with more options of `earlybird run`.
    pub fn is_right_with(&self, name: &str, ranks: usize, options: &[&str]) {
        let output = self.run_with(ranks, options);
        let said = text(&output);
        let rights = said.matches(" right\n").count();
        assert!(output.status.success() && rights == ranks, "{name} on {ranks}: {} {said}", output.status);
    }
}
