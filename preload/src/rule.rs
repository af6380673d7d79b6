//! Which calls are left to MPI because it carries them out faster: by operation, size of a block and nodes of the communicator,
//! which are equal on all ranks of a call. `docs/interposer.md` has what was measured.

use crate::summary::Call;
use earlybird::{Carrier, Carriers, Collective};

/// Who carries out the calls of a communicator; the first range that fits counts, and where none fits they are taken over.
pub struct Rule([Vec<(Carrier, u64, u64)>; Call::ALL.len()]);

/// Where MPI was measured faster: on several nodes or one, first and last byte of a block.
const MEASURED: &[(Call, bool, u64, u64)] = &[];

impl Rule {
    pub fn new(asked: &Carriers, several_nodes: bool) -> Rule {
        Rule(Call::ALL.map(|call| {
            let measured = MEASURED.iter().filter(|(of, several, ..)| *of == call && *several == several_nodes);
            asked.of(call.collective()).chain(measured.map(|(.., first, last)| (Carrier::Mpi, *first, *last))).collect()
        }))
    }

    /// Whether a call with a block of `bytes` is left to MPI.
    #[inline]
    pub fn is_mpis(&self, call: Call, bytes: usize) -> bool {
        let ranges = &self.0[call as usize];
        !ranges.is_empty() && first_that_fits(ranges, bytes as u64) == Carrier::Mpi
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
        let (_, asked) = Interpose::read("on,reduce=mpi:8-1Ki,broadcast=earlybird,barrier=mpi").unwrap();
        for several_nodes in [false, true] {
            let rule = Rule::new(&asked, several_nodes);
            let of_reduce = [7, 8, 1 << 10, (1 << 10) + 1].map(|bytes| rule.is_mpis(Call::Reduce, bytes));
            assert_eq!(of_reduce[..3], [false, true, true]);
            assert!(rule.is_mpis(Call::Barrier, 0) && !rule.is_mpis(Call::Bcast, 1 << 30));
        }
        for (call, several_nodes, first, last) in MEASURED {
            let rule = |asked: &str| Rule::new(&Interpose::read(asked).unwrap().1, *several_nodes);
            let ends = [*first as usize, usize::try_from(*last).unwrap()];
            assert!(ends.map(|bytes| rule("on").is_mpis(*call, bytes)) == [true; 2], "{call:?}");
            let all = format!("{}=earlybird", call.collective().name());
            assert!(ends.map(|bytes| rule(&all).is_mpis(*call, bytes)) == [false; 2], "{call:?}");
        }
    }
}
