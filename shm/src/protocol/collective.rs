//! The table of collectives, a row for each: selecting, cutting, checking, describing and measuring a call use its row, never the
//! name of the collective.

use crate::Error;
use crate::config::Algorithm::{self, Chain, Flat, Leader, SingleCopy, Slices, StaticLeader, StaticLeaderEarly};
use crate::named::did_you_mean;
use crate::op::FoldOrder;
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
    /// Every rank gets the root's data.
    Broadcast = 4,
    /// Every rank gets every rank's data.
    AllGather = 5,
    /// The root gets every rank's data.
    Gather = 6,
    /// Every rank gets its own part of the root's data.
    Scatter = 7,
    /// Every rank gets its own part of every rank's data.
    AllToAll = 8,
    /// Every rank gets its own part of the reduction of all contributions.
    ReduceScatter = 9,
    /// Every rank gets the reduction, in rank order, of the contributions up to its own.
    Scan = 10,
    /// Every rank but the first gets the reduction, in rank order, of the contributions before its own.
    ExclusiveScan = 11,
    /// The ranks form new groups, by sums of words over all ranks.
    Split = 32,
    /// The ranks form a second group of the same members: as `Split`.
    Duplicate = 33,
    /// The ranks compare the counts of an alltoall of unequal blocks: as `Split`.
    Counts = 34,
    /// A barrier before a call that a plan carries out.
    Plan = 35,
    /// A barrier before ranks join for point-to-point messages.
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

/// The contributions in the result of a rank of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    /// The contributions of the ranks before it, and its own.
    Inclusive,
    /// The contributions of the ranks before it.
    Exclusive,
}

/// A row of the table: the properties of a collective.
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
    /// True if contributions are folded into one, by type, operator and order; otherwise they are concatenated in the result.
    pub folds: bool,
    /// Set for a scan, where each rank's result folds the contributions of lower ranks, in rank order.
    pub prefix: Option<Prefix>,
    /// True if it carries elements of the caller's.
    pub has_data: bool,
    /// The algorithms that carry it out.
    pub algorithms: &'static [Algorithm],
    /// True if users call it; false for the library's own agreements.
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
/// A collective that moves contributions without folding them.
const MOVES: Traits = Traits { folds: false, algorithms: &[Flat], ..ALL_REDUCE };
/// An allreduce of the library's own.
const AGREEMENT: Traits = Traits { has_data: false, is_public: false, ..ALL_REDUCE };

impl Collective {
    /// The row of the table.
    #[doc(hidden)]
    #[inline]
    pub const fn traits(self) -> &'static Traits {
        match self {
            Collective::AllReduce => &ALL_REDUCE,
            Collective::Barrier => &Traits { name: "barrier", has_data: false, ..ALL_REDUCE },
            Collective::Reduce => &Traits {
                name: "reduce",
                receivers: Side::Root,
                algorithms: &[Flat, Chain, Slices, StaticLeader, StaticLeaderEarly],
                ..ALL_REDUCE
            },
            Collective::Broadcast => {
                &Traits { name: "broadcast", senders: Side::Root, algorithms: &[Flat, Chain], ..MOVES }
            }
            Collective::AllGather => &Traits { name: "allgather", algorithms: &[Flat, SingleCopy], ..MOVES },
            Collective::Gather => &Traits { name: "gather", receivers: Side::Root, ..MOVES },
            Collective::Scatter => &Traits {
                name: "scatter",
                senders: Side::Root,
                in_parts: true,
                algorithms: &[Flat, SingleCopy],
                ..MOVES
            },
            Collective::AllToAll => {
                &Traits { name: "alltoall", in_parts: true, algorithms: &[Flat, SingleCopy], ..MOVES }
            }
            Collective::ReduceScatter => {
                &Traits { name: "reduce-scatter", in_parts: true, algorithms: &[Flat], ..ALL_REDUCE }
            }
            Collective::Scan => {
                &Traits { name: "scan", prefix: Some(Prefix::Inclusive), algorithms: &[Flat], ..ALL_REDUCE }
            }
            Collective::ExclusiveScan => {
                &Traits { name: "exscan", prefix: Some(Prefix::Exclusive), algorithms: &[Flat], ..ALL_REDUCE }
            }
            Collective::Split => &Traits { name: "split", ..AGREEMENT },
            Collective::Duplicate => &Traits { name: "duplicate", ..AGREEMENT },
            Collective::Counts => &Traits { name: "alltoall of unequal blocks", ..AGREEMENT },
            Collective::Plan => &Traits { name: "call by a plan", ..AGREEMENT },
            Collective::Connect => &Traits { name: "joining for messages", ..AGREEMENT },
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

    /// Parses the name of a public collective; any other text is an `Error::Usage` that lists the names.
    fn from_str(given: &str) -> Result<Self, Error> {
        Collective::named(given).ok_or_else(|| {
            let names = || Collective::PUBLIC.iter().map(|collective| collective.name());
            let (meant, valid) = (did_you_mean(given, names()), Vec::from_iter(names()).join(", "));
            Error::usage(format!("collective {given:?} is not known{meant}; use one of: {valid}"))
        })
    }
}

impl Traits {
    /// Returns whether the contributions of all ranks are concatenated in the result.
    #[inline]
    pub const fn joins(&self) -> bool {
        matches!(self.senders, Side::All) && !self.folds
    }

    /// The order in which contributions are folded where this one is `requested`: those of a scan by rank in any case.
    #[inline]
    pub const fn fold_order(&self, requested: FoldOrder) -> FoldOrder {
        if self.prefix.is_some() { FoldOrder::Rank } else { requested }
    }

    /// Returns whether the root sends a block to each rank, or receives one from each.
    #[inline]
    pub const fn has_blocks_at_root(&self) -> bool {
        self.has_root() && (self.in_parts || self.joins())
    }

    /// Returns whether the collective has a root.
    #[inline]
    pub const fn has_root(&self) -> bool {
        matches!(self.senders, Side::Root) || matches!(self.receivers, Side::Root)
    }

    /// The ranks whose contributions are in the result of `rank`, out of `senders` ranks.
    #[inline]
    pub fn sources(&self, rank: usize, senders: usize) -> Range<usize> {
        match self.prefix {
            None => 0..senders,
            Some(Prefix::Inclusive) => 0..rank + 1,
            Some(Prefix::Exclusive) => 0..rank,
        }
    }

    /// Returns whether every rank gets the fold of all contributions, so that each can fold by itself and needs all others.
    #[inline]
    pub const fn reaches_all(&self) -> bool {
        self.folds && self.prefix.is_none() && !self.in_parts && !self.has_root()
    }
}
