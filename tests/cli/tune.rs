//! `earlybird tune`: the file is one that `EARLYBIRD_TUNE` takes, whatever was measured.

use crate::{earlybird, text};

#[test]
fn the_file_is_one_that_the_library_takes() {
    let path = std::env::temp_dir().join(format!("earlybird-tune-{}", std::process::id()));
    let file = path.to_str().expect("utf-8");
    let operations = ["allreduce", "reduce", "broadcast", "barrier", "allgather", "reduce-scatter"];
    let args = ["tune", "--ranks", "2,3", "--sizes", "8,20Ki", "--iterations", "3", "--output", file];
    let output = earlybird(&args).output().expect("start");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let written = std::fs::read_to_string(&path).expect("a file");
    assert_eq!(written, text(&output.stdout));
    for (ranks, operation) in ["2", "3"].into_iter().flat_map(|ranks| operations.map(|operation| (ranks, operation))) {
        // A table, or a comment that there is none.
        let words = |line: &str| {
            line.trim_start_matches("# ").replace(':', " ").split(' ').take(2).collect::<Vec<_>>().join(" ")
        };
        let lines = written.lines().filter(|line| words(line) == format!("{ranks} {operation}"));
        assert_eq!(lines.count(), 1, "{ranks} {operation}: {written}");
    }
    let mut bench = earlybird(&["bench", "allreduce", "--ranks", "3", "--sizes", "8", "--iterations", "2"]);
    let output = bench.env("EARLYBIRD_TUNE", &path).output().expect("start");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    std::fs::write(&path, "3 allreduce fast:0-\n").expect("write");
    let mut bench = earlybird(&["bench", "allreduce", "--ranks", "3", "--sizes", "8", "--iterations", "2"]);
    let output = bench.env("EARLYBIRD_TUNE", &path).output().expect("start");
    let stderr = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && stderr.contains("line 1") && stderr.contains("static-leader"),
        "{stderr}"
    );
    std::fs::remove_file(&path).expect("remove");
}

#[test]
fn mistakes_are_said_before_anything_is_measured() {
    for (args, part) in [
        ("tune --output x", "--ranks"),
        ("tune --ranks 2", "--output"),
        ("tune --ranks 0 --output x", "number of ranks"),
        ("tune --ranks 2 --output /nowhere/at/all", "/nowhere/at/all"),
        ("tune --ranks 2 --output x --operations scan", "allreduce, reduce"),
        ("tune --ranks 2 --output x --sizes 8K", "whole bytes"),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let output = earlybird(&args).output().expect("start");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(part), "{args:?}: {}", text(&output.stderr));
    }
}
