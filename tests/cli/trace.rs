//! `earlybird trace`: the report of a job names the rank that was late, its other files are whole, and damage is refused.

use crate::{Scratch, earlybird, text};
use serde_json::Value;
use std::path::Path;

/// Traces a benchmark of four ranks whose last one is late in every measured call.
fn traced(scratch: &Scratch) -> String {
    let path = scratch.file("job").display().to_string();
    let bench =
        "bench allreduce --ranks 4 --sizes 8,64Ki --algorithms auto --patterns last-late --delay 0.002 --iterations 60";
    let arguments: Vec<&str> = bench.split(' ').collect();
    let output = earlybird(&arguments).env("EARLYBIRD_TRACE", &path).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    path
}

fn report(path: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let output = earlybird(&[&["trace", "report", path], more].concat()).output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_late_rank_is_named_and_every_file_is_whole() {
    let scratch = Scratch::new("trace");
    let path = traced(&scratch);
    let [json, csv, svg] = ["job.json", "job.csv", "job.svg"].map(|name| scratch.file(name).display().to_string());
    let (code, report, error) = report(&path, &["--perfetto", &json, "--csv", &csv, "--svg", &svg]);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{report}");
    assert!(report.contains("4 rank(s) on 1 node(s)") && report.contains("Rank 3 caused "), "{report}");
    // 2 ms of three ranks in at least 120 calls.
    let caused = report.split("Rank 3 caused ").nth(1).unwrap();
    let share: f64 = caused.split(' ').next().unwrap().parse().unwrap();
    assert!(share > 50.0, "{report}");
    for line in ["allreduce  < 16 KiB", "allreduce  < 512 KiB", "ResNet50, 256 ranks, job, factors"] {
        assert!(report.contains(line), "{line}: {report}");
    }
    assert!(!report.contains("dropped") && !report.contains("did not end"), "{report}");

    let mut rows = csv::Reader::from_path(&csv).unwrap();
    let rows: Vec<Vec<String>> = rows.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect();
    let events: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    let calls = events.iter().filter(|event| event["cat"] == "collective");
    assert_eq!(calls.clone().count(), rows.len());
    assert!(calls.clone().all(|call| call["dur"].as_f64().unwrap() >= 0.0 && call["ts"].as_f64().unwrap() >= 0.0));
    let waits = events.iter().filter(|event| event["name"] == "waits for rank 3").count();
    assert!(waits > 3 * 60, "{waits} of {} calls", rows.len());
    let svg = std::fs::read_to_string(&svg).unwrap();
    let drawing = roxmltree::Document::parse(&svg).unwrap();
    assert!(drawing.descendants().filter(|node| node.has_tag_name("circle")).count() > 100);
}

#[test]
fn damaged_files_and_files_of_other_jobs_are_refused_with_the_reason() {
    let scratch = Scratch::new("trace-damaged");
    let path = traced(&scratch);
    let file = |rank: usize| scratch.file(&format!("job.{rank}"));
    let refused = |why: &str| {
        let (code, out, error) = report(&path, &[]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{why}");
        assert!(error.contains("job.2") && error.contains(why), "{why}: {error}");
    };
    let whole = std::fs::read(file(2)).unwrap();
    let damaged = |damage: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        std::fs::write(file(2), bytes).unwrap();
    };
    damaged(&|bytes| bytes.truncate(5000));
    refused("it was cut");
    damaged(&|bytes| bytes[16_384 + 64 * 5 + 9] ^= 4);
    refused("the record in slot 5 is damaged");
    damaged(&|bytes| bytes[30] ^= 1);
    refused("its header is damaged");
    std::fs::copy(file(1), file(2)).unwrap();
    refused("it is the trace of rank 1");
    let other = Scratch::new("trace-other");
    traced(&other);
    std::fs::copy(other.file("job.2"), file(2)).unwrap();
    refused("it is of another job");
    std::fs::remove_file(file(2)).unwrap();
    let (code, report_without, _) = report(&path, &[]);
    assert!(code == Some(0) && report_without.contains("No file of rank(s) 2."), "{report_without}");
    let (code, _, error) = report(&scratch.file("none").display().to_string(), &[]);
    assert!(code == Some(2) && error.contains("there is no trace") && error.contains("EARLYBIRD_TRACE"), "{error}");
    assert!(Path::new(&file(1)).exists());
}
