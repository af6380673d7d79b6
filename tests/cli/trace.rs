//! `earlybird trace`: the report of a job names the rank that was late, its other files are whole, damage is refused, and other
//! commands let their ranks come as those of the job did.

use crate::{Scratch, earlybird, text};
use serde_json::Value;
use std::path::Path;

/// Traces a benchmark of four ranks whose last one is late in every measured call.
fn traced(scratch: &Scratch) -> String {
    let path = scratch.file("job").display().to_string();
    let bench =
        "bench allreduce --ranks 4 --sizes 8,64Ki --algorithms auto --patterns last-late --delay 0.01 --iterations 60";
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
    let file = |name: &str| scratch.file(name).display().to_string();
    let [json, csv, svg, html] = ["job.json", "job.csv", "job.svg", "job.html"].map(file);
    let (code, report, error) = report(&path, &["--perfetto", &json, "--csv", &csv, "--svg", &svg, "--html", &html]);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{report}");
    assert!(report.contains("4 rank(s) on 1 node(s)") && report.contains("Rank 3 caused "), "{report}");
    // 10 ms of three ranks in at least 120 calls, far more than other load takes.
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
    let page = std::fs::read_to_string(&html).unwrap();
    assert_eq!(page.matches("<svg").count(), 2, "the lateness, and the longest wait");
    assert!(
        page.contains("us in all for rank ") && page.contains("Rank 3 caused ") && !page.contains("src="),
        "{page}"
    );
}

#[test]
fn a_look_shows_what_has_happened_and_the_next_one_only_what_is_new() {
    let scratch = Scratch::new("trace-top");
    let path = traced(&scratch);
    let output = earlybird(&["trace", "top", &path, "--every", "10ms", "--looks", "2"]).output().unwrap();
    let (shown, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""));
    let (first, second) = shown.split_once("No call since the last look.").expect(&shown);
    assert!(first.contains("Rank 3 caused ") && !second.contains("Rank 3 caused "), "{shown}");
    let none = scratch.file("none").display().to_string();
    for (arguments, why) in
        [(["top", &path, "--every", "0"], "--every 0"), (["top", &none, "--looks", "1"], "no trace")]
    {
        let output = earlybird(&[&["trace"], &arguments[..]].concat()).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).contains(why)), (Some(2), true), "{why}");
    }
}

#[test]
fn recorded_arrivals_are_measured_and_simulated_again() {
    let scratch = Scratch::new("trace-arrivals");
    let path = traced(&scratch);
    let run = |line: &str| {
        let arguments: Vec<&str> = line.split(' ').chain(["--arrivals", &path]).collect();
        let output = earlybird(&arguments).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let rows = |csv: &str, of: &str| -> Vec<f64> {
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let column = reader.headers().unwrap().iter().position(|name| name == of).expect(of);
        reader.records().map(|row| row.unwrap()[column].parse().unwrap()).collect()
    };
    let bench = "bench allreduce --ranks 4 --sizes 8 --algorithms auto,flat --iterations 20 --format csv";
    let (code, table, error) = run(bench);
    assert_eq!(code, Some(0), "{error}");
    // The last rank came 10 ms late to every other call that is on record.
    assert!(table.contains(",recorded,") && rows(&table, "delay_us").iter().all(|us| *us >= 9000.0), "{table}");
    assert_eq!(rows(&table, "wrong"), [0.0, 0.0]);

    let costs = "--alpha 1e-6 --beta 1e-9 --gamma 1e-10 --iterations 50 --format csv";
    let (code, table, error) = run(&format!("simulate --algorithms ring --ranks 4 --bytes 8 {costs}"));
    assert_eq!(code, Some(0), "{error}");
    // A time counts from the first arrival, so the lateness of the drawn calls is in the mean.
    assert!(rows(&table, "time_us")[0] > 1000.0, "{table}");

    for (line, why) in [
        (bench.replace("--ranks 4", "--ranks 3"), "give --ranks 4"),
        (bench.replace("allreduce", "broadcast"), "no broadcast"),
        (format!("{bench} --delay 5ms"), "cannot be used with"),
        (format!("simulate --algorithms ring --ranks 5 --bytes 8 {costs}"), "give --ranks 4"),
    ] {
        let (code, _, error) = run(&line);
        assert!(code == Some(2) && error.contains(why), "{why}: {error}");
    }
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
    let (code, _, error) = report(&file(1).display().to_string(), &[]);
    assert!(code == Some(2) && error.contains(&format!("is the file of one rank, give {path}\n")), "{error}");
    let (code, _, error) = report(&scratch.0.display().to_string(), &[]);
    assert!(code == Some(2) && error.contains(&format!("is a directory, give one of: {path}\n")), "{error}");
    assert!(Path::new(&file(1)).exists());
}
