//! Memory for copies of blocks: kept by each thread for its next calls, since fresh pages cost more than the copies.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Largest memory that a thread keeps.
const LARGEST_KEPT: usize = 64 << 20;
/// A call has two sides, and a fold by MPI its operands.
const MOST_KEPT: usize = 3;

/// Memory that is taken again may be so many times as long as needed; less than so many words counts as these.
const MOST_TIMES: usize = 4;
const LEAST_WORDS: usize = 256;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u128>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of any value, aligned for any element, given back to the thread when they are dropped.
pub struct Scratch {
    memory: Vec<u128>,
    bytes: usize,
}

impl Scratch {
    pub fn new(bytes: usize) -> Scratch {
        let words = bytes.div_ceil(size_of::<u128>());
        let mut memory = KEPT.with_borrow_mut(|kept| take(kept, words)).unwrap_or_default();
        if memory.len() < words {
            memory.resize(words, 0);
        }
        Scratch { memory, bytes }
    }
}

/// The longest memory that is not much too long: a call that does not block may have it for as long as the program runs.
fn take(kept: &mut Vec<Vec<u128>>, words: usize) -> Option<Vec<u128>> {
    let suits = (0..kept.len()).filter(|at| kept[*at].len() <= MOST_TIMES * words.max(LEAST_WORDS));
    let longest = suits.max_by_key(|at| kept[*at].len())?;
    Some(kept.swap_remove(longest))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        // An error: the thread ends, and its memory with it.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if size_of_val(&memory[..]) <= LARGEST_KEPT && kept.len() < MOST_KEPT {
                kept.push(memory);
            }
        });
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.memory)[..self.bytes]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.memory)[..self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_the_memory_of_three_and_none_that_is_very_large() {
        let mut first = Scratch::new(100);
        first.fill(7);
        let at = first.as_ptr();
        drop(first);
        let again = Scratch::new(40);
        assert_eq!((again.as_ptr(), again.len()), (at, 40));
        drop((again, Scratch::new(1 << 20)));
        let (small, large) = (Scratch::new(40), Scratch::new((1 << 20) - 7));
        assert!(small.as_ptr() == at && large.memory.len() == (1 << 20) / size_of::<u128>());
        let again = small;
        let others = [Scratch::new(1), Scratch::new(2), Scratch::new(3), Scratch::new(LARGEST_KEPT + 1)];
        drop((others, again, large));
        KEPT.with_borrow(|kept| assert!(kept.len() == MOST_KEPT && kept.iter().all(|memory| memory.len() < 1 << 20)));
    }
}
