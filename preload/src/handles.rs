//! Hash tables from the handles of predefined types and operators to earlybird's types and operators.

use crate::abi::{self, Handle};
use earlybird::{DType, Op};
use strum::FromRepr;

/// A hash table with open addressing that is filled once and never full.
struct HandleMap<V> {
    cells: Vec<Option<(Handle, V)>>,
}

/// Cells of a table, several times the number of predefined handles of a kind.
const CELLS: usize = 512;

/// Returns the cell, of `cells`, a power of two, at which the search for a handle begins.
#[inline]
pub fn first_cell(handle: Handle, cells: usize) -> usize {
    ((handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - cells.trailing_zeros())) as usize
}

impl<V: Copy> HandleMap<V> {
    fn new(entries: impl Iterator<Item = (Handle, V)>) -> Self {
        let mut cells = vec![None; CELLS];
        for (handle, value) in entries {
            let mut at = first_cell(handle, CELLS);
            while cells[at].is_some_and(|(known, _)| known != handle) {
                at = (at + 1) % CELLS;
            }
            // Of two names of one handle, the first is more specific.
            cells[at].get_or_insert((handle, value));
        }
        HandleMap { cells }
    }

    #[inline]
    fn find(&self, handle: Handle) -> Option<V> {
        let mut at = first_cell(handle, CELLS);
        while let Some((known, value)) = self.cells[at] {
            if known == handle {
                return Some(value);
            }
            at = (at + 1) % CELLS;
        }
        None
    }
}

/// The layout of an element in the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementLayout {
    /// The same as earlybird's.
    Same,
    /// A value of eight bytes, an `int`, a gap of four bytes: `MPI_DOUBLE_INT`, `MPI_LONG_INT`.
    WideInt,
    /// A `short`, a gap of two bytes, an `int`.
    ShortInt,
}

/// A predefined type.
#[derive(Debug, Clone, Copy)]
pub struct PredefinedType {
    /// Bytes of its signature.
    pub bytes: usize,
    /// True if elements are contiguous, without gaps.
    pub is_dense: bool,
    /// The type that reductions use.
    reduced: Option<DType>,
    operators: AllowedOps,
    pub layout: ElementLayout,
}

/// The operators that MPI allows for a type, among those of its representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
enum AllowedOps {
    All,
    NotLogical,
    Bitwise,
    Logical,
    /// Real numbers that only MPI folds.
    MpiOnlyReal,
    MpiOnlyComplex,
    MpiOnlyPair,
}

/// The kind of an operator's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    Predefined(Op),
    /// Predefined for one-sided calls only.
    OneSided,
    User,
}

/// A predefined type with a predefined operator that earlybird supports for it.
#[derive(Debug, Clone, Copy)]
pub struct TypeOp {
    pub dtype: PredefinedType,
    /// The type that the reduction uses.
    pub reduced: DType,
    pub op: Op,
}

/// The tables of all predefined handles.
pub struct PredefinedHandles {
    types: HandleMap<PredefinedType>,
    ops: HandleMap<Option<Op>>,
    pub type_ops: Box<TypeOpTable>,
}

/// Cells of the table of pairs, several times the number of pairs.
const TYPE_OP_CELLS: usize = 2048;

/// A pair of type and operator with its handles, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct TypeOpCell(Option<((Handle, Handle), TypeOp)>);

/// The table of pairs, which answers all questions of a common reduction in one search.
pub struct TypeOpTable([TypeOpCell; TYPE_OP_CELLS]);

/// Returns the cell at which the search for a pair begins.
#[inline]
#[allow(clippy::useless_conversion)] // a handle is as wide as MPI makes it
fn type_op_cell(dtype: Handle, op: Handle) -> usize {
    let mixed = (dtype as u64).rotate_left(20) ^ op as u64;
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TYPE_OP_CELLS.trailing_zeros())) as usize
}

impl TypeOpTable {
    fn empty() -> Box<TypeOpTable> {
        let cells: Box<[TypeOpCell]> = vec![TypeOpCell(None); TYPE_OP_CELLS].into();
        let cells: Box<[TypeOpCell; TYPE_OP_CELLS]> =
            cells.try_into().unwrap_or_else(|_| unreachable!("the length is the number of cells"));
        Box::new(TypeOpTable(*cells))
    }

    fn insert(&mut self, dtype: Handle, op: Handle, pair: TypeOp) {
        let mut at = type_op_cell(dtype, op);
        while self.0[at].0.is_some_and(|(handles, _)| handles != (dtype, op)) {
            at = (at + 1) % TYPE_OP_CELLS;
        }
        self.0[at] = TypeOpCell(Some(((dtype, op), pair)));
    }

    /// Returns a predefined type and operator, if earlybird supports the pair.
    #[inline(always)]
    pub fn find(&self, dtype: Handle, op: Handle) -> Option<&TypeOp> {
        let at = type_op_cell(dtype, op);
        match &self.0[at].0 {
            Some((handles, pair)) if *handles == (dtype, op) => Some(pair),
            _ => self.search(at, dtype, op),
        }
    }

    #[cold]
    fn search(&self, mut at: usize, dtype: Handle, op: Handle) -> Option<&TypeOp> {
        while let Some((handles, pair)) = &self.0[at].0 {
            if *handles == (dtype, op) {
                return Some(pair);
            }
            at = (at + 1) % TYPE_OP_CELLS;
        }
        None
    }
}

impl PredefinedHandles {
    /// Builds the tables from what MPI, which must be initialized, says of every type.
    pub fn new() -> Self {
        let types = abi::types().iter().filter_map(|entry| {
            let bytes = abi::type_size(entry.handle)?;
            let (lower, extent) = abi::extent(entry.handle)?;
            let layout = [ElementLayout::Same, ElementLayout::WideInt, ElementLayout::ShortInt][entry.layout as usize];
            let operators = AllowedOps::from_repr(entry.operators as usize)?;
            let dtype = DType::ALL.into_iter().find(|dtype| *dtype as i32 == entry.dtype);
            // Options of a Fortran compiler may change the sizes that `abi.c` assumes.
            let fits = |dtype: &DType| layout != ElementLayout::Same || dtype.size() == bytes;
            let (reduced, is_dense) = (dtype.filter(fits), lower == 0 && extent == bytes as isize);
            Some((entry.handle, PredefinedType { bytes, is_dense, reduced, operators, layout }))
        });
        let ops = abi::ops().iter();
        let ops = ops.map(|entry| (entry.handle, Op::ALL.into_iter().find(|op| *op as i32 == entry.op)));
        let mut handles = PredefinedHandles {
            types: HandleMap::new(types),
            ops: HandleMap::new(ops),
            type_ops: TypeOpTable::empty(),
        };
        for dtype in abi::types() {
            for op in abi::ops() {
                handles.insert_type_op(dtype.handle, op.handle);
            }
        }
        handles
    }

    fn insert_type_op(&mut self, dtype: Handle, op: Handle) {
        let (Some(predefined), OpKind::Predefined(known_op)) = (self.dtype(dtype), self.op(op)) else { return };
        let Some(reduced) = predefined.dtype_for(known_op) else { return };
        self.type_ops.insert(dtype, op, TypeOp { dtype: predefined, reduced, op: known_op });
    }

    #[inline]
    pub fn dtype(&self, handle: Handle) -> Option<PredefinedType> {
        self.types.find(handle)
    }

    #[inline]
    pub fn op(&self, handle: Handle) -> OpKind {
        match self.ops.find(handle) {
            Some(Some(op)) => OpKind::Predefined(op),
            Some(None) => OpKind::OneSided,
            None => OpKind::User,
        }
    }
}

impl PredefinedType {
    /// Returns the type that reductions with `op` use, if both MPI and earlybird support the pair.
    #[inline]
    pub fn dtype_for(&self, op: Op) -> Option<DType> {
        let dtype = self.reduced?;
        let bitwise = matches!(op, Op::BitAnd | Op::BitOr | Op::BitXor);
        let logical = matches!(op, Op::LogicalAnd | Op::LogicalOr | Op::LogicalXor);
        let allowed = match self.operators {
            AllowedOps::All => true,
            AllowedOps::NotLogical => !logical,
            AllowedOps::Bitwise => bitwise,
            AllowedOps::Logical => logical,
            AllowedOps::MpiOnlyReal | AllowedOps::MpiOnlyComplex | AllowedOps::MpiOnlyPair => false,
        };
        (allowed && dtype.has(op)).then_some(dtype)
    }

    /// Returns whether MPI supports `op` for this type and earlybird does not.
    pub fn is_folded_by_mpi(&self, op: Op) -> bool {
        let (arithmetic, order) = (matches!(op, Op::Sum | Op::Product), matches!(op, Op::Min | Op::Max));
        match self.operators {
            AllowedOps::MpiOnlyReal => arithmetic || order,
            AllowedOps::MpiOnlyComplex => arithmetic,
            AllowedOps::MpiOnlyPair => matches!(op, Op::MinIndex | Op::MaxIndex),
            AllowedOps::All | AllowedOps::NotLogical | AllowedOps::Bitwise | AllowedOps::Logical => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_handle_is_found_and_no_other() {
        // Close together, as the addresses of a table in a library are.
        let map = HandleMap::new((0..200).map(|i| (0x4c00_0000 + 8 * i as Handle, i)));
        for i in 0..200 {
            assert_eq!(map.find(0x4c00_0000 + 8 * i as Handle), Some(i));
        }
        assert_eq!((map.find(0x4c00_0001), map.find(0)), (None, None));
    }

    #[test]
    fn a_type_has_the_operators_that_mpi_allows() {
        let of = |dtype, operators| PredefinedType {
            bytes: 4,
            is_dense: true,
            reduced: Some(dtype),
            operators,
            layout: ElementLayout::Same,
        };
        let integer = of(DType::I32, AllowedOps::NotLogical);
        assert_eq!(integer.dtype_for(Op::Sum), Some(DType::I32));
        assert_eq!((integer.dtype_for(Op::LogicalOr), integer.dtype_for(Op::MinIndex)), (None, None));
        let logical = of(DType::I32, AllowedOps::Logical);
        assert_eq!((logical.dtype_for(Op::LogicalOr), logical.dtype_for(Op::Sum)), (Some(DType::I32), None));
        let bits = of(DType::U8, AllowedOps::Bitwise);
        assert_eq!((bits.dtype_for(Op::BitXor), bits.dtype_for(Op::Max)), (Some(DType::U8), None));
        assert_eq!(of(DType::F32, AllowedOps::All).dtype_for(Op::BitAnd), None);
        let long_double = PredefinedType { reduced: None, ..of(DType::F64, AllowedOps::MpiOnlyReal) };
        assert!(long_double.is_folded_by_mpi(Op::Max) && long_double.dtype_for(Op::Max).is_none());
        assert!(!long_double.is_folded_by_mpi(Op::BitAnd) && !integer.is_folded_by_mpi(Op::Sum));
        let pair = PredefinedType { operators: AllowedOps::MpiOnlyPair, ..long_double };
        assert!(pair.is_folded_by_mpi(Op::MinIndex) && !pair.is_folded_by_mpi(Op::Sum));
        let complex = PredefinedType { operators: AllowedOps::MpiOnlyComplex, ..long_double };
        assert!(complex.is_folded_by_mpi(Op::Product) && !complex.is_folded_by_mpi(Op::Min));
    }
}
