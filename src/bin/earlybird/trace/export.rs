//! Traces for other programs: a timeline for the Perfetto UI, and a table of every call of every rank.

use super::study::Study;
use earlybird::trace::{CallOutcome, TracedCall, TracedPart};
use serde::Serialize;
use serde_json::{Value, json};
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes the timeline in Chrome's trace event format: a process for each node, a thread for each rank. Inside a call the wait
/// for the last rank is a slice of its own; what a non-blocking call lasts is on a track of its own, only the wait for it is
/// on the rank's.
pub fn perfetto(study: &Study, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut separator = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    let mut write = |event: &Value| {
        file.write_all(std::mem::replace(&mut separator, ",\n").as_bytes())?;
        serde_json::to_writer(&mut file, event).map_err(std::io::Error::from)
    };
    for (file, rank) in study.trace.ranks.iter().enumerate() {
        let (node, rank) = (study.nodes[file], &rank.header);
        let name = format!("node {node}: {}", rank.host);
        write(&json!({"ph": "M", "name": "process_name", "pid": node, "args": {"name": name}}))?;
        let name = format!("rank {}", rank.rank);
        write(&json!({"ph": "M", "name": "thread_name", "pid": node, "tid": rank.rank, "args": {"name": name}}))?;
        write(
            &json!({"ph": "M", "name": "thread_sort_index", "pid": node, "tid": rank.rank, "args": {"sort_index": rank.rank}}),
        )?;
    }
    for call in &study.calls {
        for part in &call.parts {
            events(study, call, part).iter().try_for_each(&mut write)?;
        }
    }
    file.write_all(b"\n]}\n")?;
    Ok(file.flush()?)
}

fn events(study: &Study, call: &TracedCall, part: &TracedPart) -> Vec<Value> {
    let us = |ns: i64| ns as f64 / 1e3;
    let at = |ns: i64| us(ns - study.begin());
    let (node, rank, record) = (study.nodes[part.file], study.rank(part.file), &part.record);
    let name = format!("{} {} B", call.collective.name(), call.bytes);
    let last = call.is_whole.then(|| call.ends().1);
    let args = json!({
        "number": record.number,
        "communicator": format!("{:x}", record.communicator),
        "algorithm": study.algorithm(part),
        "place": record.place,
        "last": last.map(|last| study.rank(last.file)),
        "outcome": record.outcome,
    });
    let mut events = Vec::new();
    if record.is_started {
        let id = format!("{rank}.{}", record.index);
        let mut event = json!({"ph": "b", "cat": "non-blocking", "name": name, "id": id, "pid": node, "tid": rank, "ts": at(part.arrival), "args": args});
        events.push(event.clone());
        if let Some(exit) = part.exit {
            event["ph"] = json!("e");
            event["ts"] = json!(at(exit));
            events.push(event);
        }
    }
    let Some(exit) = part.exit else {
        if !record.is_started {
            events.push(json!({"ph": "B", "cat": "open", "name": name, "pid": node, "tid": rank, "ts": at(part.waiting), "args": args}));
        }
        return events;
    };
    let dur = us(exit - part.waiting);
    events.push(json!({"ph": "X", "cat": "collective", "name": name, "pid": node, "tid": rank, "ts": at(part.waiting), "dur": dur, "args": args}));
    if let Some(last) = last
        && let Some(wait @ 1..) = part.waited(last.arrival)
    {
        let name = format!("waits for rank {}", study.rank(last.file));
        events.push(json!({"ph": "X", "cat": "wait", "name": name, "pid": node, "tid": rank, "ts": at(part.waiting), "dur": us(wait)}));
    }
    events
}

/// A line of the table. Field names and their order are the CSV's header; times are nanoseconds from the first arrival.
#[derive(Serialize)]
struct TracedRow<'a> {
    rank: usize,
    node: usize,
    communicator: String,
    ranks: u32,
    number: u64,
    operation: &'static str,
    bytes: u64,
    algorithm: &'a str,
    place: Option<u16>,
    is_started: bool,
    arrival_ns: i64,
    wait_ns: i64,
    exit_ns: Option<i64>,
    behind_first_ns: i64,
    outcome: CallOutcome,
}

/// Writes every call of every rank.
pub fn csv(study: &Study, path: &Path) -> Result<(), csv::Error> {
    let mut file = csv::Writer::from_path(path)?;
    let begin = study.begin();
    for call in &study.calls {
        let first = call.ends().0.arrival;
        for part in &call.parts {
            let record = &part.record;
            file.serialize(TracedRow {
                rank: study.rank(part.file),
                node: study.nodes[part.file],
                communicator: format!("{:x}", record.communicator),
                ranks: record.size,
                number: record.number,
                operation: call.collective.name(),
                bytes: record.bytes,
                algorithm: study.algorithm(part),
                place: record.place,
                is_started: record.is_started,
                arrival_ns: part.arrival - begin,
                wait_ns: part.waiting - begin,
                exit_ns: part.exit.map(|exit| exit - begin),
                behind_first_ns: part.arrival - first,
                outcome: record.outcome,
            })?;
        }
    }
    Ok(file.flush()?)
}
