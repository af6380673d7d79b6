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

/// The measurements that apply to a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// Those of two ranks of one node with a CPU each.
    TwoRanks,
    /// Those of several nodes.
    SeveralNodes,
    Nowhere,
}

/// Sizes of a block, first and last, at which MPI was measured to be faster on two ranks of one node with a CPU each. Other cases of one
/// node were not measured, or MPI was slower.
const TWO_RANKS: &[(MpiFunction, u64, u64)] = if cfg!(open_mpi) {
    &[
        // Waited for at once; beside a computation neither is faster.
        (MpiFunction::Ibcast, 0, 256),
        (MpiFunction::Ibarrier, 0, u64::MAX),
    ]
} else {
    &[]
};

/// Such sizes on several nodes, measured on two hosts with three and with four ranks, which shared two CPUs. MPICH was not measured there.
/// All sizes or none for functions whose sizes some ranks do not know.
const SEVERAL_NODES: &[(MpiFunction, u64, u64)] = if cfg!(open_mpi) {
    &[
        (MpiFunction::Reduce, 0, 1 << 10),
        (MpiFunction::Bcast, 0, 1 << 10),
        (MpiFunction::Gather, 0, 8 << 10),
        (MpiFunction::Gatherv, 0, u64::MAX),
        (MpiFunction::Scatter, 0, 4 << 10),
        (MpiFunction::Scatterv, 0, u64::MAX),
        (MpiFunction::Alltoall, 0, 32 << 10),
        (MpiFunction::Alltoallv, 0, u64::MAX),
        (MpiFunction::Alltoallw, 0, u64::MAX),
        (MpiFunction::Ireduce, 0, 8),
        (MpiFunction::Ibcast, 0, 4 << 10),
        (MpiFunction::Ibarrier, 0, u64::MAX),
        (MpiFunction::Iallgather, 0, 32 << 10),
        (MpiFunction::Ialltoall, 0, u64::MAX),
    ]
} else {
    &[]
};

/// Calls that do not block and of whose blocks no rank knows all lengths, so it is all or none. MPI was measured to be faster where
/// blocks are small, and where a rank sends more than what is kept in shared memory for it.
const EVERYWHERE: &[MpiFunction] = &[
    MpiFunction::Ialltoallv,
    MpiFunction::Alltoallv_init,
    MpiFunction::Ialltoallw,
    MpiFunction::Alltoallw_init,
    MpiFunction::Igatherv,
    MpiFunction::Gatherv_init,
    MpiFunction::Iscatterv,
    MpiFunction::Scatterv_init,
];

impl Measured {
    /// Functions, and the sizes of a block, first and last, at which MPI was measured to be faster.
    const fn faster_by_mpi(self) -> &'static [(MpiFunction, u64, u64)] {
        match self {
            Measured::TwoRanks => TWO_RANKS,
            Measured::SeveralNodes => SEVERAL_NODES,
            Measured::Nowhere => &[],
        }
    }
}

impl Selection {
    /// The selection by settings, which precede what was measured.
    pub fn new(configured: &Carriers, measured: Measured) -> Selection {
        let ranges = MpiFunction::ALL.map(|call| -> Ranges {
            let measured = measured.faster_by_mpi().iter().filter(|(of, ..)| *of == call);
            let measured = measured.map(|(_, first, last)| (Carrier::Mpi, *first, *last));
            let everywhere = EVERYWHERE.contains(&call).then_some((Carrier::Mpi, 0, u64::MAX));
            configured.of(call.collective()).chain(measured).chain(everywhere).collect()
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
        let selection = |setting: &str, measured| Selection::new(&Interpose::read(setting).unwrap().1, measured);
        for measured in [Measured::Nowhere, Measured::TwoRanks, Measured::SeveralNodes] {
            let selection = selection("on,allreduce=mpi:8-1Ki,broadcast=earlybird,barrier=mpi", measured);
            let of_allreduce =
                [7, 8, 1 << 10, (1 << 10) + 1].map(|bytes| selection.prefers_mpi(MpiFunction::Allreduce, bytes));
            assert_eq!(of_allreduce, [false, true, true, false]);
            assert!(
                selection.always_prefers_mpi(MpiFunction::Barrier)
                    && !selection.always_prefers_mpi(MpiFunction::Allreduce)
            );
            assert!(
                selection.prefers_mpi(MpiFunction::Barrier, 0) && !selection.prefers_mpi(MpiFunction::Bcast, 64 << 10)
            );
        }
        for measured in [Measured::Nowhere, Measured::TwoRanks, Measured::SeveralNodes] {
            for &call in EVERYWHERE {
                let all = format!("{}=earlybird", call.collective().name());
                assert!(selection("on", measured).always_prefers_mpi(call));
                assert!(!selection(&all, measured).always_prefers_mpi(call), "{call:?}");
            }
            for &(call, first, last) in measured.faster_by_mpi() {
                let all = format!("{}=earlybird", call.collective().name());
                for bytes in [first as usize, last as usize] {
                    assert!(
                        selection("on", measured).prefers_mpi(call, bytes)
                            && !selection("on", Measured::Nowhere).prefers_mpi(call, bytes)
                    );
                    assert!(!selection(&all, measured).prefers_mpi(call, bytes), "{call:?}");
                }
                let is_every_size = (first, last) == (0, u64::MAX);
                assert_eq!(selection("on", measured).always_prefers_mpi(call), is_every_size);
                assert!(first == 0 || !selection("on", measured).prefers_mpi(call, first as usize - 1));
            }
        }
    }
}
