//! Late ranks: sums over the calls of a trace for each of its ranks.

use super::calls::{TracedCall, TracedPart};

/// A rank's part in calls that all of at least two ranks have made. Times are nanoseconds.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RankLateness {
    /// Calls.
    pub calls: i64,
    /// Calls at which the rank was the last to arrive.
    pub last: i64,
    /// The time from the first arrival to that of the rank, by call.
    pub behind: Vec<i64>,
    /// Time that others waited for the rank after all but it had arrived.
    pub caused: i64,
    /// Time that the rank waited for ranks that had not arrived.
    pub waited: i64,
    /// Time inside calls, or inside the waits for them.
    pub blocked: i64,
}

impl TracedPart {
    /// The rank's time in the call, or in the wait for it.
    pub fn blocked(&self) -> Option<i64> {
        self.exit.map(|exit| (exit - self.waiting).max(0))
    }

    /// The part of this time in which ranks were still to arrive.
    pub fn waited(&self, last_arrival: i64) -> Option<i64> {
        self.exit.map(|exit| (exit.min(last_arrival) - self.waiting).max(0))
    }
}

impl TracedCall {
    /// Returns whether all of at least two ranks have arrived.
    pub fn is_shared(&self) -> bool {
        self.is_whole && self.parts.len() > 1
    }

    /// Time that other ranks waited for the last one after all but it had arrived.
    fn caused(&self) -> i64 {
        let last = self.ends().1;
        let others = || self.parts.iter().filter(|part| part.file != last.file);
        let Some(before) = others().map(|part| part.arrival).max() else { return 0 };
        let waits = others().filter_map(|part| Some((part.exit?.min(last.arrival) - part.waiting.max(before)).max(0)));
        waits.sum()
    }
}

/// The lateness of each rank, by the places of `files` files, in those of the calls that are shared.
pub fn by_rank<'a>(calls: impl IntoIterator<Item = &'a TracedCall>, files: usize) -> Vec<RankLateness> {
    let mut ranks = vec![RankLateness::default(); files];
    for call in calls.into_iter().filter(|call| call.is_shared()) {
        let (first, last) = call.ends();
        ranks[last.file].last += 1;
        ranks[last.file].caused += call.caused();
        for part in &call.parts {
            let rank = &mut ranks[part.file];
            rank.calls += 1;
            rank.behind.push(part.arrival - first.arrival);
            rank.waited += part.waited(last.arrival).unwrap_or(0);
            rank.blocked += part.blocked().unwrap_or(0);
        }
    }
    ranks
}

/// The value below which this part of the values lies.
pub fn quantile(values: &mut [i64], part: f64) -> Option<i64> {
    values.sort_unstable();
    let last = values.len().checked_sub(1)?;
    Some(values[(last as f64 * part) as usize])
}
