//! Products of cyclic groups, their elements numbered in mixed radix.

/// Z_{q₁} × … × Z_{q_k}, the first factor the most significant digit.
#[derive(Debug, Clone)]
pub(super) struct Group {
    factors: Vec<usize>,
}

impl Group {
    pub(super) fn new(factors: Vec<usize>) -> Self {
        Self { factors }
    }

    pub(super) fn size(&self) -> usize {
        self.factors.iter().product()
    }

    pub(super) fn digits(&self) -> usize {
        self.factors.len()
    }

    /// Number of values of digit `j`.
    pub(super) fn factor(&self, j: usize) -> usize {
        self.factors[j]
    }

    /// Product of the factors after factor `j`: the weight of its digit.
    pub(super) fn weight(&self, j: usize) -> usize {
        self.factors[j + 1..].iter().product()
    }

    pub(super) fn add(&self, a: usize, b: usize) -> usize {
        self.digitwise(a, b, |x, y, q| (x + y) % q)
    }

    pub(super) fn sub(&self, a: usize, b: usize) -> usize {
        self.digitwise(a, b, |x, y, q| (x + q - y) % q)
    }

    fn digitwise(&self, mut a: usize, mut b: usize, op: impl Fn(usize, usize, usize) -> usize) -> usize {
        let (mut result, mut weight) = (0, 1);
        for q in self.factors.iter().rev() {
            result += op(a % q, b % q, *q) * weight;
            (a, b, weight) = (a / q, b / q, weight * q);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtraction_undoes_addition_and_xor_is_its_own_inverse() {
        let g = Group::new(vec![4, 3]);
        for a in 0..12 {
            for b in 0..12 {
                assert_eq!(g.sub(g.add(a, b), b), a);
            }
        }
        let x = Group::new(vec![2, 2, 2]);
        assert_eq!((x.add(5, 3), x.sub(5, 3)), (6, 6));
    }
}
