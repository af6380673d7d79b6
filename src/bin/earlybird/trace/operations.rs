//! The table of calls and time by operation and size: the algorithms, and how the time divides into waiting for the last rank and
//! the rest.

use super::study::{SizeClass, Study, ms, percent, us};
use crate::table::{table, table_of};
use earlybird::trace::{TracedCall, TracedPart, quantile};
use std::collections::BTreeMap;

/// One line of the table.
#[derive(Default)]
struct OperationTotals {
    calls: usize,
    /// Nanoseconds of all ranks together.
    blocked: i64,
    waited: i64,
    tails: Vec<i64>,
    algorithms: BTreeMap<String, usize>,
}

impl OperationTotals {
    fn add(&mut self, study: &Study, call: &TracedCall) {
        self.calls += 1;
        self.blocked += call.parts.iter().filter_map(TracedPart::blocked).sum::<i64>();
        if let Some(part) = call.parts.iter().find(|part| part.exit.is_some()) {
            *self.algorithms.entry(study.algorithm(part).to_owned()).or_default() += 1;
        }
        if call.is_shared() {
            let last = call.ends().1.arrival;
            self.waited += call.parts.iter().filter_map(|part| part.waited(last)).sum::<i64>();
            self.tails.extend(call.tail());
        }
    }

    /// The algorithms, those with most calls first.
    fn algorithms(&self) -> String {
        let mut by_calls: Vec<_> = self.algorithms.iter().collect();
        by_calls.sort_by_key(|(_, calls)| std::cmp::Reverse(**calls));
        let share = |(name, calls): &(&String, &usize)| match by_calls.len() {
            1 => (*name).clone(),
            _ => format!("{name} {}%", percent(**calls as i64, self.calls as i64)),
        };
        by_calls.iter().take(3).map(share).collect::<Vec<_>>().join(", ")
    }
}

/// The table.
pub fn section(study: &Study) -> String {
    let mut rows: BTreeMap<(&str, SizeClass), OperationTotals> = BTreeMap::new();
    for call in &study.calls {
        rows.entry((call.collective.name(), SizeClass::of(call.bytes))).or_default().add(study, call);
    }
    let whole: i64 = rows.values().map(|row| row.blocked).sum();
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.blocked));
    let lines = rows.into_iter().map(|((name, class), mut row)| {
        let tail = |part, tails: &mut [i64]| quantile(tails, part).map_or("-".into(), us);
        vec![
            ("operation", name.to_owned()),
            ("largest block", class.name().to_owned()),
            ("calls", row.calls.to_string()),
            ("ms of all ranks", ms(row.blocked)),
            ("% of time", percent(row.blocked, whole)),
            ("% waiting for the last", percent(row.waited, row.blocked)),
            ("tail us", tail(0.5, &mut row.tails)),
            ("99 % of tails", tail(0.99, &mut row.tails)),
            ("algorithms", row.algorithms()),
        ]
    });
    format!("Calls and time. Tail: from the last arrival to the last exit, median.\n{}", table_of(lines, table))
}
