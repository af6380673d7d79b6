//! Two operators for tests that look at calls, not at values: a sum of integers, and the token of a barrier.

// every test binary compiles this file and uses only a part of it
#![allow(dead_code)]

use earlybird_hier::OpTraits;
use earlybird_hier::exec::Fold;
use earlybird_hier::plan::Side;

/// The sum of u64 that wraps, under the properties and the number that a test gives it.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    pub traits: OpTraits,
    pub code: u64,
}

impl Fold for Sum {
    fn element_bytes(&self) -> usize {
        8
    }

    fn traits(&self) -> OpTraits {
        self.traits
    }

    fn code(&self) -> u64 {
        self.code
    }

    fn fold(&self, target: &mut [u8], incoming: &[u8], _: Side) {
        let word = bytemuck::pod_read_unaligned::<u64>;
        for (t, i) in target.chunks_exact_mut(8).zip(incoming.chunks_exact(8)) {
            let sum = word(t).wrapping_add(word(i));
            t.copy_from_slice(&sum.to_ne_bytes());
        }
    }
}

/// One byte without meaning, whose arrival is all that counts.
#[derive(Debug, Clone, Copy)]
pub struct Token;

impl Fold for Token {
    fn element_bytes(&self) -> usize {
        1
    }

    fn traits(&self) -> OpTraits {
        OpTraits { commutative: true, exact: true }
    }

    fn is_idempotent(&self) -> bool {
        true
    }

    fn code(&self) -> u64 {
        1
    }

    fn fold(&self, target: &mut [u8], incoming: &[u8], _: Side) {
        target.iter_mut().zip(incoming).for_each(|(t, i)| *t |= i);
    }
}
