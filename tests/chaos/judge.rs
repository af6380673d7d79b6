//! The verdict on a run that has ended, and what can be seen of ranks that hang.

use crate::driver::{Rank, Running};
use crate::kinds::{Act, Expect, Load};
use crate::said::Told;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The problems of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Hang,
    /// A wrong element, another program's file that was changed.
    Wrong,
    /// A file, process, descriptor or mapping that stays.
    Leak,
    /// An error where none may be, none where one must be, one that blames the innocent, an end by a signal or panic.
    Error,
    /// Noticed later than [`LATE_NS`] after the violence, or by a deadline only.
    Late,
}

/// The time within which a death must be known to all, on a machine that has nothing else to do.
pub const LATE_NS: u64 = 1_000_000_000;

/// All that is known of a run.
#[derive(Default)]
pub struct Outcome {
    pub problems: Vec<(Class, String)>,
    /// From the violence to the error, for each survivor.
    pub detections: Vec<u64>,
    /// Checked calls by form, over all ranks.
    pub calls: BTreeMap<String, u64>,
    /// True if there was time for the violence.
    pub acted: bool,
    pub killed: u64,
    pub stopped: u64,
}

pub fn judge(run: &Running<'_>, hang: Option<String>, lingering: Vec<usize>) -> Outcome {
    let mut outcome = Outcome { acted: run.acted.is_some(), ..Outcome::default() };
    if outcome.acted {
        (outcome.killed, outcome.stopped) = (run.killed().len() as u64, run.stopped().len() as u64);
    }
    let mut add = |class, text: String| outcome.problems.push((class, text));
    if let Some(states) = &hang {
        add(Class::Hang, states.clone());
    }
    lingering.iter().for_each(|rank| add(Class::Leak, format!("processes of rank {rank} live on")));
    left_files(run).into_iter().for_each(|file| add(Class::Leak, file));
    for (number, rank) in run.ranks.iter().enumerate() {
        let tell = |text: &str| format!("rank {number} (pid {}): {text}", rank.pid());
        rank.said.wrong.iter().for_each(|text| add(Class::Wrong, tell(text)));
        rank.said.leaks.iter().for_each(|text| add(Class::Leak, tell(text)));
        if hang.is_none()
            && !run.killed().contains(&number)
            && let Some((class, text)) = bad_end(run, number)
        {
            add(class, tell(&text));
        }
        for (form, calls) in &rank.said.calls {
            *outcome.calls.entry(form.clone()).or_default() += calls;
        }
    }
    for (number, rank) in run.ranks.iter().enumerate() {
        let from = if run.stopped().contains(&number) { run.continued } else { run.acted };
        let (Some(told), Some(from)) = (&rank.said.error, from) else { continue };
        let took = told.at.saturating_sub(from);
        if run.job.scenario.kind.expect == Expect::Death && told.code != "EB_TIMEOUT" {
            outcome.detections.push(took);
            if took > LATE_NS {
                let text = format!("rank {number}: {} after {} ms: {}", told.code, took / 1_000_000, told.text);
                outcome.problems.push((Class::Late, text));
            }
        }
    }
    outcome
}

/// The problem with the end of this rank, which was not to die.
fn bad_end(run: &Running<'_>, number: usize) -> Option<(Class, String)> {
    let (scenario, rank) = (run.job.scenario, &run.ranks[number]);
    let (kind, said) = (scenario.kind, &rank.said);
    let error = |what: &str| Some((Class::Error, format!("{what}: {:?}, {}", said.error, tail(rank))));
    // A limit may leave the program no memory, which ends it; a library's error leaves it alive.
    let is_victim = scenario.victims.contains(&number);
    let may_end = is_victim && matches!(kind.act, Act::AddressSpace | Act::FileSize);
    if !rank.ended.is_some_and(|status| status.success()) && !may_end {
        return error(&format!("ended with {:?}", rank.ended.map(|end| end.to_string())));
    }
    match (kind.expect, &said.error) {
        _ if !said.wrong.is_empty() => None,
        (Expect::Success, None) if said.done => None,
        (Expect::Success, Some(_)) => error("an error where none may be"),
        (Expect::Death, Some(told)) if names_the_dead(run, rank, told) => None,
        (Expect::Death, Some(_)) => error("an error that names no victim"),
        (Expect::AnEnd, Some(told)) if told.code == "EB_TIMEOUT" => Some(deadline(run, rank, told)),
        (Expect::AnEnd, Some(told)) if told.code.starts_with("EB_") => None,
        (Expect::AnEnd, None) if said.done || may_end => None,
        _ => error("no result"),
    }
}

/// A deadline where others refused to join: who was there half a second before should have been told by them.
fn deadline(run: &Running<'_>, rank: &Rank, told: &Told) -> (Class, String) {
    let errors = run.ranks.iter().filter_map(|rank| rank.said.error.as_ref());
    let first = errors.filter(|error| error.code != told.code).map(|error| error.at).min();
    let all_ended_well = run.ranks.iter().all(|rank| rank.ended.is_some_and(|status| status.success()));
    let was_there = |first: u64| rank.said.joining.is_some_and(|at| at + 500_000_000 < first);
    match first.map_or(all_ended_well, was_there) {
        true => (Class::Error, format!("a deadline instead of another rank's refusal: {}", told.text)),
        false => (Class::Late, told.text.clone()),
    }
}

/// Returns whether an error blames a victim, or a rank that left for an error of its own: one that it had before, or that names
/// a victim, as a rank may leave before it has told when. A deadline does where it ends joining.
fn names_the_dead(run: &Running<'_>, of: &Rank, told: &Told) -> bool {
    let is_victim = |pid| run.killed().iter().any(|victim| run.ranks[*victim].pid() == pid);
    let left = |rank: &Rank| {
        let had = |own: &Told| own.at < told.at || is_victim(own.pid);
        rank.pid() == told.pid && rank.said.error.as_ref().is_some_and(had)
    };
    let joining = run.job.scenario.kind.load == Load::Joining && !of.said.joined && told.code == "EB_TIMEOUT";
    told.code == "EB_PEER_DIED" && (is_victim(told.pid) || run.ranks.iter().any(left)) || joining
}

/// Names that the run left in its meeting directory, and its control segments in /dev/shm.
fn left_files(run: &Running<'_>) -> Vec<String> {
    let names = |path: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(path).map(|all| all.flatten().collect::<Vec<_>>()).unwrap_or_default();
        entries.iter().map(|entry| entry.path().display().to_string()).collect()
    };
    let meet = run.dir.join("meet");
    if run.killed().len() > 1 {
        // Who knows the name of a meeting may all have been killed in it: then the next start in the directory removes it.
        let _ = earlybird_shm::sweep(Some(&meet));
    }
    let mut left: Vec<String> = names(&meet);
    // Other programs meet at the same time: ours is what names a process of this run.
    let is_ours = |name: &String| {
        let words = std::fs::read(name).unwrap_or_default();
        let pid = |word: &[u8]| u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        name.contains("/earlybird")
            && words.chunks_exact(4).any(|word| run.ranks.iter().any(|rank| rank.pid() == pid(word)))
    };
    left.extend(names("/dev/shm".as_ref()).into_iter().filter(is_ours));
    // The next run finds its place clean.
    left.iter().for_each(|name| drop(std::fs::remove_file(name)));
    left
}

/// What a rank has said of its panic, or the last lines that it has printed.
fn tail(rank: &Rank) -> String {
    let text = std::fs::read_to_string(&rank.log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let panic = lines.iter().position(|line| line.contains("panicked at"));
    let first = panic.unwrap_or(lines.len().saturating_sub(4));
    lines[first..].iter().take(4).copied().collect::<Vec<_>>().join(" | ")
}

/// All that the system tells about ranks that have not ended.
pub fn states(run: &Running<'_>) -> String {
    let mut text = String::new();
    for (number, rank) in run.ranks.iter().enumerate() {
        let how = rank.said.error.as_ref().map_or("", |error| &error.text);
        let life = if rank.is_over { "ended" } else { "lives" };
        let _ = write!(text, "rank {number} {life} in {:?} {how}; ", rank.said.doing);
        let tasks = std::fs::read_dir(format!("/proc/{}/task", rank.pid()));
        for task in tasks.into_iter().flatten().flatten() {
            let read = |what: &str| std::fs::read_to_string(task.path().join(what)).unwrap_or_default();
            let status = read("status");
            let state = status.lines().find(|line| line.starts_with("State")).unwrap_or_default();
            let stack: Vec<String> = read("stack").lines().take(2).map(|line| line.replace("[<0>] ", "")).collect();
            let (name, call) = (read("comm"), read("syscall"));
            let call = call.split(' ').next().unwrap_or_default().trim();
            let _ = write!(text, "{} {state}, {}, system call {call}, {stack:?}; ", name.trim(), read("wchan"));
        }
        let _ = writeln!(text, "said: {}", tail(rank));
    }
    text
}
