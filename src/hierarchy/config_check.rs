//! What the ranks of several nodes must have alike, or a call would be cut into other segments, or exchanged by another plan, on
//! one rank than on another: every rank tells the others when it joins, and all refuse what was not set alike.
//!
//! One of these is how many ranks of each node exchange large messages with the other nodes, each a part: what one leader copies
//! and folds is what a large call waits for, where every rank has a CPU of its own and less so where ranks share them
//! (`docs/results/2026-11-22.md`). Each rank sees its own CPUs only; where nothing was set, the least that fits a rank counts.

use super::choice::Chosen;
use crate::identity::fingerprint;
use crate::{Costs, Error};
use earlybird_shm::text;

/// Endpoints where nothing was set: where every rank has a CPU; where ranks share CPUs, over shared memory, since more than
/// two only wake each other more often; and over messages, each of which costs MPI's time too.
const WITH_CPUS: usize = 4;
const WHEN_OVERSUBSCRIBED: usize = 2;
const WHEN_OVERSUBSCRIBED_OVER_MESSAGES: usize = 1;

/// Endpoints that fit a rank, where nothing was set.
pub(super) fn fitting_endpoints(is_oversubscribed: bool, is_a_network: bool) -> usize {
    match (is_oversubscribed, is_a_network) {
        (false, _) => WITH_CPUS,
        (true, false) => WHEN_OVERSUBSCRIBED,
        (true, true) => WHEN_OVERSUBSCRIBED_OVER_MESSAGES,
    }
}

/// The words that a rank tells the others: endpoints that were chosen, and the plan and costs, as fingerprints, 0 where nothing was; the
/// endpoints that fit it; and the beginning of the plan's name.
const WORDS: usize = 7;

/// The settings that must be alike.
const ALIKE: usize = 3;

/// What a rank of this choice tells, of which so many endpoints were chosen, if any, and so many fit it.
pub(super) fn words(endpoints: Option<usize>, chosen: &Chosen, fitting_endpoints: usize) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[0] = endpoints.unwrap_or(0) as u64;
    words[1] = chosen.plan.map_or(0, fingerprint);
    words[2] = chosen.costs.as_ref().map_or(0, Costs::fingerprint);
    words[ALIKE] = fitting_endpoints as u64;
    text::pack(chosen.plan.unwrap_or_default(), &mut words[ALIKE + 1..]);
    words
}

/// The endpoints that all ranks take, of what they told.
///
/// # Errors
/// [`Error::Usage`], on all ranks, where something was not set alike.
pub(super) fn agreed_endpoints(told: &[u64]) -> Result<usize, Error> {
    let told: &[[u64; WORDS]] = told.as_chunks().0;
    let number = |endpoints: u64| if endpoints == 0 { "auto".into() } else { endpoints.to_string() };
    for (rank, other) in told.iter().enumerate() {
        let differs = (0..ALIKE).find(|word| other[*word] != told[0][*word]);
        let what = match differs {
            None => continue,
            Some(0) => {
                let [ours, theirs] = [told[0][0], other[0]].map(number);
                format!("EARLYBIRD_ENDPOINTS is {ours} on rank 0 and {theirs} on rank {rank}")
            }
            Some(1) => {
                let name = |words: &[u64; WORDS]| match text::unpack(&words[ALIKE + 1..]).as_str() {
                    "" => "auto".into(),
                    name => format!("plan:{name}"),
                };
                format!("EARLYBIRD_EXCHANGE is {} on rank 0 and {} on rank {rank}", name(&told[0]), name(other))
            }
            Some(_) => format!("the costs between nodes of EARLYBIRD_TUNE on rank 0 are not those of rank {rank}"),
        };
        return Err(Error::usage(format!("{what}; set it alike on all ranks")));
    }
    let fits = || told.iter().map(|of| of[ALIKE]).min().unwrap_or(1);
    Ok(told.first().map(|of| of[0]).filter(|chosen| *chosen > 0).unwrap_or_else(fits) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;
    use crate::{Choice, Config};

    /// Endpoints and the rest, as the user of a rank chose them.
    type Of = (Option<usize>, Chosen);

    fn of(ranks: &[(Of, bool)]) -> Result<usize, Error> {
        let told = ranks.iter().flat_map(|((endpoints, chosen), is_oversubscribed)| {
            words(*endpoints, chosen, fitting_endpoints(*is_oversubscribed, false))
        });
        agreed_endpoints(&told.collect::<Vec<u64>>())
    }

    fn endpoints(endpoints: usize) -> Of {
        (Some(endpoints), Chosen::default())
    }

    #[test]
    fn all_take_what_was_set_or_what_fits_everybody() {
        let nothing = Of::default;
        assert_eq!(of(&[(nothing(), false), (nothing(), false)]).unwrap(), WITH_CPUS);
        assert_eq!(
            of(&[(nothing(), false), (nothing(), true)]).unwrap(),
            WHEN_OVERSUBSCRIBED,
            "one rank's CPUs are shared"
        );
        assert_eq!(fitting_endpoints(true, true), WHEN_OVERSUBSCRIBED_OVER_MESSAGES);
        assert_eq!(of(&[(endpoints(3), true), (endpoints(3), false)]).unwrap(), 3);
    }

    #[test]
    fn what_is_not_set_alike_is_refused() {
        let nothing = Of::default;
        let exchange = |choice| (None, Chosen::new(&Config { exchange: Some(choice), ..Config::default() }));
        let plan = |word: &str| exchange(word.parse().unwrap());
        let latency = |seconds| {
            let costs = Costs::new(&[(8, seconds), (16, 1.0)], 0.0, 0.0).unwrap();
            (None, Chosen { costs: Some(costs), ..Chosen::default() })
        };
        for (ours, theirs, says) in [
            (endpoints(2), endpoints(3), "ENDPOINTS is 2 on rank 0 and 3 on rank 2"),
            (nothing(), endpoints(1), "ENDPOINTS is auto on rank 0 and 1 on rank 2"),
            (plan("plan:ring"), plan("plan:direct"), "EXCHANGE is plan:ring on rank 0 and plan:direct on rank 2"),
            (plan("plan:ring"), nothing(), "EXCHANGE is plan:ring on rank 0 and auto on rank 2"),
            (latency(1e-5), latency(2e-5), "EARLYBIRD_TUNE on rank 0 are not those of rank 2"),
            (latency(1e-5), nothing(), "EARLYBIRD_TUNE on rank 0 are not those of rank 2"),
        ] {
            let message = usage(of(&[(ours.clone(), true), (ours.clone(), true), (theirs, true)]));
            assert!(message.contains(says) && message.ends_with("set it alike on all ranks"), "{message}");
            assert!(of(&[(ours.clone(), true), (ours, false)]).is_ok());
            let auto = exchange(Choice::default());
            assert!(of(&[(auto, true), (nothing(), true)]).is_ok());
        }
    }
}
