//! The machine of a rank: its name, and whether the ranks of MPI_COMM_WORLD that run on it outnumber the CPUs that they may use. A
//! communicator of a few ranks cannot find that by itself: it does not know that others want its CPUs.

use crate::abi::{self, constants};
use crate::{settings, stderr};
use earlybird::messages::node_name;
use earlybird::probe;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::thread::available_parallelism;

/// What a rank tells all others in MPI_Init.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RankCpus {
    machine: u64,
    /// A hash of the CPUs that the rank may run on, and their number.
    mask: u64,
    cpus: u64,
}

static RANKS_OUTNUMBER_CPUS: OnceLock<bool> = OnceLock::new();

/// Counts the ranks of this machine and their CPUs. All ranks of MPI_COMM_WORLD take part, also one that does not know its machine.
pub fn count_ranks() {
    let (world, machine) = (constants().world, name().unwrap_or_default());
    let Some((_, size)) = abi::rank_and_size(world) else { return };
    let affinity = probe::affinity();
    let cpus = affinity.iter().map(|word| u64::from(word.count_ones())).sum();
    if let Some(all) = abi::gather(world, size, &[RankCpus { machine, mask: settings::hash(&affinity), cpus }]) {
        RANKS_OUTNUMBER_CPUS.get_or_init(|| outnumber_cpus(machine, &all, probe::cpu_quota()));
    }
}

/// Returns whether the ranks of MPI_COMM_WORLD on this machine outnumber their CPUs; where they were not counted, because another
/// library initialized MPI, whether all ranks outnumber those of this process.
pub fn ranks_outnumber_cpus() -> bool {
    *RANKS_OUTNUMBER_CPUS.get_or_init(|| {
        let cpus = available_parallelism().map_or(1, usize::from);
        abi::rank_and_size(constants().world).is_some_and(|(_, size)| size > cpus)
    })
}

/// Returns a hash of this machine's name, which processes have in common that can share memory.
pub fn name() -> Option<u64> {
    static NAME: OnceLock<Option<u64>> = OnceLock::new();
    *NAME.get_or_init(|| match node_name(settings::get().dir.as_deref()) {
        Ok(name) => Some(settings::hash(&name)),
        Err(error) => {
            let code = error.code();
            stderr::print(&format!("earlybird: the calls of this process are forwarded to MPI: {code} {error}"));
            None
        }
    })
}

/// Returns whether the ranks on `machine` outnumber its CPUs. Two ranks are taken to have the same CPUs or different ones; where
/// masks overlap, CPUs count twice.
fn outnumber_cpus(machine: u64, all: &[RankCpus], quota: Option<usize>) -> bool {
    let here = all.iter().filter(|rank| rank.machine == machine);
    let masks: BTreeMap<u64, u64> = here.clone().map(|rank| (rank.mask, rank.cpus)).collect();
    let cpus = masks.values().sum::<u64>().min(quota.map_or(u64::MAX, |quota| quota as u64));
    here.count() as u64 > cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(masks: &[(u64, u64, u64)]) -> Vec<RankCpus> {
        masks.iter().map(|&(machine, mask, cpus)| RankCpus { machine, mask, cpus }).collect()
    }

    #[test]
    fn ranks_are_counted_with_the_cpus_of_their_machine() {
        let two_free_four_bound = ranks(&[(1, 7, 2), (1, 7, 2), (2, 1, 1), (2, 2, 1), (2, 3, 1), (2, 4, 1)]);
        assert!(!outnumber_cpus(1, &two_free_four_bound, None));
        assert!(!outnumber_cpus(2, &two_free_four_bound, None));
        assert!(!outnumber_cpus(2, &two_free_four_bound, Some(4)));
        assert!(outnumber_cpus(2, &two_free_four_bound, Some(3)));
        let four_share_two = ranks(&[(1, 7, 2); 4]);
        assert!(outnumber_cpus(1, &four_share_two, None));
        let two_bound_to_one = ranks(&[(1, 1, 1), (1, 1, 1), (2, 2, 1)]);
        assert!(outnumber_cpus(1, &two_bound_to_one, None));
        assert!(!outnumber_cpus(2, &two_bound_to_one, None));
    }
}
