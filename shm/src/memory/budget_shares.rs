//! Division of the remaining budget among the groups of a split.

use super::grant::Claim;

/// A group gets at most one of this many parts of the remaining budget; the groups of one call at most `TOGETHER` parts.
const PART: u64 = 32;
const TOGETHER: u64 = 16;

/// Divides the `left` bytes among groups; `None` when the groups need more.
pub(super) fn shares(claims: &[Claim], left: u64) -> Option<Vec<u64>> {
    let least = claims.iter().try_fold(0, |sum: u64, claim| sum.checked_add(claim.least)).filter(|sum| *sum <= left)?;
    let all = left / PART * TOGETHER.min(claims.len() as u64);
    let members = claims.iter().map(|claim| claim.members.len() as u64).sum::<u64>().max(1);
    let share = |claim: &Claim| {
        let even = (u128::from(all) * claim.members.len() as u128 / u128::from(members)) as u64;
        (even / 4096 * 4096).min(claim.most).max(claim.least)
    };
    let shares: Vec<u64> = claims.iter().map(share).collect();
    match shares.iter().try_fold(0u64, |sum, share| sum.checked_add(*share)) {
        Some(sum) if sum <= left.max(least) => Some(shares),
        _ => Some(claims.iter().map(|claim| claim.least).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(members: usize, least: u64, most: u64) -> Claim {
        Claim { members: (0..members).collect(), lines: 0, least, most }
    }

    #[test]
    fn a_share_is_a_part_of_what_is_left_within_what_is_needed_and_usable() {
        let mi = 1 << 20;
        assert_eq!(shares(&[claim(2, 1, 1 << 40)], 320 * mi), Some(vec![10 * mi]));
        assert_eq!(shares(&[claim(2, 1, 3 * mi)], 320 * mi), Some(vec![3 * mi]));
        assert_eq!(shares(&[claim(2, 20 * mi, 1 << 40)], 320 * mi), Some(vec![20 * mi]));
        // by their members, together half of what is left
        let many: Vec<_> = (0..20).map(|i| claim(if i == 0 { 21 } else { 1 }, 1, 1 << 40)).collect();
        let given = shares(&many, 160 * mi).unwrap();
        assert_eq!((given[0], given[19]), (42 * mi, 2 * mi));
        assert_eq!(given.iter().sum::<u64>(), 80 * mi);
    }

    #[test]
    fn the_least_is_given_when_shares_do_not_fit_and_nothing_when_that_does_not() {
        // the first one's share and the least of the other are more than there is
        let claims = [claim(1000, 4096, 1 << 40), claim(1, 190_000, 1 << 40)];
        assert_eq!(shares(&claims, 205_000), Some(vec![12288, 190_000]));
        assert_eq!(shares(&claims, 202_000), Some(vec![4096, 190_000]));
        assert_eq!(shares(&claims, 194_096), Some(vec![4096, 190_000]));
        assert_eq!(shares(&claims, 194_095), None);
        assert_eq!(shares(&[claim(1, u64::MAX, u64::MAX), claim(1, 2, 2)], u64::MAX), None);
    }

    /// The budget is kept whatever groups are made.
    #[test]
    fn the_budget_lasts_for_many_groups() {
        let least = 100 << 10;
        let (mut left, mut groups) = (400u64 << 20, 0);
        while let Some(given) = shares(&[claim(2, least, 134 << 20)], left) {
            assert!(given[0] >= least && given[0] <= left);
            left -= given[0];
            groups += 1;
        }
        assert!(groups > 150 && left < least, "{groups} groups, {left} bytes left");
    }
}
