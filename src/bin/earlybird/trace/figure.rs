//! The lateness of each rank over time, as a picture.

use super::study::Study;
use crate::chart::Chart;

/// Dots of a rank.
const DOTS: i64 = 150;
/// Ranks that are drawn: those with the largest lateness.
const RANKS: usize = 12;

/// The microseconds of each rank behind the first arrival, as means over equal stretches of time.
pub fn lateness(study: &Study) -> Chart {
    let (begin, length) = (study.begin(), study.length().max(1));
    let mut sums = vec![vec![(0i64, 0i64); DOTS as usize]; study.trace.ranks.len()];
    for call in study.shared_calls() {
        let first = call.ends().0.arrival;
        let at = (i128::from(first - begin) * i128::from(DOTS) / i128::from(length)) as usize;
        for part in &call.parts {
            let (late, calls) = &mut sums[part.file][at.min(DOTS as usize - 1)];
            *late += part.arrival - first;
            *calls += 1;
        }
    }
    let mut files: Vec<usize> = (0..sums.len()).collect();
    files.sort_by_key(|file| std::cmp::Reverse(sums[*file].iter().map(|(late, _)| *late).sum::<i64>()));
    files.truncate(RANKS);
    let dots = files.iter().flat_map(|file| {
        let of_rank = sums[*file].iter().enumerate().filter(|(_, (_, calls))| *calls > 0);
        of_rank.map(|(at, (late, calls))| {
            let x = length as f64 / DOTS as f64 * (at as f64 + 0.5) / 1e9;
            (format!("rank {}", study.rank(*file)), x, *late as f64 / *calls as f64 / 1e3)
        })
    });
    Chart {
        title: format!("lateness of {} of {} ranks", files.len(), study.trace.size),
        bytes: false,
        dots: true,
        x_name: "time (s)",
        y_name: "behind the first arrival (us)",
        points: dots.collect(),
    }
}
