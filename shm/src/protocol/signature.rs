//! The signature: a rank's description of its call, by which the ranks detect different calls.

use super::collective::Collective;
use crate::config::Algorithm;
use crate::op::{DType, Datatype, FoldOrder, OpIdentity};

/// The two words that all ranks of an operation must agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// From the low end: `collective 8 | dtype 8 | op 8 | order 1 | within 7 | algorithm 7 | shared 1 | lane 1 | unequal 1 | started 1 |
    /// registered 1 | within 4 | root 16`,
    /// the root plus one, 0 where there is none.
    pub kind: u64,
    /// Elements of a block; for unequal blocks, `hash of their lengths 24 | elements of all 40`. The size of a user's type is
    /// added above [`USER_SIZE_SHIFT`].
    pub count: u64,
}

const LANE: u64 = 1 << 40;
const UNEQUAL: u64 = 1 << 41;
const REGISTERED: u64 = 1 << 43;
const STARTED: u64 = 1 << 42;
/// Set with `REGISTERED` for a shared result; a bit that the codes of the algorithms leave free.
const SHARED: u64 = 1 << 39;
const ROOT_SHIFT: u32 = 48;

/// The lowest bit of the size of a user's type in [`Signature::count`]: no memory holds 2^40 elements.
pub const USER_SIZE_SHIFT: u32 = 40;

impl Signature {
    /// Packs the arguments; the lane is added by [`Signature::in_lane`] once it is known.
    #[inline]
    pub fn new(
        collective: Collective,
        element: impl Into<Datatype>,
        op: impl Into<OpIdentity>,
        order: FoldOrder,
        algorithm: Algorithm,
        count: usize,
    ) -> Self {
        let element = element.into();
        let kind = collective as u64
            | u64::from(element.code()) << 8
            | u64::from(op.into().code()) << 16
            | (order as u64) << 24
            | (algorithm as u64) << 32;
        let user_size = match element {
            Datatype::Builtin(_) => 0,
            Datatype::Opaque(bytes) => (bytes as u64) << USER_SIZE_SHIFT,
        };
        Signature { kind, count: count as u64 | user_size }
    }

    /// Sets the lane: ticketless (`flat`) or ticketed.
    pub fn in_lane(self, flat: bool) -> Self {
        Signature { kind: if flat { self.kind | LANE } else { self.kind & !LANE }, ..self }
    }

    /// Marks a call on registered buffers.
    pub fn registered(self) -> Self {
        Signature { kind: self.kind | REGISTERED, ..self }
    }

    /// Returns whether the buffers are registered, or the result is shared.
    pub fn is_registered(self) -> bool {
        self.kind & REGISTERED != 0
    }

    /// Marks a call with one result for all ranks.
    pub fn shared(self) -> Self {
        Signature { kind: self.kind | REGISTERED | SHARED, ..self }
    }

    /// Marks a non-blocking call, which blocking calls do not match.
    pub fn started(self) -> Self {
        Signature { kind: self.kind | STARTED, ..self }
    }

    /// Sets the root.
    pub fn rooted(self, root: usize) -> Self {
        Signature { kind: self.kind & !(0xffff << ROOT_SHIFT) | (root as u64 + 1) << ROOT_SHIFT, ..self }
    }

    /// Sets unequal block lengths.
    pub fn unequal(self, lens: &[usize]) -> Self {
        let mix = |sum: u64, len: &usize| (sum ^ *len as u64).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31);
        let hash = lens.iter().fold(lens.len() as u64, mix);
        let total = lens.iter().fold(0u64, |sum, len| sum.wrapping_add(*len as u64));
        let count = hash >> 40 << 40 | total & ((1 << 40) - 1);
        Signature { kind: self.kind | UNEQUAL, count }
    }

    /// Sets another number of elements of each block, where all have as many.
    pub fn of_length(self, elements: usize) -> Self {
        let user_size = self.count >> USER_SIZE_SHIFT << USER_SIZE_SHIFT;
        Signature { count: elements as u64 | user_size, ..self }
    }

    /// Marks a part of a larger operation with this number, of which 11 bits count.
    #[inline]
    pub fn within(self, number: u16) -> Self {
        let number = u64::from(number);
        Signature { kind: self.kind | (number & 0x7f) << 25 | (number >> 7 & 0xf) << 44, ..self }
    }

    /// The number of [`Signature::within`].
    pub fn number_within(self) -> u16 {
        (self.kind >> 25 & 0x7f | (self.kind >> 44 & 0xf) << 7) as u16
    }

    /// The algorithm that was requested, `Auto` where the collective does not have it; `None` for an unknown code.
    pub fn algorithm(self) -> Option<Algorithm> {
        Algorithm::from_repr((self.kind >> 32) as u8 & 0x7f)
    }

    /// Returns whether the call is non-blocking.
    pub fn is_started(self) -> bool {
        self.kind & STARTED != 0
    }

    /// The root, where the call has one.
    pub fn root(self) -> Option<usize> {
        (self.kind >> ROOT_SHIFT).checked_sub(1).map(|root| root as usize)
    }

    /// A hash of 32 bits, equal for different calls with a probability of 2^-32. Its lower sixteen bits, all that multi-writer
    /// words have room for, always differ for counts below 65536 that are the only difference.
    #[inline]
    pub fn hash(self) -> u32 {
        let more = self.count >> 16;
        let mixed = (self.kind ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xff51_afd7_ed55_8ccd)
            ^ more.wrapping_add(0x2545_f491_4f6c_dd1d).wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(29);
        // A product carries upwards only, and the root is in the upper bits.
        let mixed = ((mixed ^ mixed >> 32).wrapping_mul(0x9fb2_1c65_1e98_df25) >> 32) as u32;
        let least = self.count as u32 & 0xffff;
        mixed ^ least ^ least.wrapping_mul(0x85eb) << 16
    }

    /// A description of the call for error messages. Unknown codes are printed as numbers.
    pub fn describe(self) -> String {
        let b = (self.kind & !SHARED).to_le_bytes();
        let name = |known: Option<&str>, code: u8| known.map_or(format!("#{code}"), str::to_owned);
        let known = Collective::from_repr(b[0]);
        let traits = known.map(Collective::traits);
        let started = if self.kind & STARTED != 0 { "immediate " } else { "" };
        let collective = format!("{started}{}", name(known.map(Collective::name), b[0]));
        let order = name([Some("arrival"), Some("rank")].get(b[3] as usize & 1).copied().flatten(), b[3]);
        let algorithm = self.algorithm().map(|algorithm| algorithm.to_string());
        let algorithm = format!("algorithm {}", name(algorithm.as_deref(), b[4]));
        match traits {
            Some(traits) if !traits.is_public => return collective,
            Some(traits) if !traits.has_data => return format!("{collective}, {order} order, {algorithm}"),
            _ => {}
        }
        let dtype = name(DType::ALL.iter().find(|d| **d as u8 == b[1]).map(|d| d.name()), b[1]);
        let below = self.count & ((1 << USER_SIZE_SHIFT) - 1);
        let elements = match self.kind & UNEQUAL != 0 {
            _ if b[1] == Datatype::OPAQUE => format!("{below} x a type of {} bytes", self.count >> USER_SIZE_SHIFT),
            false => format!("{} x {dtype}", self.count),
            true => {
                format!("{} x {dtype} in unequal parts (#{:06x})", self.count & ((1 << 40) - 1), self.count >> 40)
            }
        };
        let shared = match (self.is_registered(), self.kind & SHARED != 0) {
            (true, true) => " with a shared result",
            (true, false) => " in shared buffers",
            _ => "",
        };
        let root = self.root().map_or(String::new(), |root| format!(", root {root}"));
        let fold = match traits.is_some_and(|traits| !traits.folds) {
            true => String::new(),
            false => {
                let op = name(OpIdentity::describe(b[2]).as_deref(), b[2]);
                format!(", {op}, {order} order")
            }
        };
        format!("{collective} of {elements}{shared}{root}{fold}, {algorithm}")
    }
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::*;
    use crate::op::Op;

    #[test]
    fn near_counts_differ_in_sixteen_bits() {
        let call =
            |count| Signature::new(Collective::AllReduce, DType::F64, Op::Sum, FoldOrder::Rank, Algorithm::Auto, count);
        for from in [0, 3 << 16] {
            let seen: std::collections::HashSet<u16> = (from..from + 65536).map(|n| call(n).hash() as u16).collect();
            assert_eq!(seen.len(), 65536);
        }
    }

    #[test]
    fn different_calls_have_different_signatures() {
        let user = |ordered, tag| {
            let op = OpIdentity::User { ordered, tag };
            Signature::new(Collective::AllReduce, Datatype::Opaque(24), op, FoldOrder::Rank, Algorithm::Auto, 9)
        };
        let base = Signature::new(Collective::AllReduce, DType::F32, Op::Sum, FoldOrder::Rank, Algorithm::Auto, 9);
        let others = [
            Signature { count: 10, ..base },
            base.in_lane(true),
            base.rooted(0),
            base.rooted(1),
            base.unequal(&[9]),
            base.unequal(&[4, 5]),
            base.unequal(&[5, 4]),
            base.registered(),
            base.shared(),
            Signature::new(Collective::AllReduce, DType::F64, Op::Sum, FoldOrder::Rank, Algorithm::Auto, 9),
            Signature::new(Collective::AllReduce, DType::F32, Op::Max, FoldOrder::Rank, Algorithm::Auto, 9),
            user(false, 0),
            user(true, 0),
            user(true, 1),
            Signature::new(Collective::AllReduce, Datatype::Opaque(4), Op::Sum, FoldOrder::Rank, Algorithm::Auto, 9),
            Signature::new(Collective::AllReduce, Datatype::Opaque(8), Op::Sum, FoldOrder::Rank, Algorithm::Auto, 9),
            Signature::new(Collective::Barrier, DType::F32, Op::Sum, FoldOrder::Rank, Algorithm::Auto, 9),
        ];
        for o in others {
            assert_ne!(o.hash(), base.hash());
            assert_ne!(o.hash() & 0xffff, base.hash() & 0xffff);
        }
        assert_eq!(
            user(true, 63).describe(),
            "allreduce of 9 x a type of 24 bytes, a user's ordered operator (tag 63), rank order, algorithm auto"
        );
        assert_eq!(base.describe(), "allreduce of 9 x f32, sum, rank order, algorithm auto");
        assert_eq!(
            base.shared().describe(),
            "allreduce of 9 x f32 with a shared result, sum, rank order, algorithm auto"
        );
        assert_eq!(others[16].describe(), "barrier, rank order, algorithm auto");
        for (i, a) in others.iter().enumerate() {
            assert!(others[..i].iter().all(|b| a.hash() != b.hash()), "{a:?}");
        }
        assert_eq!((base.root(), base.rooted(0).root(), base.rooted(7).root()), (None, Some(0), Some(7)));
        let sent = |collective| Signature::new(collective, DType::I32, Op::Sum, FoldOrder::Rank, Algorithm::Flat, 5);
        assert_eq!(sent(Collective::Broadcast).rooted(3).describe(), "broadcast of 5 x i32, root 3, algorithm flat");
        let unequal = sent(Collective::AllGather).unequal(&[2, 0, 7]).describe();
        assert!(unequal.starts_with("allgather of 9 x i32 in unequal parts (#"), "{unequal}");
    }
}
