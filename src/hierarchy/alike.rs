//! What the ranks of several nodes must have alike, or a call would be cut into other segments, or exchanged by another plan, on
//! one rank than on another: every rank tells the others when it joins, and all refuse what was not set alike.
//!
//! One of these is how many ranks of each node exchange large messages with the other nodes, each a part: what one leader copies
//! and folds is what a large call waits for, where every rank has a CPU of its own and less so where ranks share them
//! (`docs/measurements.md`). Each rank sees its own CPUs only; where nothing was set, the least that fits a rank counts.

use crate::costs::fingerprint;
use crate::{Choice, Config, Costs, Error};

/// Endpoints where nothing was set: where every rank has a CPU; where ranks share CPUs, over shared memory, since more than
/// two only wake each other more often; and over messages, each of which costs MPI's time too.
const WITH_CPUS: usize = 4;
const WHEN_CROWDED: usize = 2;
const WHEN_CROWDED_OVER_MESSAGES: usize = 1;

/// Endpoints that fit a rank, where nothing was set.
pub(super) fn fitting_endpoints(is_crowded: bool, is_a_network: bool) -> usize {
    match (is_crowded, is_a_network) {
        (false, _) => WITH_CPUS,
        (true, false) => WHEN_CROWDED,
        (true, true) => WHEN_CROWDED_OVER_MESSAGES,
    }
}

/// What the user of one rank has chosen.
#[derive(Debug, Clone, Default)]
pub(super) struct Chosen {
    pub endpoints: Option<usize>,
    /// The plan between leaders.
    pub exchange: Option<Choice>,
    /// What messages between them cost.
    pub costs: Option<Costs>,
}

/// What a rank tells the others: endpoints that were chosen, and the plan and costs, as fingerprints, 0 where nothing was; and
/// the endpoints that fit it.
const WORDS: usize = 4;

impl Chosen {
    pub(super) fn new(config: &Config) -> Self {
        let costs = config.tuning.costs().cloned();
        Chosen { endpoints: config.endpoints, exchange: config.exchange, costs }
    }

    pub(super) fn words(&self, fitting_endpoints: usize) -> [u64; WORDS] {
        let plan = match self.exchange {
            Some(Choice::Plan(word)) => fingerprint(word),
            _ => 0,
        };
        [
            self.endpoints.unwrap_or(0) as u64,
            plan,
            self.costs.as_ref().map_or(0, Costs::fingerprint),
            fitting_endpoints as u64,
        ]
    }
}

/// The endpoints that all ranks take, of what they told.
///
/// # Errors
/// [`Error::Usage`], on all ranks, where something was not set alike.
pub(super) fn agreed_endpoints(told: &[u64]) -> Result<usize, Error> {
    let told: &[[u64; WORDS]] = told.as_chunks().0;
    let number = |endpoints: u64| if endpoints == 0 { "auto".into() } else { endpoints.to_string() };
    for (rank, other) in told.iter().enumerate() {
        let differs = (0..WORDS - 1).find(|word| other[*word] != told[0][*word]);
        let what = match differs {
            None => continue,
            Some(0) => {
                let [ours, theirs] = [told[0][0], other[0]].map(number);
                format!("EARLYBIRD_ENDPOINTS is {ours} on rank 0 and {theirs} on rank {rank}")
            }
            Some(1) => format!("EARLYBIRD_EXCHANGE on rank 0 is not that of rank {rank}"),
            Some(_) => format!("the costs between nodes of EARLYBIRD_TUNE on rank 0 are not those of rank {rank}"),
        };
        return Err(Error::usage(format!("{what}; set it alike on all ranks")));
    }
    let fits = || told.iter().map(|[.., fits]| *fits).min().unwrap_or(1);
    Ok(told.first().map(|of| of[0]).filter(|chosen| *chosen > 0).unwrap_or_else(fits) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;

    fn of(ranks: &[(Chosen, bool)]) -> Result<usize, Error> {
        let words = ranks.iter().flat_map(|(chosen, is_crowded)| chosen.words(fitting_endpoints(*is_crowded, false)));
        agreed_endpoints(&words.collect::<Vec<u64>>())
    }

    fn endpoints(endpoints: usize) -> Chosen {
        Chosen { endpoints: Some(endpoints), ..Chosen::default() }
    }

    #[test]
    fn all_take_what_was_set_or_what_fits_everybody() {
        let nothing = Chosen::default;
        assert_eq!(of(&[(nothing(), false), (nothing(), false)]).unwrap(), WITH_CPUS);
        assert_eq!(of(&[(nothing(), false), (nothing(), true)]).unwrap(), WHEN_CROWDED, "one rank's CPUs are shared");
        assert_eq!(fitting_endpoints(true, true), WHEN_CROWDED_OVER_MESSAGES);
        assert_eq!(of(&[(endpoints(3), true), (endpoints(3), false)]).unwrap(), 3);
    }

    #[test]
    fn what_is_not_set_alike_is_refused() {
        let plan = |word: &str| Chosen { exchange: Some(word.parse().unwrap()), ..Chosen::default() };
        let latency = |seconds| Chosen {
            costs: Some(Costs::new(&[(8, seconds), (16, 1.0)], 0.0, 0.0).unwrap()),
            ..Chosen::default()
        };
        for (ours, theirs, says) in [
            (endpoints(2), endpoints(3), "ENDPOINTS is 2 on rank 0 and 3 on rank 2"),
            (Chosen::default(), endpoints(1), "ENDPOINTS is auto on rank 0 and 1 on rank 2"),
            (plan("plan:ring"), plan("plan:direct"), "EXCHANGE on rank 0 is not that of rank 2"),
            (plan("plan:ring"), Chosen::default(), "EXCHANGE on rank 0 is not that of rank 2"),
            (latency(1e-5), latency(2e-5), "EARLYBIRD_TUNE on rank 0 are not those of rank 2"),
            (latency(1e-5), Chosen::default(), "EARLYBIRD_TUNE on rank 0 are not those of rank 2"),
        ] {
            let message = usage(of(&[(ours.clone(), true), (ours.clone(), true), (theirs, true)]));
            assert!(message.contains(says) && message.ends_with("set it alike on all ranks"), "{message}");
            assert!(of(&[(ours.clone(), true), (ours, false)]).is_ok());
            let auto = Chosen { exchange: Some(Choice::default()), ..Chosen::default() };
            assert!(of(&[(auto, true), (Chosen::default(), true)]).is_ok());
        }
    }
}
