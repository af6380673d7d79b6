//! `earlybird tune`: the file is one that `EARLYBIRD_TUNE` takes, whatever was measured.

use crate::{Scratch, earlybird, text};
use earlybird::Tuning;
use std::process::Output;

#[test]
fn the_file_is_one_that_the_library_takes() {
    let path = std::env::temp_dir().join(format!("earlybird-tune-{}", std::process::id()));
    let file = path.to_str().expect("utf-8");
    let operations = ["allreduce", "reduce", "broadcast", "barrier"];
    let args = ["tune", "--ranks", "2,3", "--sizes", "8,20Ki", "--iterations", "3", "--output", file];
    let output = earlybird(&args).output().expect("start");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let written = std::fs::read_to_string(&path).expect("a file");
    assert_eq!(written, text(&output.stdout));
    for (ranks, operation) in ["2", "3"].into_iter().flat_map(|ranks| operations.map(|operation| (ranks, operation))) {
        // A table, or a comment that there is none.
        let key = |line: &str| line.trim_start_matches("# ").split([' ', ':']).next().map(str::to_owned);
        let lines = written.lines().filter(|line| key(line) == Some(format!("ranks.{ranks}.{operation}")));
        assert_eq!(lines.count(), 1, "{ranks} {operation}: {written}");
    }
    // What was measured is what `explain` expects.
    let tail = written.lines().find_map(|line| line.strip_prefix("tails.3.reduce.\"flat\" = [[8, ")?.split_once(']'));
    let us = tail.and_then(|(seconds, _)| seconds.parse::<f64>().ok()).expect("a tail of 8 bytes") * 1e6;
    let mut explain = earlybird(&["explain", "reduce", "--bytes", "8", "--ranks", "3"]);
    let told = text(&explain.env("EARLYBIRD_TUNE", &path).output().expect("start").stdout);
    assert!(told.contains("us after the last arrival") && told.contains(&format!("{us:.1}")), "{told} {us}");
    let mut bench = earlybird(&["bench", "allreduce", "--ranks", "3", "--sizes", "8", "--iterations", "2"]);
    let output = bench.env("EARLYBIRD_TUNE", &path).output().expect("start");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    std::fs::write(&path, "ranks.3.allreduce = 'fast:0-'\n").expect("write");
    let mut bench = earlybird(&["bench", "allreduce", "--ranks", "3", "--sizes", "8", "--iterations", "2"]);
    let output = bench.env("EARLYBIRD_TUNE", &path).output().expect("start");
    let stderr = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && stderr.contains("line 1") && stderr.contains("static-leader"),
        "{stderr}"
    );
    std::fs::remove_file(&path).expect("remove");
}

/// The costs in a file that was written, and shown.
fn costs(output: &Output, path: &std::path::Path) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let written = std::fs::read_to_string(path).expect("a file");
    assert_eq!(written, text(&output.stdout));
    let tuning: Tuning = written.parse().expect("a file for EARLYBIRD_TUNE");
    tuning.costs().expect("costs").to_string()
}

#[test]
fn between_nodes_costs_are_measured() {
    let scratch = Scratch::new("tune-between");
    let path = scratch.file("costs");
    let file = path.to_str().expect("utf-8");
    for layout in [["--ranks=4", "--nodes=3"], ["--ranks=3", "--nodes=2,1"]] {
        let args = [&["tune", "--sizes", "8,4Ki,1Mi", "--iterations", "2", "--output", file], &layout[..]].concat();
        let costs = costs(&earlybird(&args).output().expect("start"), &path);
        let lines: Vec<&str> = costs.lines().collect();
        assert!(lines[0].starts_with("between.messages = [[8, ") && lines[0].contains(", [1048576, "), "{costs}");
        assert!(lines[1].starts_with("between.port = ") && lines[2].starts_with("between.reduced = "), "{costs}");
    }
}

#[test]
fn costs_between_nodes_decide_the_plan() {
    let scratch = Scratch::new("tune-costs");
    let path = scratch.file("costs");
    let mut bench = earlybird(&["bench", "allreduce", "--ranks", "4", "--nodes", "3", "--sizes", "64Ki"]);
    bench.args(["--algorithms", "auto", "--patterns", "balanced", "--iterations", "2", "--format", "csv"]);
    bench.env("EARLYBIRD_TUNE", &path);
    // Messages of 64 KiB take 0.5 ms; one that carries nothing takes far longer, and far shorter.
    for (costs, plan) in [
        ("[[0, 5e-3], [1048576, 1.3e-2]]\nport = 1e-5\nreduced = 1e-10\n", "protocol=latency"),
        ("[[0, 1e-6], [1048576, 8.0e-3]]\nport = 1e-9\nreduced = 1e-10\n", "protocol=bandwidth"),
    ] {
        std::fs::write(&path, format!("[between]\nmessages = {costs}")).expect("write");
        let output = bench.output().expect("start");
        let chosen = format!(",plan:direct:{plan},");
        assert!(text(&output.stdout).contains(&chosen), "{}{}", text(&output.stdout), text(&output.stderr));
    }
    let said = bench.env("EARLYBIRD_VERBOSE", "1").output().expect("start");
    assert!(text(&said.stderr).contains("least cost by EARLYBIRD_TUNE between nodes"), "{}", text(&said.stderr));
    std::fs::write(&path, "between.port = 1e-5\n").expect("write");
    let output = bench.output().expect("start");
    assert!(
        output.status.code() == Some(2) && text(&output.stderr).contains("missing field `messages`"),
        "{}",
        text(&output.stderr)
    );
}

/// The leaders of nodes of ranks that a launcher started.
#[cfg(feature = "mpi")]
#[test]
fn mpi_costs_between_nodes_are_measured() {
    let scratch = Scratch::new("tune-mpi");
    let path = scratch.file("costs");
    let file = path.to_str().expect("utf-8");
    let run = |ranks, args: &str| {
        let mut command = crate::bench::launcher(ranks);
        command.args(["tune", "--iterations", "3", "--output", file]).args(args.split(' ')).output().expect("start")
    };
    costs(&run("5", "--nodes 3"), &path);
    costs(&run("2", "--nodes 2 --ranks 2 --sizes 8,64Ki"), &path);
    for (args, says) in [
        ("--sizes 8,64", "exchange no messages"),
        ("--nodes 3 --ranks 3", "2 ranks were started"),
        ("--nodes 2 --operations reduce", "--operations"),
    ] {
        let output = run("2", args);
        assert!(!output.status.success() && text(&output.stderr).contains(says), "{args}: {}", text(&output.stderr));
    }
}

#[test]
fn mistakes_are_said_before_anything_is_measured() {
    for (args, part) in [
        ("tune --output x", "--ranks"),
        ("tune --ranks 2,3 --nodes 2 --output x", "one number of ranks"),
        ("tune --ranks 2 --nodes 1 --output x", "--nodes 1: one node"),
        ("tune --ranks 2 --nodes 3 --output x", "1 to 2 nodes"),
        ("tune --ranks 2 --nodes 2 --output x --operations reduce", "leave out --operations"),
        ("tune --ranks 2 --nodes 2 --output x --sizes 8", "two sizes"),
        ("tune --ranks 2 --nodes 2 --output x --sizes 8,9", "larger by 4"),
        ("tune --ranks 2 --nodes 2 --output /nowhere/at/all", "/nowhere/at/all"),
        ("tune --ranks 2", "--output"),
        ("tune --ranks 0 --output x", "number of ranks"),
        ("tune --ranks 2 --output /nowhere/at/all", "/nowhere/at/all"),
        ("tune --ranks 2 --output x --operations sort", "allreduce, barrier, reduce"),
        ("tune --ranks 2 --output x --sizes 8K", "whole bytes"),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let output = earlybird(&args).output().expect("start");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(part), "{args:?}: {}", text(&output.stderr));
    }
}
