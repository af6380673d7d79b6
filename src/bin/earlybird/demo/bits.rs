//! Three arrival orders: folded by rank, the result has the same bits on every rank in each of them.

use crate::bench::Session;
use crate::lineup::now_ns;
use crate::table::table;
use earlybird::pattern::mix;
use earlybird::{Algorithm, Error, FoldOrder, Op};
use itertools::Itertools;

/// 64 KiB.
const ELEMENTS: usize = 16 * 1024;
/// Time between two arrivals.
const STAGGER_NS: i64 = 1_000_000;

/// The ranks' planned distance from the first arrival, in staggers, and its name.
type Plan = (&'static str, fn(usize, usize) -> usize);
const PLANS: [Plan; 3] =
    [("first to last", |rank, _| rank), ("last to first", |rank, ranks| ranks - 1 - rank), ("at once", |_, _| 0)];

/// A call under one arrival order.
pub struct Order {
    plan: &'static str,
    /// Ranks as they arrived.
    arrived: Vec<usize>,
    /// Hash of each rank's result.
    hashes: Vec<u64>,
}

/// Calls once in each order. Collective; the same on all ranks.
///
/// # Errors
/// The errors of the calls.
pub fn run(session: &Session) -> Result<Vec<Order>, Error> {
    let (comm, lineup) = (&session.comm, &session.lineup);
    comm.set_algorithm(Algorithm::Auto)?;
    comm.set_order(FoldOrder::Rank)?;
    let send: Vec<f32> = (0..ELEMENTS).map(|index| value(comm.rank(), index)).collect();
    let mut receive = vec![0.0f32; ELEMENTS];
    let order = |(plan, place): &Plan| {
        let start_ns = lineup.agree_on_start_ns()?;
        lineup.wait_until(start_ns + STAGGER_NS * place(comm.rank(), comm.size()) as i64);
        let arrival_ns = now_ns();
        comm.all_reduce_into(&send, &mut receive, Op::Sum)?;
        // Numbers of ranks travel as i64; a hash keeps its bits.
        let all = lineup.gather(&[arrival_ns, hash(&receive) as i64])?;
        let arrived = (0..comm.size()).sorted_by_key(|rank| all[2 * rank]).collect();
        Ok(Order { plan, arrived, hashes: all.iter().skip(1).step_by(2).map(|hash| *hash as u64).collect() })
    };
    PLANS.iter().map(order).collect()
}

/// Values of mixed sizes, so that sums in another order would round differently.
fn value(rank: usize, index: usize) -> f32 {
    let draw = mix(mix(rank as u64) ^ index as u64);
    ((draw >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * f32::from(1u16 << (draw & 15))
}

fn hash(values: &[f32]) -> u64 {
    values.iter().fold(0, |hash, value| mix(hash ^ u64::from(value.to_bits())))
}

/// Returns true if all ranks had the same result in all orders.
pub fn are_equal(orders: &[Order]) -> bool {
    orders.iter().flat_map(|order| &order.hashes).all_equal()
}

/// The orders with their hashes.
pub fn text(orders: &[Order], ranks: usize) -> String {
    let rows = orders.iter().map(|Order { plan, arrived, hashes }| {
        let hashes = match hashes.iter().all_equal_value() {
            Ok(hash) => format!("{hash:016x} on all ranks"),
            Err(_) => hashes.iter().map(|hash| format!("{hash:016x}")).join(" "),
        };
        vec![plan.to_string(), arrived.iter().join(" "), hashes]
    });
    let verdict = match (are_equal(orders), ranks) {
        (false, _) => "the bits differ",
        (true, 2) => "equal, as two addends are in any order; three ranks and more are folded by rank for it",
        (true, _) => "equal",
    };
    format!(
        "\nBits: the same vectors of 64Ki in three arrival orders, folded by rank.\n\n{}\n\n{verdict}\n",
        table(&["arrivals planned", "ranks as they came", "hash of the result"], rows.collect())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_order_of_folding_gives_another_hash() {
        // Otherwise equal hashes would show nothing.
        let sum = |ranks: [usize; 3]| -> Vec<f32> {
            (0..ELEMENTS).map(|index| ranks.iter().fold(0.0, |sum, rank| sum + value(*rank, index))).collect()
        };
        assert_ne!(hash(&sum([0, 1, 2])), hash(&sum([2, 1, 0])));
        assert_eq!(hash(&sum([0, 1, 2])), hash(&sum([0, 1, 2])));
    }

    #[test]
    fn one_rank_with_other_bits_is_seen() {
        let order = |hashes: [u64; 2]| Order { plan: "at once", arrived: vec![1, 0], hashes: hashes.into() };
        let same = [order([7, 7]), order([7, 7])];
        assert!(are_equal(&same) && text(&same, 3).ends_with("\nequal\n"), "{}", text(&same, 3));
        let other = [order([7, 7]), order([7, 8])];
        assert!(!are_equal(&other) && text(&other, 3).contains("0000000000000008"), "{}", text(&other, 3));
        assert!(!are_equal(&[order([7, 7]), order([8, 8])]));
    }
}
