//! The facts of this machine's processors: the instruction sets that they have and, by their maker, what was measured of their caches. All ranks of a node run on processors of one maker.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// Instruction sets that the kernels are compiled for, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// The instructions of every processor of the architecture.
    Portable = 0,
    /// x86-64 with AVX2 and F16C.
    Avx2 = 1,
    /// x86-64 with AVX-512 F, VL, DQ and BW.
    Avx512 = 2,
}

impl Level {
    /// Every level, ascending.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    /// Name as printed in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// Returns whether this processor and its operating system can run the level.
    pub fn available(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The highest level available here; decided once.
    pub fn detected() -> Level {
        static DETECTED: OnceLock<Level> = OnceLock::new();
        *DETECTED.get_or_init(|| Level::ALL.into_iter().rev().find(|l| l.available()).unwrap_or(Level::Portable))
    }
}

/// The maker of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// Measured on Xeons with 2 MiB of cache per core, Sapphire Rapids and later.
    Intel,
    /// Measured on AMD's EPYC: Zen 3 and Zen 4, 1 MiB per core and 32 MiB for two.
    Other,
}

impl Maker {
    /// The maker of this machine's processors; asked once, which under a hypervisor takes as long as a call.
    #[inline]
    pub fn of_this_processor() -> Maker {
        static MAKER: OnceLock<Maker> = OnceLock::new();
        *MAKER.get_or_init(Maker::ask)
    }

    #[cfg(target_arch = "x86_64")]
    fn ask() -> Maker {
        // SAFETY: every x86-64 processor has the instruction. Newer compilers know that and call the function safe.
        #[allow(unused_unsafe)]
        let leaf = unsafe { std::arch::x86_64::__cpuid(0) };
        let name = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
        if name.as_flattened() == b"GenuineIntel" { Maker::Intel } else { Maker::Other }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn ask() -> Maker {
        Maker::Other
    }
}

/// Bytes from which a result that is `moved`, or else reduced, is better written past the caches. Programs read their results, so a limit lies
/// where one that does so right afterwards gains, too, but for reductions on an EPYC: of 2 MiB two ranks take 1 to 1.35 of the time then, four
/// on two CPUs 0.87 to 0.97; ordinary stores take 0.62 to 0.78 at 1 MiB.
///
/// On a Xeon a reduction of 1 to 4 MiB took 0.7 to 0.95 of the time so, but with the reading 1.1 to 1.5; of 8 MiB 0.8 and 1. What is moved took
/// 1.3 to 1.45 with the reading to 8 MiB, from 16 MiB on 0.9 to 1, without it 0.6 (`docs/results/2026-11-27.md`). On an EPYC it took 0.5 to 0.7
/// from 4 MiB on, with the reading 0.53 to 0.95; of 3 MiB (Zen 3) 0.4 to 1.1 and 0.8 to 1.1, of 2 MiB with the reading 0.8 to 1.7
/// (`docs/results/2026-11-28.md`).
pub fn past_caches_min_bytes(moved: bool) -> usize {
    match (Maker::of_this_processor(), moved) {
        (Maker::Intel, false) => 8 << 20,
        (Maker::Intel, true) => 16 << 20,
        (Maker::Other, false) => 2 << 20,
        (Maker::Other, true) => 3 << 20,
    }
}

/// Returns whether a store whose line other processors have in their caches takes much longer than one whose line nobody has. On a Xeon
/// deposits past the caches were not faster (`docs/results/2026-11-27.md`). Builds for tests find it slow on every machine, so that what
/// follows from it is tested everywhere.
pub fn taking_lines_is_slow() -> bool {
    cfg!(feature = "fault") || Maker::of_this_processor() != Maker::Intel
}
