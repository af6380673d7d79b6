//! Late ranks: by rank, over time, and at the end of a job that did not end.

use super::study::{Study, mean, ms, percent, seconds, us};
use crate::table::{table, table_of};
use earlybird::trace::{CallOutcome, RankLateness, TracedCall, by_rank as by_rank_of};

/// Stretches of time into which a trace is cut.
const INTERVALS: i64 = 8;

/// Open calls that are listed.
const OPEN: usize = 10;

/// The table of ranks, and a sentence on the rank that was late.
pub fn by_rank(study: &Study) -> String {
    let ranks = by_rank_of(&study.calls, study.trace.ranks.len());
    let lasts: Vec<usize> = study.shared_calls().map(|call| call.ends().1.file).collect();
    if lasts.is_empty() {
        return String::new();
    }
    let rows = ranks.iter().enumerate().map(|(file, rank)| {
        vec![
            ("rank", study.rank(file).to_string()),
            ("node", study.nodes[file].to_string()),
            ("calls", rank.calls.to_string()),
            ("% last", percent(rank.last, rank.calls)),
            ("us behind the first", us(rank.behind.iter().sum::<i64>() / rank.calls.max(1))),
            ("wait caused ms", ms(rank.caused)),
            ("waited ms", ms(rank.waited)),
            ("ms after the last came", ms(rank.blocked - rank.waited)),
        ]
    });
    let (rows, verdict) = (table_of(rows, table), verdict(study, &ranks, &lasts));
    format!("Lateness by rank, in calls that all ranks are on record for.\n{rows}\n{verdict}")
}

/// The lateness of the ranks, and whether the same one stays late.
fn verdict(study: &Study, ranks: &[RankLateness], lasts: &[usize]) -> String {
    let worst = (0..ranks.len()).max_by_key(|file| ranks[*file].caused).expect("there are ranks");
    let (all, sum) = (lasts.len() as i64, ranks.iter().map(|rank| rank.caused).sum::<i64>());
    let again = lasts.windows(2).filter(|pair| pair[0] == pair[1]).count() as i64;
    let stretch = all as f64 / (all - again).max(1) as f64;
    let by_chance = ranks.iter().map(|rank| (rank.last as f64 / all as f64).powi(2)).sum::<f64>();
    let repeats = again as f64 / (all - 1).max(1) as f64;
    let how = match () {
        () if 2 * ranks[worst].last > all => "persistent".to_owned(),
        () if repeats > 1.5 * by_chance => format!("it changes every {stretch:.1} calls"),
        () => "it rotates".to_owned(),
    };
    format!(
        "Rank {} caused {} % of the {} ms that ranks waited for a last one, and was last in {} % of its calls: {how}.",
        study.rank(worst),
        percent(ranks[worst].caused, sum),
        ms(sum),
        percent(ranks[worst].last, ranks[worst].calls),
    )
}

/// The table of stretches of time: phases in which another rank is late, or none.
pub fn over_time(study: &Study) -> String {
    let (begin, length) = (study.begin(), study.length().max(1));
    let mut stretches: Vec<Vec<&TracedCall>> = vec![Vec::new(); INTERVALS as usize];
    for call in study.shared_calls() {
        let at = (i128::from(call.ends().0.arrival - begin) * i128::from(INTERVALS) / i128::from(length)) as usize;
        stretches[at.min(INTERVALS as usize - 1)].push(call);
    }
    if stretches.iter().all(Vec::is_empty) {
        return String::new();
    }
    let rows = stretches.iter().enumerate().map(|(at, calls)| {
        let mut last = vec![0; study.trace.ranks.len()];
        calls.iter().for_each(|call| last[call.ends().1.file] += 1);
        let most = (0..last.len()).max_by_key(|file| last[*file]).expect("there are ranks");
        let worst = mean(calls.iter().map(|call| (call.ends().1.arrival - call.ends().0.arrival) as f64));
        let rank = match calls.len() {
            0 => ["-".to_owned(), "-".to_owned()],
            _ => [study.rank(most).to_string(), percent(last[most], calls.len() as i64)],
        };
        let row = [seconds(length * at as i64 / INTERVALS), calls.len().to_string(), us(worst as i64)];
        [row.to_vec(), rank.to_vec()].concat()
    });
    let header = ["from s", "calls", "first to last us", "most often last", "% of calls"];
    format!("Lateness over time.\n{}", table(&header, rows.collect()))
}

/// The calls that ranks were in at the end, and the ranks that had not come.
pub fn open_calls(study: &Study) -> String {
    let is_open = |call: &&TracedCall| call.parts.iter().any(|part| part.record.outcome == CallOutcome::Open);
    let newest = |file: usize| study.trace.ranks[file].records.last().map_or(0, |record| record.index);
    let mut lines = Vec::new();
    for call in study.calls.iter().filter(is_open) {
        let record = &call.parts[0].record;
        let list = |files: Vec<usize>| match files.is_empty() {
            true => "none".to_owned(),
            false => files.into_iter().map(|file| study.rank(file).to_string()).collect::<Vec<_>>().join(", "),
        };
        let of = |outcome: fn(CallOutcome) -> bool| {
            list(call.parts.iter().filter(|part| outcome(part.record.outcome)).map(|part| part.file).collect())
        };
        let absent = match record.size as usize == study.trace.ranks.len() {
            true => {
                let files = 0..study.trace.ranks.len();
                list(files.filter(|file| call.parts.iter().all(|part| part.file != *file)).collect())
            }
            false => format!("{} of its ranks", record.size as usize - call.parts.len().min(record.size as usize)),
        };
        let last_calls = call.parts.iter().filter(|part| newest(part.file) == part.record.index).count();
        lines.push(format!(
            "{} number {} of {} bytes on communicator {:x}: inside rank(s) {}, back {}, not arrived {absent}; the last record of {last_calls} of them.",
            call.collective.name(),
            record.number,
            call.bytes,
            record.communicator,
            of(|outcome| outcome == CallOutcome::Open),
            of(|outcome| !matches!(outcome, CallOutcome::Open)),
        ));
    }
    let more = lines.len().saturating_sub(OPEN);
    lines.truncate(OPEN);
    if more > 0 {
        lines.push(format!("and {more} more."));
    }
    match lines.is_empty() {
        true => String::new(),
        false => format!("Calls that did not end before the files were last written:\n{}", lines.join("\n")),
    }
}
