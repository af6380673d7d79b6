//! Hash tables from the handles of predefined types and operators to earlybird's types and operators.

use crate::abi::{self, Handle};
use earlybird::{DType, Op};
use strum::FromRepr;

/// A key of a table: a handle, or a type and an operator.
pub trait TableKey: Copy + Eq {
    fn mixed(self) -> u64;
}

impl TableKey for Handle {
    #[inline(always)]
    #[allow(clippy::useless_conversion)] // a handle is as wide as MPI makes it
    fn mixed(self) -> u64 {
        self as u64
    }
}

impl TableKey for (Handle, Handle) {
    #[inline(always)]
    fn mixed(self) -> u64 {
        self.0.mixed().rotate_left(20) ^ self.1.mixed()
    }
}

/// Returns the cell, of `cells`, a power of two, at which the search for a key begins.
#[inline(always)]
pub fn first_cell(key: impl TableKey, cells: usize) -> usize {
    (key.mixed().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - cells.trailing_zeros())) as usize
}

/// A key with its value, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Cell<K, V>(Option<(K, V)>);

/// A hash table of predefined handles, with open addressing: filled once, and several times as large as needed.
pub struct HandleTable<K, V, const CELLS: usize>([Cell<K, V>; CELLS]);

impl<K: TableKey, V: Copy, const CELLS: usize> HandleTable<K, V, CELLS> {
    fn new(entries: impl Iterator<Item = (K, V)>) -> Box<Self> {
        let mut table = Box::new(HandleTable([Cell(None); CELLS]));
        for (key, value) in entries {
            let mut at = first_cell(key, CELLS);
            while table.0[at].0.is_some_and(|(known, _)| known != key) {
                at = (at + 1) % CELLS;
            }
            // Of two names of one handle, the first is more specific.
            table.0[at].0.get_or_insert((key, value));
        }
        table
    }

    #[inline(always)]
    pub fn find(&self, key: K) -> Option<&V> {
        let at = first_cell(key, CELLS);
        match &self.0[at].0 {
            Some((known, value)) if *known == key => Some(value),
            _ => self.search(at, key),
        }
    }

    #[cold]
    fn search(&self, mut at: usize, key: K) -> Option<&V> {
        while let Some((known, value)) = &self.0[at].0 {
            if *known == key {
                return Some(value);
            }
            at = (at + 1) % CELLS;
        }
        None
    }
}

/// All pairs of a type and an operator, which answer all questions of a common reduction in one search.
pub type TypeOpTable = HandleTable<(Handle, Handle), TypeOp, 2048>;

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
    types: Box<HandleTable<Handle, PredefinedType, 512>>,
    ops: Box<HandleTable<Handle, Option<Op>, 512>>,
    pub type_ops: Box<TypeOpTable>,
}

impl PredefinedHandles {
    /// Builds the tables from what MPI, which must be initialized, says of every type.
    pub fn new() -> Self {
        let types = HandleTable::new(abi::types().iter().filter_map(|entry| {
            let bytes = abi::type_size(entry.handle)?;
            let (lower, extent) = abi::extent(entry.handle)?;
            let layout = [ElementLayout::Same, ElementLayout::WideInt, ElementLayout::ShortInt][entry.layout as usize];
            let operators = AllowedOps::from_repr(entry.operators as usize)?;
            let dtype = DType::ALL.into_iter().find(|dtype| *dtype as i32 == entry.dtype);
            // Options of a Fortran compiler may change the sizes that `abi.c` assumes.
            let fits = |dtype: &DType| layout != ElementLayout::Same || dtype.size() == bytes;
            let (reduced, is_dense) = (dtype.filter(fits), lower == 0 && extent == bytes as isize);
            Some((entry.handle, PredefinedType { bytes, is_dense, reduced, operators, layout }))
        }));
        let known_op = |entry: &abi::COp| Op::ALL.into_iter().find(|op| *op as i32 == entry.op);
        let ops = HandleTable::new(abi::ops().iter().map(|entry| (entry.handle, known_op(entry))));
        let pairs = abi::types().iter().flat_map(|dtype| abi::ops().iter().map(|op| (dtype.handle, op.handle)));
        let type_ops = HandleTable::new(pairs.filter_map(|(dtype, op)| {
            let (&predefined, known_op) = (types.find(dtype)?, (*ops.find(op)?)?);
            Some(((dtype, op), TypeOp { dtype: predefined, reduced: predefined.dtype_for(known_op)?, op: known_op }))
        }));
        PredefinedHandles { types, ops, type_ops }
    }

    #[inline(always)]
    pub fn dtype(&self, handle: Handle) -> Option<&PredefinedType> {
        self.types.find(handle)
    }

    pub fn op(&self, handle: Handle) -> OpKind {
        match self.ops.find(handle) {
            Some(Some(op)) => OpKind::Predefined(*op),
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
        let map = HandleTable::<_, _, 512>::new((0..200).map(|i| (0x4c00_0000 + 8 * i as Handle, i)));
        for i in 0..200 {
            assert_eq!(map.find(0x4c00_0000 + 8 * i as Handle), Some(&i));
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
