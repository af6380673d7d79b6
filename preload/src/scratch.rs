//! Memory for copies of blocks: kept by each thread for its next call, since fresh pages cost more than the copies.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Largest memory that a thread keeps.
const LARGEST_KEPT: usize = 64 << 20;
/// A call has two sides.
const MOST_KEPT: usize = 2;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of any value, given back to the thread when they are dropped.
pub struct Scratch {
    memory: Vec<u8>,
    bytes: usize,
}

impl Scratch {
    pub fn new(bytes: usize) -> Scratch {
        let mut memory = KEPT.with_borrow_mut(|kept| kept.pop()).unwrap_or_default();
        if memory.len() < bytes {
            memory.resize(bytes, 0);
        }
        Scratch { memory, bytes }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        // An error: the thread ends, and its memory with it.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if memory.len() <= LARGEST_KEPT && kept.len() < MOST_KEPT {
                kept.push(memory);
            }
        });
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_the_memory_of_two_and_none_that_is_very_large() {
        let mut first = Scratch::new(100);
        first.fill(7);
        let at = first.as_ptr();
        drop(first);
        let again = Scratch::new(40);
        assert_eq!((again.as_ptr(), again.len()), (at, 40));
        let others = [Scratch::new(1), Scratch::new(2), Scratch::new(LARGEST_KEPT + 1)];
        drop((others, again));
        KEPT.with_borrow(|kept| assert!(kept.len() == MOST_KEPT && kept.iter().all(|memory| memory.len() < 1 << 20)));
    }
}
