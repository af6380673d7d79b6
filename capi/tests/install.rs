//! `capi/install`: what it puts into a prefix serves programs that are compiled by pkg-config, shared and static.

mod support;

use std::path::Path;
use std::process::Command;
use support::{Scratch, built, has, home, launcher, text};

/// `capi/install` with these arguments.
fn install(prefix: &Path) -> Command {
    let mut command = Command::new(home().join("install"));
    command.arg(prefix);
    command
}

fn works(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    text(&output)
}

/// Words of `pkg-config` for an installation.
fn pkg_config(prefix: &Path, options: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(options).arg("earlybird").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    works(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// Compiles the example as `docs/c.md` says, shared and static, and runs it by `launcher`.
fn serves(prefix: &Path, launcher: &Path) {
    assert_eq!(pkg_config(prefix, &["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let (lib, source) = (prefix.join("lib"), home().join("../examples/hello.c"));
    let shared = [format!("-Wl,-rpath,{}", lib.display())];
    for (name, options, extra) in [
        ("shared", &["--cflags", "--libs"][..], &shared[..]),
        ("static", &["--cflags", "--libs", "--static"], &["-Wl,-Bdynamic".to_owned()]),
    ] {
        let program = prefix.join(name);
        let words = pkg_config(prefix, options).into_iter();
        let words = words.map(|w| if name == "static" && w == "-learlybird" { "-l:libearlybird.a".into() } else { w });
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source).args(words).args(extra);
        works(&mut cc);
        let needed = works(Command::new("readelf").arg("-d").arg(&program));
        assert_eq!(needed.contains("libearlybird.so.0"), name == "shared", "{needed}");
        let said = works(Command::new(launcher).args(["run", "-n", "3", "--"]).arg(&program));
        let mean = said.matches("of 3: mean 2.00 s, slowest was rank 2\n").count();
        assert_eq!(mean, 3, "{name}: {said}");
    }
}

#[test]
fn an_installation_serves_programs_shared_and_static() {
    if !has("pkg-config") {
        return;
    }
    let prefix = Scratch::new();
    let launcher = launcher();
    works(install(&prefix.0).arg(built()));
    serves(&prefix.0, &launcher);
}

#[test]
#[ignore = "builds the release, which takes minutes; tests/long/run does it"]
fn an_installation_from_the_sources_serves_programs() {
    if !has("pkg-config") {
        return;
    }
    let prefix = Scratch::new();
    let target = built().ancestors().nth(2).unwrap().to_path_buf();
    // A build directory as a user may name it: from where the command is called.
    let mut command = install(&prefix.0);
    command.current_dir(target.parent().unwrap()).env("CARGO_TARGET_DIR", target.file_name().unwrap());
    works(&mut command);
    serves(&prefix.0, &prefix.0.join("bin/earlybird"));
    if has("python3") {
        let mut python = Command::new(prefix.0.join("bin/earlybird"));
        python.args(["run", "-n", "3", "--", "python3"]).arg(home().join("../examples/hello.py"));
        let said = works(python.arg(prefix.0.join("lib/libearlybird.so")));
        assert_eq!(said.matches("all is right").count(), 3, "{said}");
    }
}

#[test]
fn an_installation_from_nothing_is_refused() {
    let (prefix, empty) = (Scratch::new(), Scratch::new());
    let output = install(&prefix.0).arg(&empty.0).output().unwrap();
    assert!(!output.status.success() && text(&output).contains("no libearlybird_capi.so in"), "{}", text(&output));
    let output = Command::new(home().join("install")).output().unwrap();
    assert!(output.status.code() == Some(2) && text(&output).contains("PREFIX [BUILT]"), "{}", text(&output));
}
