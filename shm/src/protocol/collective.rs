//! The collectives, a row of one table each: what selects, cuts, checks, describes and measures a call goes by its row, and never by
//! which collective it is.

use crate::Error;
use crate::config::Algorithm::{self, Chain, Flat, Leader, SingleCopy, Slices, StaticLeader, StaticLeaderEarly};
use crate::named::did_you_mean;
use std::ops::Range;
use std::str::FromStr;
use strum::{FromRepr, VariantArray};

/// The collective. The discriminant is part of the signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr, VariantArray)]
#[repr(u8)]
#[non_exhaustive]
pub enum Collective {
    /// Every rank gets the reduction of all contributions.
    AllReduce = 1,
    /// Every rank learns that all have arrived.
    Barrier = 2,
    /// The root gets the reduction of all contributions.
    Reduce = 3,
    /// Every rank gets what the root has.
    Broadcast = 4,
    /// Every rank gets what every rank has.
    AllGather = 5,
    /// The root gets what every rank has.
    Gather = 6,
    /// Every rank gets its own part of what the root has.
    Scatter = 7,
    /// Every rank gets its own part of what every rank has.
    AllToAll = 8,
    /// Every rank gets its own part of the reduction of all contributions.
    ReduceScatter = 9,
    /// Every rank gets the reduction, in rank order, of the contributions up to its own.
    Scan = 10,
    /// Every rank but the first gets the reduction, in rank order, of the contributions before its own.
    ExclusiveScan = 11,
    /// The ranks form groups: words of all are summed.
    Split = 32,
    /// The ranks form a second group of the same members: as `Split`.
    Duplicate = 33,
    /// The ranks compare the counts of an alltoall of unequal blocks: as `Split`.
    Counts = 34,
    /// The ranks meet in a call that a plan carries out: as a barrier.
    Plan = 35,
    /// The ranks join for messages between two of them: as a barrier.
    Connect = 36,
}

/// The ranks of one side of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Every rank.
    All,
    /// The root alone.
    Root,
}

/// The contributions in the result of a rank, where it has those of lower ranks only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    /// Those of the ranks before it, and its own.
    Inclusive,
    /// Those of the ranks before it.
    Exclusive,
}

/// A row of the table: what sets a collective apart from the others.
#[derive(Debug, Clone, Copy)]
pub struct Traits {
    /// The name in errors, reports and variables (`allreduce`).
    pub name: &'static str,
    /// The ranks that contribute.
    pub senders: Side,
    /// The ranks that have a result.
    pub receivers: Side,
    /// True if a contribution has a block for each receiver; otherwise all receivers take the same.
    pub in_parts: bool,
    /// True if contributions are folded into one; otherwise they lie one after the other in the result. Then type, operator and
    /// order decide the result.
    pub folds: bool,
    /// The contributions in a rank's result, where each rank has one of its own: those of lower ranks, folded in rank order.
    pub prefix: Option<Prefix>,
    /// True if it carries elements of the caller's.
    pub has_data: bool,
    /// The algorithms that carry it out.
    pub algorithms: &'static [Algorithm],
    /// True if users call it; otherwise the ranks agree by it on something of the library's.
    pub is_public: bool,
}

const ALL_REDUCE: Traits = Traits {
    name: "allreduce",
    senders: Side::All,
    receivers: Side::All,
    in_parts: false,
    folds: true,
    prefix: None,
    has_data: true,
    algorithms: &[Flat, Leader, Chain, Slices, StaticLeader, StaticLeaderEarly],
    is_public: true,
};
/// Contributions that are moved as they are.
const MOVES: Traits = Traits { folds: false, algorithms: &[Flat], ..ALL_REDUCE };
/// An allreduce that the library needs for itself.
const AGREEMENT: Traits = Traits { has_data: false, is_public: false, ..ALL_REDUCE };

impl Collective {
    /// The row of the table.
    #[doc(hidden)]
    #[inline]
    pub const fn traits(self) -> Traits {
        match self {
            Collective::AllReduce => ALL_REDUCE,
            Collective::Barrier => Traits { name: "barrier", has_data: false, ..ALL_REDUCE },
            Collective::Reduce => Traits {
                name: "reduce",
                receivers: Side::Root,
                algorithms: &[Flat, Chain, StaticLeader, StaticLeaderEarly],
                ..ALL_REDUCE
            },
            Collective::Broadcast => {
                Traits { name: "broadcast", senders: Side::Root, algorithms: &[Flat, Chain], ..MOVES }
            }
            Collective::AllGather => Traits { name: "allgather", algorithms: &[Flat, SingleCopy], ..MOVES },
            Collective::Gather => Traits { name: "gather", receivers: Side::Root, ..MOVES },
            Collective::Scatter => Traits { name: "scatter", senders: Side::Root, in_parts: true, ..MOVES },
            Collective::AllToAll => {
                Traits { name: "alltoall", in_parts: true, algorithms: &[Flat, SingleCopy], ..MOVES }
            }
            Collective::ReduceScatter => {
                Traits { name: "reduce-scatter", in_parts: true, algorithms: &[Flat], ..ALL_REDUCE }
            }
            Collective::Scan => {
                Traits { name: "scan", prefix: Some(Prefix::Inclusive), algorithms: &[Flat], ..ALL_REDUCE }
            }
            Collective::ExclusiveScan => {
                Traits { name: "exscan", prefix: Some(Prefix::Exclusive), algorithms: &[Flat], ..ALL_REDUCE }
            }
            Collective::Split => Traits { name: "split", ..AGREEMENT },
            Collective::Duplicate => Traits { name: "duplicate", ..AGREEMENT },
            Collective::Counts => Traits { name: "alltoall of unequal blocks", ..AGREEMENT },
            Collective::Plan => Traits { name: "call by a plan", ..AGREEMENT },
            Collective::Connect => Traits { name: "joining for messages", ..AGREEMENT },
        }
    }

    /// The collectives that users call: those before the library's own.
    #[doc(hidden)]
    pub const PUBLIC: &[Collective] = {
        let mut count = 0;
        while Collective::VARIANTS[count].traits().is_public {
            count += 1;
        }
        Collective::VARIANTS.split_at(count).0
    };

    /// The public collective of this name.
    #[doc(hidden)]
    pub fn named(name: &str) -> Option<Collective> {
        Collective::PUBLIC.iter().copied().find(|collective| collective.name() == name)
    }

    /// Name as printed in errors and reports (`allreduce`).
    #[inline]
    pub const fn name(self) -> &'static str {
        self.traits().name
    }
}

impl FromStr for Collective {
    type Err = Error;

    /// The name of a collective that users call; anything else is `Error::Usage`, which lists them.
    fn from_str(given: &str) -> Result<Self, Error> {
        Collective::named(given).ok_or_else(|| {
            let names = || Collective::PUBLIC.iter().map(|collective| collective.name());
            let (meant, valid) = (did_you_mean(given, names()), Vec::from_iter(names()).join(", "));
            Error::usage(format!("collective {given:?} is not known{meant}; use one of: {valid}"))
        })
    }
}

impl Traits {
    /// Returns whether what comes from different ranks lies one after the other in the result.
    #[inline]
    pub const fn joins(self) -> bool {
        matches!(self.senders, Side::All) && !self.folds
    }

    /// Returns whether one rank has a part of its own.
    #[inline]
    pub const fn has_root(self) -> bool {
        matches!(self.senders, Side::Root) || matches!(self.receivers, Side::Root)
    }

    /// The ranks whose contributions are in the result of `rank`, of as many as contribute.
    #[inline]
    pub fn sources(self, rank: usize, senders: usize) -> Range<usize> {
        match self.prefix {
            None => 0..senders,
            Some(Prefix::Inclusive) => 0..rank + 1,
            Some(Prefix::Exclusive) => 0..rank,
        }
    }

    /// Returns whether every rank gets the fold of all contributions: then each can fold for itself, and needs every other.
    #[inline]
    pub const fn reaches_all(self) -> bool {
        self.folds && self.prefix.is_none() && !self.in_parts && !self.has_root()
    }
}
