//! Imbalance factors as the studies on arrival patterns define them, beside what one of them published of training ResNet50.
//!
//! Alizadeh, Sojoodi, Hassan Temucin and Afsahi (EuroMPI/USA 2022), tables 1 and 2: the worst-case imbalance time is the last
//! arrival minus the first, the average one the mean over ranks of the distance from the mean arrival; a factor is such a time
//! divided by the time of a message of the call's size.

use super::study::{SizeClass, Study, mean, us};
use crate::table::table;
use earlybird::Collective;
use earlybird::trace::{TracedCall, quantile};
use std::collections::HashMap;

/// Imbalance times of one call in nanoseconds, and the message time of its size.
struct Imbalance {
    class: SizeClass,
    worst: f64,
    average: f64,
    message: f64,
}

/// The published factors, worst case and average: of all sizes, small, medium and large ones.
const PUBLISHED: [(&str, [(f64, f64); 4]); 2] = [
    ("job", [(33631.77, 5516.57), (37767.87, 6194.69), (327.21, 94.41), (5.85, 1.07)]),
    ("inside nodes", [(7747.23, 2848.16), (8698.83, 3197.90), (220.12, 92.99), (1.84, 0.77)]),
];

/// The table.
pub fn section(study: &Study) -> String {
    let messages = message_times(study);
    let of = |call: &TracedCall, files: &dyn Fn(usize) -> bool| {
        let parts = call.parts.iter().filter(|part| files(part.file));
        let arrivals: Vec<f64> = parts.map(|part| part.arrival as f64).collect();
        let message = *messages.get(&(call.collective as u8, call.bytes))?;
        let (first, last) =
            arrivals.iter().fold((f64::MAX, f64::MIN), |(first, last), at| (first.min(*at), last.max(*at)));
        let middle = mean(arrivals.iter().copied());
        let average = mean(arrivals.iter().map(|at| (at - middle).abs()));
        (arrivals.len() > 1).then(|| Imbalance {
            class: SizeClass::of(call.bytes),
            worst: last - first,
            average,
            message,
        })
    };
    let nodes = study.nodes.iter().max().map_or(0, |last| last + 1);
    let job: Vec<Imbalance> = study.shared_calls().filter_map(|call| of(call, &|_| true)).collect();
    let inside = study.shared_calls().flat_map(|call| {
        (0..nodes).filter_map(move |node| of(call, &|file| study.nodes[file] == node)).collect::<Vec<_>>()
    });
    let inside: Vec<Imbalance> = if nodes > 1 { inside.collect() } else { Vec::new() };
    if job.is_empty() {
        return String::new();
    }
    let mut rows = Vec::new();
    for (what, ours) in [("job", &job), ("inside nodes", &inside)].into_iter().filter(|(_, ours)| !ours.is_empty()) {
        rows.push(row(format!("{what}, worst/average us"), ours, |of| {
            (us_of(of, |i| i.worst), us_of(of, |i| i.average))
        }));
        let factor = |of: &[&Imbalance], time: fn(&Imbalance) -> f64| {
            format!("{:.2}", mean(of.iter().map(|call| time(call) / call.message)))
        };
        rows.push(row(format!("{what}, factors"), ours, |of| (factor(of, |i| i.worst), factor(of, |i| i.average))));
    }
    for (what, published) in PUBLISHED {
        let cells = published.map(|(worst, average)| format!("{worst:.2} / {average:.2}"));
        rows.push([vec![format!("ResNet50, 256 ranks, {what}, factors")], cells.to_vec()].concat());
    }
    let classes = SizeClass::ALL.map(SizeClass::name);
    let header = [&["imbalance", "all sizes"][..], &classes].concat();
    format!(
        "Imbalance, means over calls. Worst: last arrival minus first; average: distance from the mean arrival. Factors are in units of\n\
         the message time: the tail of which a tenth of the calls of the same operation and size had a shorter one. Published: Alizadeh\n\
         et al. 2022, one GPU per rank, whose small, medium and large have limits that are not given.\n{}",
        table(&header, rows)
    )
}

fn us_of(of: &[&Imbalance], time: fn(&Imbalance) -> f64) -> String {
    us(mean(of.iter().map(|call| time(call))) as i64)
}

/// A row with a pair of cells for all calls and for each class.
fn row(name: String, calls: &[Imbalance], cells: impl Fn(&[&Imbalance]) -> (String, String)) -> Vec<String> {
    let of = |classes: &[SizeClass]| {
        let calls: Vec<&Imbalance> = calls.iter().filter(|call| classes.contains(&call.class)).collect();
        let (worst, average) = cells(&calls);
        if calls.is_empty() { "-".into() } else { format!("{worst} / {average}") }
    };
    let classes = SizeClass::ALL.map(|class| of(&[class]));
    [vec![name, of(&SizeClass::ALL)], classes.to_vec()].concat()
}

/// The time of a message by operation and bytes, measured in this trace: the tail at the tenth percentile, when nothing was
/// left to do but the message.
fn message_times(study: &Study) -> HashMap<(u8, u64), f64> {
    let mut tails: HashMap<(u8, u64), Vec<i64>> = HashMap::new();
    for call in study.shared_calls().filter(|call| !is_setup(call.collective)) {
        tails.entry((call.collective as u8, call.bytes)).or_default().extend(call.tail());
    }
    let time = |(key, mut tails): (_, Vec<i64>)| Some((key, quantile(&mut tails, 0.1)?.max(1) as f64));
    tails.into_iter().filter_map(time).collect()
}

/// Returns whether a call forms communicators: nothing that a user would balance.
fn is_setup(collective: Collective) -> bool {
    matches!(collective, Collective::Split | Collective::Duplicate)
}
