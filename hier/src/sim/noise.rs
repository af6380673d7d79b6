//! Reproducible noise: a draw depends on its message, never on the order of the draws.

/// One step of the SplitMix64 generator (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators",
/// OOPSLA 2014), here as a hash: every bit of the input reaches every bit of the result.
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// An exponentially distributed delay added to every message.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Jitter {
    /// Mean delay; 0 is no jitter.
    pub mean_s: f64,
    /// Chooses the draws.
    pub seed: u64,
}

impl Jitter {
    /// The delay of the `nth` message from one rank to another in a round, in seconds.
    pub fn delay_s(&self, round: i32, from: usize, to: usize, nth: usize) -> f64 {
        if self.mean_s == 0.0 {
            return 0.0;
        }
        let ends = ((from as u64) << 32) ^ to as u64;
        let when = ((round as u64) << 32) ^ nth as u64;
        let draw = mix(mix(mix(self.seed) ^ ends) ^ when);
        // in (0, 1], so that the logarithm is finite
        let unit = ((draw >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -self.mean_s * unit.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_have_the_mean_asked_for_and_differ_by_message() {
        let jitter = Jitter { mean_s: 2.0, seed: 7 };
        let all: Vec<f64> = (0..20_000).map(|i| jitter.delay_s(i / 100, i as usize % 10, i as usize % 7, 0)).collect();
        assert!(all.iter().all(|d| d.is_finite() && *d >= 0.0));
        let distinct: std::collections::BTreeSet<u64> =
            (0..100).map(|n| jitter.delay_s(0, 1, 2, n).to_bits()).collect();
        assert_eq!(distinct.len(), 100);
        let many: f64 = (0..50_000).map(|n| jitter.delay_s(3, n, 2, 0)).sum::<f64>() / 50_000.0;
        assert!((many - 2.0).abs() < 0.05, "{many}");
        assert_ne!(jitter.delay_s(0, 1, 2, 0), jitter.delay_s(0, 2, 1, 0));
        assert_eq!(Jitter::default().delay_s(0, 1, 2, 0), 0.0);
    }
}
