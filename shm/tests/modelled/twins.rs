//! Twins: models that must fail, each run by the ignored test `one_model` of the same program in a process of its own.

use std::process::Command;

/// The complaint of loom about an access that the protocol has not ordered.
pub const RACE: &str = "Causality violation: Concurrent";
/// That of ranks of which none can go on.
pub const SLEEPS: &str = "deadlock; threads =";

/// Whether the model passed in a process of its own, and all it printed.
fn try_model(name: &str, weakened: Option<&str>) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().expect("the path of this test"));
    command.args(["--ignored", "--exact", "one_model", "--nocapture", "--test-threads=1"]);
    command.env("EARLYBIRD_MODEL", name).env_remove("EARLYBIRD_WEAKEN").env("RUST_BACKTRACE", "0");
    if let Some(point) = weakened {
        command.env("EARLYBIRD_WEAKEN", point);
    }
    let output = command.output().expect("a process for the model");
    let said = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    (output.status.success(), said)
}

/// Demands that the model fails for this reason, with this point weakened if one is given.
pub fn must_fail(name: &str, weakened: Option<&str>, reason: &str) {
    let (passed, said) = try_model(name, weakened);
    assert!(!passed, "{name} without {weakened:?} passes: it proves nothing about it\n{said}");
    assert!(said.contains(reason), "{name} without {weakened:?} fails, but not with {reason:?}:\n{said}");
    println!("twin: {name} without {}: {reason}", weakened.unwrap_or("its rule"));
}

/// Demands that the model passes.
pub fn must_pass(name: &str) {
    let (passed, said) = try_model(name, None);
    assert!(passed && said.contains("complete for "), "{name} does not pass:\n{said}");
}
