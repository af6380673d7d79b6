//! The comparison of settings that must be equal on all ranks of several nodes, or ranks would cut a call into different segments, or
//! exchange it by different plans: they are gathered when ranks join, and all ranks refuse a difference.
//!
//! One of them is the number of endpoints, the ranks of each node that exchange large messages with the other nodes, a part each. A
//! large call waits for the copies and folds of a single leader, where every rank has a CPU of its own more than where ranks share
//! them (`docs/results/2026-11-22.md`). Each rank sees its own CPUs only; where nothing was set, the least that fits a rank counts.

use super::choice::ExchangeSettings;
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

/// The words that are gathered from each rank: the endpoints that were set, and fingerprints of the plan and the costs, 0 where nothing
/// was set; the endpoints that fit the rank; and the beginning of the plan's name.
const WORDS: usize = 7;

/// The first words, which must be equal on all ranks.
const COMPARED: usize = 3;

/// The words of a rank with these settings.
pub(super) fn words(endpoints: Option<usize>, settings: &ExchangeSettings, fitting_endpoints: usize) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[0] = endpoints.unwrap_or(0) as u64;
    words[1] = settings.plan.map_or(0, fingerprint);
    words[2] = settings.costs.as_ref().map_or(0, Costs::fingerprint);
    words[COMPARED] = fitting_endpoints as u64;
    text::pack(settings.plan.unwrap_or_default(), &mut words[COMPARED + 1..]);
    words
}

/// The number of endpoints that all ranks use, by the gathered words.
///
/// # Errors
/// [`Error::Usage`], on all ranks, where a setting differs.
pub(super) fn agreed_endpoints(gathered: &[u64]) -> Result<usize, Error> {
    let gathered: &[[u64; WORDS]] = gathered.as_chunks().0;
    let number = |endpoints: u64| if endpoints == 0 { "auto".into() } else { endpoints.to_string() };
    for (rank, other) in gathered.iter().enumerate() {
        let differs = (0..COMPARED).find(|word| other[*word] != gathered[0][*word]);
        let what = match differs {
            None => continue,
            Some(0) => {
                let [ours, theirs] = [gathered[0][0], other[0]].map(number);
                format!("EARLYBIRD_ENDPOINTS is {ours} on rank 0 and {theirs} on rank {rank}")
            }
            Some(1) => {
                let name = |words: &[u64; WORDS]| match text::unpack(&words[COMPARED + 1..]).as_str() {
                    "" => "auto".into(),
                    name => format!("plan:{name}"),
                };
                format!("EARLYBIRD_EXCHANGE is {} on rank 0 and {} on rank {rank}", name(&gathered[0]), name(other))
            }
            Some(_) => format!("the costs between nodes of EARLYBIRD_TUNE on rank 0 are not those of rank {rank}"),
        };
        return Err(Error::usage(format!("{what}; set it alike on all ranks")));
    }
    let fits = || gathered.iter().map(|of| of[COMPARED]).min().unwrap_or(1);
    Ok(gathered.first().map(|of| of[0]).filter(|chosen| *chosen > 0).unwrap_or_else(fits) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;
    use crate::{Choice, Config};

    /// Endpoints and the rest, as the user of a rank chose them.
    type Of = (Option<usize>, ExchangeSettings);

    fn of(ranks: &[(Of, bool)]) -> Result<usize, Error> {
        let gathered = ranks.iter().flat_map(|((endpoints, settings), is_oversubscribed)| {
            words(*endpoints, settings, fitting_endpoints(*is_oversubscribed, false))
        });
        agreed_endpoints(&gathered.collect::<Vec<u64>>())
    }

    fn endpoints(endpoints: usize) -> Of {
        (Some(endpoints), ExchangeSettings::default())
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
    fn unequal_settings_are_refused() {
        let nothing = Of::default;
        let exchange = |choice| (None, ExchangeSettings::new(&Config { exchange: Some(choice), ..Config::default() }));
        let plan = |word: &str| exchange(word.parse().unwrap());
        let latency = |seconds| {
            let costs = Costs::new(&[(8, seconds), (16, 1.0)], 0.0, 0.0).unwrap();
            (None, ExchangeSettings { costs: Some(costs), ..ExchangeSettings::default() })
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
