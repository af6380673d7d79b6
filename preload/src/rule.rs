//! Which calls are left to MPI because it carries them out faster: by operation, size of a block and nodes of the communicator,
//! which are equal on all ranks of a call. `docs/interposer.md` has what was measured.

use crate::summary::Call;
use earlybird::{Carrier, Carriers, Collective};

/// Who carries out the calls of a communicator; the first range that fits counts, and where none fits they are taken over.
pub struct Rule {
    /// A bit for every operation that has ranges.
    ruled: u32,
    ranges: Box<[Ranges; Call::ALL.len()]>,
}

type Ranges = Vec<(Carrier, u64, u64)>;

/// Where MPI was measured faster: first and last byte of a block. Two ranks of one node with a CPU each; elsewhere nothing
/// was measured, or it was slower.
const MEASURED: &[(Call, u64, u64)] = if cfg!(open_mpi) {
    &[(Call::Bcast, 48 << 10, 512 << 10), (Call::Allgather, 48 << 10, 128 << 10)]
} else {
    &[(Call::Bcast, 6 << 10, 12 << 10), (Call::Bcast, 48 << 10, 512 << 10), (Call::Allgather, 24 << 10, 512 << 10)]
};

impl Rule {
    /// `is_measured`: whether the communicator is one of those that were measured.
    pub fn new(asked: &Carriers, is_measured: bool) -> Rule {
        let ranges = Call::ALL.map(|call| -> Ranges {
            let measured = MEASURED.iter().filter(|(of, ..)| is_measured && *of == call);
            asked.of(call.collective()).chain(measured.map(|(_, first, last)| (Carrier::Mpi, *first, *last))).collect()
        });
        let ruled = Call::ALL.iter().filter(|call| !ranges[**call as usize].is_empty());
        Rule { ruled: ruled.map(|call| 1 << *call as u32).sum(), ranges: Box::new(ranges) }
    }

    /// Whether a call with a block of `bytes` is left to MPI.
    #[inline]
    pub fn is_mpis(&self, call: Call, bytes: usize) -> bool {
        self.ruled & 1 << call as u32 != 0 && first_that_fits(&self.ranges[call as usize], bytes as u64) == Carrier::Mpi
    }
}

#[cold]
fn first_that_fits(ranges: &[(Carrier, u64, u64)], bytes: u64) -> Carrier {
    let fits = ranges.iter().find(|(_, first, last)| (*first..=*last).contains(&bytes));
    fits.map_or(Carrier::Earlybird, |(carrier, ..)| *carrier)
}

impl Call {
    fn collective(self) -> Collective {
        match self {
            Call::Allreduce => Collective::AllReduce,
            Call::Reduce => Collective::Reduce,
            Call::Bcast => Collective::Broadcast,
            Call::Barrier => Collective::Barrier,
            Call::Allgather => Collective::AllGather,
            Call::ReduceScatterBlock => Collective::ReduceScatter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use earlybird::Interpose;

    #[test]
    fn what_is_asked_goes_before_what_was_measured() {
        let rule = |asked: &str, is_measured| Rule::new(&Interpose::read(asked).unwrap().1, is_measured);
        for is_measured in [false, true] {
            let rule = rule("on,reduce=mpi:8-1Ki,broadcast=earlybird,barrier=mpi", is_measured);
            let of_reduce = [7, 8, 1 << 10, (1 << 10) + 1].map(|bytes| rule.is_mpis(Call::Reduce, bytes));
            assert_eq!(of_reduce, [false, true, true, false]);
            assert!(rule.is_mpis(Call::Barrier, 0) && !rule.is_mpis(Call::Bcast, 64 << 10));
        }
        for (call, first, last) in MEASURED {
            let all = format!("{}=earlybird", call.collective().name());
            for bytes in [*first as usize, *last as usize] {
                assert!(rule("on", true).is_mpis(*call, bytes) && !rule("on", false).is_mpis(*call, bytes));
                assert!(!rule(&all, true).is_mpis(*call, bytes), "{call:?}");
            }
            assert!(!rule("on", true).is_mpis(*call, *first as usize - 1));
        }
    }
}
