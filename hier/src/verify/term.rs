//! Symbolic values of blocks: the ranks whose inputs were combined, their order and the expression tree.
//!
//! Terms are hash-consed, so equal expressions are equal numbers. A term whose operands stand in rank order from some
//! rank on (cyclically) is kept as that interval; any other carries a bit set of its contributors. Beside itself a
//! term has a *shape*: the number of its tree with the two operands of every ⊕ unordered. Two ranks with the same
//! shape compute the same bits, because swapping the operands of one ⊕ changes no rounding.

use std::collections::HashMap;

/// A term's number.
pub(crate) type TermId = u32;

/// The value of a block that was never written.
pub(crate) const UNDEFINED: TermId = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Term {
    start: u32,
    // 0: not an interval in order
    length: u32,
    count: u32,
    shape: u32,
    // offset into `sets`; meaningless for intervals
    set: u32,
}

/// All terms of one run.
#[derive(Debug)]
pub(crate) struct Terms {
    ranks: u32,
    words: usize,
    idempotent: bool,
    terms: Vec<Term>,
    sets: Vec<u64>,
    nodes: HashMap<(TermId, TermId), TermId>,
    shapes: HashMap<(u32, u32), u32>,
    scratch: [Vec<u64>; 2],
}

impl Terms {
    /// One leaf per rank, numbered as the rank. With `idempotent`, repeated contributions do no harm.
    pub(crate) fn new(ranks: usize, idempotent: bool) -> Self {
        let words = ranks.div_ceil(64);
        let leaf = |rank: u32| Term { start: rank, length: 1, count: 1, shape: rank, set: 0 };
        Self {
            ranks: ranks as u32,
            words,
            idempotent,
            terms: (0..ranks as u32).map(leaf).collect(),
            sets: Vec::new(),
            nodes: HashMap::new(),
            shapes: HashMap::new(),
            scratch: [vec![0; words], vec![0; words]],
        }
    }

    fn load(&mut self, which: usize, id: TermId) {
        let term = self.terms[id as usize];
        let words = &mut self.scratch[which];
        if term.length == 0 {
            words.copy_from_slice(&self.sets[term.set as usize..][..self.words]);
            return;
        }
        words.fill(0);
        for i in 0..term.length {
            let rank = (term.start + i) % self.ranks;
            words[rank as usize / 64] |= 1 << (rank % 64);
        }
    }

    /// left ⊕ right, or a rank that would be counted twice.
    pub(crate) fn combine(&mut self, left: TermId, right: TermId) -> Result<TermId, usize> {
        if let Some(id) = self.nodes.get(&(left, right)) {
            return Ok(*id);
        }
        let (a, b) = (self.terms[left as usize], self.terms[right as usize]);
        let adjacent = a.length > 0
            && b.length > 0
            && (a.start + a.length) % self.ranks == b.start
            && a.length + b.length <= self.ranks;
        let mut term = Term { start: a.start, length: a.length + b.length, count: a.count + b.count, shape: 0, set: 0 };
        if !adjacent || self.idempotent {
            self.load(0, left);
            self.load(1, right);
            let common = self.scratch[0].iter().zip(&self.scratch[1]).position(|(x, y)| x & y != 0);
            if let (Some(word), false) = (common, self.idempotent) {
                let bits = self.scratch[0][word] & self.scratch[1][word];
                return Err(word * 64 + bits.trailing_zeros() as usize);
            }
            term.length = 0;
            term.set = self.sets.len() as u32;
            for word in 0..self.words {
                self.sets.push(self.scratch[0][word] | self.scratch[1][word]);
            }
            term.count = self.sets[term.set as usize..].iter().map(|w| w.count_ones()).sum();
        }
        let next = self.ranks + self.shapes.len() as u32;
        term.shape = *self.shapes.entry((a.shape.min(b.shape), a.shape.max(b.shape))).or_insert(next);
        let id = self.terms.len() as TermId;
        self.terms.push(term);
        self.nodes.insert((left, right), id);
        Ok(id)
    }

    /// Number of distinct contributors.
    pub(crate) fn count(&self, id: TermId) -> usize {
        self.terms[id as usize].count as usize
    }

    /// The tree with operands of each ⊕ unordered.
    pub(crate) fn shape(&self, id: TermId) -> u32 {
        self.terms[id as usize].shape
    }

    /// (first rank, length) if the operands stand in cyclic rank order.
    pub(crate) fn interval(&self, id: TermId) -> Option<(usize, usize)> {
        let term = self.terms[id as usize];
        (term.length > 0).then_some((term.start as usize, term.length as usize))
    }

    /// The contributors, ascending.
    pub(crate) fn contributors(&self, id: TermId) -> Vec<usize> {
        let term = self.terms[id as usize];
        let mut ranks: Vec<usize> = if term.length > 0 {
            (0..term.length).map(|i| ((term.start + i) % self.ranks) as usize).collect()
        } else {
            let words = &self.sets[term.set as usize..][..self.words];
            (0..self.ranks as usize).filter(|r| words[r / 64] >> (r % 64) & 1 == 1).collect()
        };
        ranks.sort_unstable();
        ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_grow_only_at_their_ends() {
        let mut t = Terms::new(5, false);
        let ab = t.combine(3, 4).unwrap();
        let abc = t.combine(ab, 0).unwrap();
        assert_eq!(t.interval(abc), Some((3, 3)));
        let swapped = t.combine(0, ab).unwrap();
        assert_eq!(t.interval(swapped), None);
        assert_eq!(t.shape(swapped), t.shape(abc));
        assert_eq!(t.contributors(swapped), [0, 3, 4]);
    }

    #[test]
    fn a_second_contribution_is_named() {
        let mut t = Terms::new(70, false);
        let a = t.combine(68, 2).unwrap();
        let b = t.combine(1, 68).unwrap();
        assert_eq!(t.combine(a, b), Err(68));
        assert_eq!(t.combine(a, a), Err(2));
    }

    #[test]
    fn other_trees_have_other_shapes() {
        let mut t = Terms::new(3, false);
        let left = t.combine(0, 1).and_then(|ab| t.combine(ab, 2)).unwrap();
        let right = t.combine(1, 2).and_then(|bc| t.combine(0, bc)).unwrap();
        assert_eq!((t.interval(left), t.interval(right)), (Some((0, 3)), Some((0, 3))));
        assert_ne!(t.shape(left), t.shape(right));
    }
}
