//! From handles of predefined types and operators to earlybird's: tables made once, found by hashing.

use crate::abi::{self, Handle};
use earlybird::{DType, Op};

/// A table that is made once: open addressing, never full.
struct Map<V> {
    cells: Vec<Option<(Handle, V)>>,
}

/// Cells of a table: several times as many as MPI has predefined handles of a kind.
const CELLS: usize = 512;

/// Where the search for a handle begins, of `cells` places, a power of two.
#[inline]
pub fn place(handle: Handle, cells: usize) -> usize {
    ((handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - cells.trailing_zeros())) as usize
}

impl<V: Copy> Map<V> {
    fn of(entries: impl Iterator<Item = (Handle, V)>) -> Self {
        let mut cells = vec![None; CELLS];
        for (handle, value) in entries {
            let mut at = place(handle, CELLS);
            while cells[at].is_some_and(|(known, _)| known != handle) {
                at = (at + 1) % CELLS;
            }
            // Two names of one handle: the first says more.
            cells[at].get_or_insert((handle, value));
        }
        Map { cells }
    }

    #[inline]
    fn find(&self, handle: Handle) -> Option<V> {
        let mut at = place(handle, CELLS);
        while let Some((known, value)) = self.cells[at] {
            if known == handle {
                return Some(value);
            }
            at = (at + 1) % CELLS;
        }
        None
    }
}

/// How an element lies in the user's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// As earlybird's.
    Plain,
    /// Eight bytes of value, an `int`, a gap of four bytes: `MPI_DOUBLE_INT`, `MPI_LONG_INT`.
    WideInt,
    /// A `short`, a gap of two bytes, an `int`.
    ShortInt,
}

/// A predefined type.
#[derive(Debug, Clone, Copy)]
pub struct Type {
    /// Bytes of its signature.
    pub bytes: usize,
    /// Whether elements lie side by side without gaps.
    pub dense: bool,
    /// What it is reduced as.
    reduced: Option<DType>,
    operators: Operators,
    pub shape: Shape,
}

/// The operators that MPI has for a type, among those of its representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operators {
    All,
    NotLogical,
    Bitwise,
    Logical,
    /// Of a type that only MPI folds.
    MpisReal,
    MpisComplex,
    MpisPair,
}

impl Operators {
    const ALL: [Operators; 7] = [
        Operators::All,
        Operators::NotLogical,
        Operators::Bitwise,
        Operators::Logical,
        Operators::MpisReal,
        Operators::MpisComplex,
        Operators::MpisPair,
    ];
}

/// What an operator's handle is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Predefined(Op),
    /// Predefined, for one-sided calls only.
    Other,
    Users,
}

/// A predefined type and operator that earlybird folds itself.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    pub known: Type,
    /// As what the type is reduced.
    pub reduced: DType,
    pub op: Op,
}

/// All predefined handles.
pub struct Handles {
    types: Map<Type>,
    ops: Map<Option<Op>>,
    pub pairs: Box<Pairs>,
}

/// Cells for pairs: several times as many as there are.
const PAIRS: usize = 2048;

/// A pair under its handles; never in two cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Cell(Option<((Handle, Handle), Pair)>);

/// What most reductions want to know, found at once.
pub struct Pairs([Cell; PAIRS]);

/// Where the search for a pair begins.
#[inline]
#[allow(clippy::useless_conversion)] // a handle is as wide as MPI makes it
fn place_of_pair(dtype: Handle, op: Handle) -> usize {
    let mixed = (dtype as u64).rotate_left(20) ^ op as u64;
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PAIRS.trailing_zeros())) as usize
}

impl Pairs {
    fn none() -> Box<Pairs> {
        let cells: Box<[Cell]> = vec![Cell(None); PAIRS].into();
        let cells: Box<[Cell; PAIRS]> = cells.try_into().unwrap_or_else(|_| unreachable!("as many as there are cells"));
        Box::new(Pairs(*cells))
    }

    fn keep(&mut self, dtype: Handle, op: Handle, pair: Pair) {
        let mut at = place_of_pair(dtype, op);
        while self.0[at].0.is_some_and(|(handles, _)| handles != (dtype, op)) {
            at = (at + 1) % PAIRS;
        }
        self.0[at] = Cell(Some(((dtype, op), pair)));
    }

    /// A predefined type and operator, if earlybird folds them.
    #[inline(always)]
    pub fn find(&self, dtype: Handle, op: Handle) -> Option<&Pair> {
        let at = place_of_pair(dtype, op);
        match &self.0[at].0 {
            Some((handles, pair)) if *handles == (dtype, op) => Some(pair),
            _ => self.search(at, dtype, op),
        }
    }

    #[cold]
    fn search(&self, mut at: usize, dtype: Handle, op: Handle) -> Option<&Pair> {
        while let Some((handles, pair)) = &self.0[at].0 {
            if *handles == (dtype, op) {
                return Some(pair);
            }
            at = (at + 1) % PAIRS;
        }
        None
    }
}

impl Handles {
    /// Asks MPI, which must be initialized, about every type.
    pub fn ask() -> Self {
        let types = abi::types().iter().filter_map(|entry| {
            let bytes = abi::type_size(entry.handle)?;
            let (lower, extent) = abi::extent(entry.handle)?;
            let shape = [Shape::Plain, Shape::WideInt, Shape::ShortInt][entry.shape as usize];
            let operators = Operators::ALL[entry.operators as usize];
            let dtype = DType::ALL.into_iter().find(|dtype| *dtype as i32 == entry.dtype);
            // A Fortran compiler may have been told other sizes than those that `abi.c` assumes.
            let fits = |dtype: &DType| shape != Shape::Plain || dtype.size() == bytes;
            let (reduced, dense) = (dtype.filter(fits), lower == 0 && extent == bytes as isize);
            Some((entry.handle, Type { bytes, dense, reduced, operators, shape }))
        });
        let ops = abi::ops().iter();
        let ops = ops.map(|entry| (entry.handle, Op::ALL.into_iter().find(|op| *op as i32 == entry.op)));
        let mut handles = Handles { types: Map::of(types), ops: Map::of(ops), pairs: Pairs::none() };
        for dtype in abi::types() {
            for op in abi::ops() {
                handles.keep_pair(dtype.handle, op.handle);
            }
        }
        handles
    }

    fn keep_pair(&mut self, dtype: Handle, op: Handle) {
        let (Some(known), Operator::Predefined(by)) = (self.dtype(dtype), self.op(op)) else { return };
        let Some(reduced) = known.reduced_by(by) else { return };
        self.pairs.keep(dtype, op, Pair { known, reduced, op: by });
    }

    #[inline]
    pub fn dtype(&self, handle: Handle) -> Option<Type> {
        self.types.find(handle)
    }

    #[inline]
    pub fn op(&self, handle: Handle) -> Operator {
        match self.ops.find(handle) {
            Some(Some(op)) => Operator::Predefined(op),
            Some(None) => Operator::Other,
            None => Operator::Users,
        }
    }
}

impl Type {
    /// As what it is reduced by `op`, where MPI and earlybird both have the pair.
    #[inline]
    pub fn reduced_by(&self, op: Op) -> Option<DType> {
        let dtype = self.reduced?;
        let bitwise = matches!(op, Op::BitAnd | Op::BitOr | Op::BitXor);
        let logical = matches!(op, Op::LogicalAnd | Op::LogicalOr | Op::LogicalXor);
        let allowed = match self.operators {
            Operators::All => true,
            Operators::NotLogical => !logical,
            Operators::Bitwise => bitwise,
            Operators::Logical => logical,
            Operators::MpisReal | Operators::MpisComplex | Operators::MpisPair => false,
        };
        (allowed && dtype.has(op)).then_some(dtype)
    }

    /// Whether MPI has `op` for it and earlybird has not.
    pub fn folded_by_mpi(&self, op: Op) -> bool {
        let (arithmetic, order) = (matches!(op, Op::Sum | Op::Product), matches!(op, Op::Min | Op::Max));
        match self.operators {
            Operators::MpisReal => arithmetic || order,
            Operators::MpisComplex => arithmetic,
            Operators::MpisPair => matches!(op, Op::MinIndex | Op::MaxIndex),
            Operators::All | Operators::NotLogical | Operators::Bitwise | Operators::Logical => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_handle_is_found_and_no_other() {
        // All in one corner, as addresses of a library's table are.
        let map = Map::of((0..200).map(|i| (0x4c00_0000 + 8 * i as Handle, i)));
        for i in 0..200 {
            assert_eq!(map.find(0x4c00_0000 + 8 * i as Handle), Some(i));
        }
        assert_eq!((map.find(0x4c00_0001), map.find(0)), (None, None));
    }

    #[test]
    fn a_type_has_the_operators_that_mpi_gives_it() {
        let of =
            |dtype, operators| Type { bytes: 4, dense: true, reduced: Some(dtype), operators, shape: Shape::Plain };
        let integer = of(DType::I32, Operators::NotLogical);
        assert_eq!(integer.reduced_by(Op::Sum), Some(DType::I32));
        assert_eq!((integer.reduced_by(Op::LogicalOr), integer.reduced_by(Op::MinIndex)), (None, None));
        let truth = of(DType::I32, Operators::Logical);
        assert_eq!((truth.reduced_by(Op::LogicalOr), truth.reduced_by(Op::Sum)), (Some(DType::I32), None));
        let bits = of(DType::U8, Operators::Bitwise);
        assert_eq!((bits.reduced_by(Op::BitXor), bits.reduced_by(Op::Max)), (Some(DType::U8), None));
        assert_eq!(of(DType::F32, Operators::All).reduced_by(Op::BitAnd), None);
        let long_double = Type { reduced: None, ..of(DType::F64, Operators::MpisReal) };
        assert!(long_double.folded_by_mpi(Op::Max) && long_double.reduced_by(Op::Max).is_none());
        assert!(!long_double.folded_by_mpi(Op::BitAnd) && !integer.folded_by_mpi(Op::Sum));
        let pair = Type { operators: Operators::MpisPair, ..long_double };
        assert!(pair.folded_by_mpi(Op::MinIndex) && !pair.folded_by_mpi(Op::Sum));
        let complex = Type { operators: Operators::MpisComplex, ..long_double };
        assert!(complex.folded_by_mpi(Op::Product) && !complex.folded_by_mpi(Op::Min));
    }
}
