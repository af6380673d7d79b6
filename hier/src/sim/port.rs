//! A port that several messages share: fairly, and never idle while one of them waits.

/// A use of a port for `work_s` seconds from `release_s` on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PortJob {
    pub(super) release_s: f64,
    pub(super) work_s: f64,
}

/// Computes when each job ends if all present share the port equally. Cost O(n²).
pub(super) fn share(jobs: &[PortJob], ends_s: &mut Vec<f64>) {
    ends_s.clear();
    if let [job] = jobs {
        ends_s.push(job.release_s + job.work_s);
        return;
    }
    ends_s.resize(jobs.len(), f64::NAN);
    let mut left: Vec<f64> = jobs.iter().map(|job| job.work_s).collect();
    let mut now = jobs.iter().map(|job| job.release_s).fold(f64::INFINITY, f64::min);
    let mut open = jobs.len();
    while open > 0 {
        let waits = |i: usize| ends_s[i].is_nan();
        let present: Vec<usize> = (0..jobs.len()).filter(|i| waits(*i) && jobs[*i].release_s <= now).collect();
        let coming = (0..jobs.len()).filter(|i| waits(*i) && jobs[*i].release_s > now);
        let next = coming.map(|i| jobs[i].release_s).fold(f64::INFINITY, f64::min);
        let Some(least) = present.iter().map(|i| left[*i]).reduce(f64::min) else {
            now = next;
            continue;
        };
        let count = present.len() as f64;
        // what ends before the next one comes ends; otherwise all get on until then
        let ends = now + least * count;
        let until = if ends <= next { ends } else { next };
        for i in present {
            if ends <= next && left[i] <= least {
                ends_s[i] = ends;
                open -= 1;
            } else {
                left[i] -= (until - now) / count;
            }
        }
        now = until;
    }
}

/// Time at which all jobs have ended; they must be in order of release. 0 without jobs.
pub(super) fn busy_until(jobs: impl IntoIterator<Item = PortJob>) -> f64 {
    jobs.into_iter().fold(0.0, |end, job| f64::max(end, job.release_s) + job.work_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(jobs: &[(f64, f64)]) -> Vec<f64> {
        let jobs: Vec<PortJob> = jobs.iter().map(|&(release_s, work_s)| PortJob { release_s, work_s }).collect();
        let mut found = Vec::new();
        share(&jobs, &mut found);
        let last = found.iter().copied().fold(0.0, f64::max);
        let mut sorted = jobs.clone();
        sorted.sort_by(|a, b| a.release_s.total_cmp(&b.release_s));
        assert!((last - busy_until(sorted)).abs() < 1e-9, "sharing keeps the port busy");
        found
    }

    #[test]
    fn equal_jobs_end_together_and_short_ones_first() {
        assert_eq!(ends(&[(1.0, 2.0)]), [3.0]);
        assert_eq!(ends(&[(0.0, 1.0); 4]), [4.0; 4]);
        assert_eq!(ends(&[(0.0, 1.0), (0.0, 3.0)]), [2.0, 4.0]);
        assert_eq!(ends(&[(0.0, 0.0), (0.0, 1.0)]), [0.0, 1.0]);
    }

    #[test]
    fn who_comes_later_shares_from_then_on() {
        // the second comes when the first has one second left
        assert_eq!(ends(&[(0.0, 2.0), (1.0, 2.0)]), [3.0, 4.0]);
        assert_eq!(ends(&[(5.0, 1.0), (0.0, 1.0)]), [6.0, 1.0]);
        assert_eq!(ends(&[(0.0, 4.0), (1.0, 1.0), (10.0, 1.0)]), [5.0, 3.0, 11.0]);
    }
}
