//! Selection of earlybird or MPI for each call: by operation, size of a block and nodes of the communicator, which are equal on all
//! ranks of a call. `docs/mpi.md` has the measurements.

use crate::functions::MpiFunction;
use earlybird::{Carrier, Carriers};

/// The choice of earlybird or MPI for the calls of a communicator. The first matching range counts; without one, earlybird runs the call.
pub struct Selection {
    /// One bit per function, set if the function has ranges.
    has_ranges: u64,
    ranges: Box<[Ranges; MpiFunction::ALL.len()]>,
}

type Ranges = Vec<(Carrier, u64, u64)>;

/// Sizes of a block, first and last, at which MPI was measured to be faster, on two ranks of one node with a CPU each. Other
/// cases were not measured, or MPI was slower.
const MEASURED: &[(MpiFunction, u64, u64)] = if cfg!(open_mpi) {
    &[
        // Waited for at once; beside a computation neither is faster.
        (MpiFunction::Ireduce, 0, 2 << 10),
        (MpiFunction::Ibcast, 0, 2 << 10),
        (MpiFunction::Ibarrier, 0, u64::MAX),
        (MpiFunction::Iallgather, 0, 2 << 10),
        (MpiFunction::Ialltoall, 0, 2 << 10),
        (MpiFunction::Gatherv, 0, u64::MAX),
        (MpiFunction::Scatterv, 0, u64::MAX),
        (MpiFunction::Alltoallv, 0, u64::MAX),
        (MpiFunction::Alltoallw, 0, u64::MAX),
    ]
} else {
    &[
        (MpiFunction::Gatherv, 0, u64::MAX),
        (MpiFunction::Scatterv, 0, u64::MAX),
        (MpiFunction::Alltoallv, 0, u64::MAX),
        (MpiFunction::Alltoallw, 0, u64::MAX),
        (MpiFunction::Bcast, 6 << 10, 12 << 10),
    ]
};

impl Selection {
    /// `is_measured`: whether the measurements apply to the communicator.
    pub fn new(configured: &Carriers, is_measured: bool) -> Selection {
        let ranges = MpiFunction::ALL.map(|call| -> Ranges {
            let measured = MEASURED.iter().filter(|(of, ..)| is_measured && *of == call);
            configured
                .of(call.collective())
                .chain(measured.map(|(_, first, last)| (Carrier::Mpi, *first, *last)))
                .collect()
        });
        let has_ranges = MpiFunction::ALL.iter().filter(|call| !ranges[**call as usize].is_empty());
        Selection { has_ranges: has_ranges.map(|call| 1u64 << *call as u32).sum(), ranges: Box::new(ranges) }
    }

    /// Returns whether calls with blocks of any size are forwarded to MPI: for functions whose sizes some ranks do not know.
    pub fn always_prefers_mpi(&self, call: MpiFunction) -> bool {
        self.has_ranges & 1 << call as u32 != 0
            && self.ranges[call as usize].first() == Some(&(Carrier::Mpi, 0, u64::MAX))
    }

    /// Returns whether a call with a block of `bytes` is forwarded to MPI.
    #[inline]
    pub fn prefers_mpi(&self, call: MpiFunction, bytes: usize) -> bool {
        self.has_ranges & 1 << call as u32 != 0
            && first_match(&self.ranges[call as usize], bytes as u64) == Carrier::Mpi
    }
}

#[cold]
fn first_match(ranges: &[(Carrier, u64, u64)], bytes: u64) -> Carrier {
    let range = ranges.iter().find(|(_, first, last)| (*first..=*last).contains(&bytes));
    range.map_or(Carrier::Earlybird, |(carrier, ..)| *carrier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use earlybird::Interpose;

    #[test]
    fn settings_precede_measurements() {
        let selection = |setting: &str, is_measured| Selection::new(&Interpose::read(setting).unwrap().1, is_measured);
        for is_measured in [false, true] {
            let selection = selection("on,reduce=mpi:8-1Ki,broadcast=earlybird,barrier=mpi", is_measured);
            let of_reduce =
                [7, 8, 1 << 10, (1 << 10) + 1].map(|bytes| selection.prefers_mpi(MpiFunction::Reduce, bytes));
            assert_eq!(of_reduce, [false, true, true, false]);
            assert!(
                selection.always_prefers_mpi(MpiFunction::Barrier)
                    && !selection.always_prefers_mpi(MpiFunction::Reduce)
            );
            assert!(
                selection.prefers_mpi(MpiFunction::Barrier, 0) && !selection.prefers_mpi(MpiFunction::Bcast, 64 << 10)
            );
        }
        for (call, first, last) in MEASURED {
            let all = format!("{}=earlybird", call.collective().name());
            for bytes in [*first as usize, *last as usize] {
                assert!(
                    selection("on", true).prefers_mpi(*call, bytes)
                        && !selection("on", false).prefers_mpi(*call, bytes)
                );
                assert!(!selection(&all, true).prefers_mpi(*call, bytes), "{call:?}");
            }
            let is_every_size = (*first, *last) == (0, u64::MAX);
            assert_eq!(selection("on", true).always_prefers_mpi(*call), is_every_size);
            assert!(*first == 0 || !selection("on", true).prefers_mpi(*call, *first as usize - 1));
        }
    }
}
