//! `capi/package`: the files of the packages that users install, which serve programs from where they are unpacked.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{Scratch, built, has, home, launcher, text};

fn works(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    text(&output)
}

/// The packages of a build, or the refusal.
fn package(out: &Path, built: &Path) -> Output {
    let mut command = Command::new(home().join("package"));
    // Compressing well takes half a minute, and the size is not tested.
    command
        .arg(out)
        .arg(built)
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .env("DPKG_DEB_COMPRESSOR_LEVEL", "1")
        .output()
        .unwrap()
}

/// A directory with the libraries under test and the program, as of one build.
fn build(program: bool) -> Scratch {
    let directory = Scratch::new();
    let link = |from: PathBuf, name: &str| std::os::unix::fs::symlink(from, directory.0.join(name)).unwrap();
    for name in ["libearlybird_capi.so", "libearlybird_capi.a"] {
        link(built().join(name), name);
    }
    if program {
        link(launcher(), "earlybird");
    }
    directory
}

/// The only file of a directory with this ending.
fn the_file(directory: &Path, end: &str) -> PathBuf {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.to_str().unwrap().ends_with(end)).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

const FILES: &[&str] = &[
    "bin/earlybird",
    "include/earlybird.h",
    "lib/libearlybird.a",
    "lib/libearlybird.so",
    "lib/pkgconfig/earlybird.pc",
    "share/bash-completion/completions/earlybird",
    "share/doc/earlybird/CHANGELOG.md",
    "share/doc/earlybird/LICENSE-APACHE",
    "share/doc/earlybird/LICENSE-MIT",
    "share/doc/earlybird/copyright",
    "share/fish/vendor_completions.d/earlybird.fish",
    "share/man/man1/earlybird.1.gz",
    "share/man/man1/earlybird-run.1.gz",
    "share/zsh/vendor-completions/_earlybird",
];

#[test]
fn the_packages_serve_programs_and_are_the_same_each_time() {
    if !has("dpkg-deb") || !has("pkg-config") {
        return;
    }
    let (out, again, unpacked, build) = (Scratch::new(), Scratch::new(), Scratch::new(), build(true));
    for out in [&out, &again] {
        let output = package(&out.0, &build.0);
        assert!(output.status.success(), "{}", text(&output));
        assert!(text(&output).contains("without the interposer for mpich"), "{}", text(&output));
    }
    for end in [".deb", ".tar.gz"] {
        let bytes = [&out, &again].map(|out| std::fs::read(the_file(&out.0, end)).unwrap());
        assert!(bytes[0] == bytes[1], "two packages of one build differ: {end}");
    }

    let debian = the_file(&out.0, ".deb");
    let fields = works(Command::new("dpkg-deb").arg("--field").arg(&debian));
    assert!(
        fields.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"))) && fields.contains("libc6 (>= 2."),
        "{fields}"
    );
    works(Command::new("dpkg-deb").arg("-x").arg(&debian).arg(unpacked.0.join("debian")));
    works(Command::new("tar").arg("-xzf").arg(the_file(&out.0, ".tar.gz")).arg("-C").arg(&unpacked.0));
    let tarball = the_file(&unpacked.0, "-linux");
    for prefix in [&unpacked.0.join("debian/usr"), &tarball] {
        let missing: Vec<_> = FILES.iter().filter(|name| !prefix.join(name).exists()).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", prefix.display());
    }

    // The tarball, compiled against and run where it was unpacked.
    let mut flags = Command::new("pkg-config");
    flags.args(["--cflags", "--libs", "earlybird"]).env("PKG_CONFIG_PATH", tarball.join("lib/pkgconfig"));
    let (flags, program) = (works(&mut flags), unpacked.0.join("hello"));
    let mut compiler = Command::new("cc");
    compiler.arg(home().join("../examples/hello.c")).args(flags.split_whitespace()).arg("-o").arg(&program);
    works(&mut compiler);
    let mut job = Command::new(tarball.join("bin/earlybird"));
    job.args(["run", "-n", "2", "--"]).arg(&program).env("LD_LIBRARY_PATH", tarball.join("lib"));
    let said = works(&mut job);
    assert_eq!(said.matches("of 2: mean").count(), 2, "{said}");
}

#[test]
fn a_build_that_is_not_whole_is_refused() {
    if !has("dpkg-deb") {
        return;
    }
    let (out, without_program, wrong) = (Scratch::new(), build(false), build(true));
    let output = package(&out.0, &without_program.0);
    assert!(!output.status.success() && text(&output).contains("no earlybird in"), "{}", text(&output));

    std::fs::create_dir(wrong.0.join("mpich")).unwrap();
    std::fs::copy(built().join("libearlybird_capi.so"), wrong.0.join("mpich/libearlybird_mpi.so")).unwrap();
    let output = package(&out.0, &wrong.0);
    assert!(!output.status.success() && text(&output).contains("was not built for mpich"), "{}", text(&output));
    assert_eq!(std::fs::read_dir(&out.0).unwrap().count(), 0, "a package of a build that was refused");

    let output = Command::new(home().join("package")).output().unwrap();
    assert!(output.status.code() == Some(2) && text(&output).contains("OUT [BUILT]"), "{}", text(&output));
}
