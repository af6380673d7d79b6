//! Element types, operators and orders: the words of a call that every layer shares. Data only, no arithmetic.

/// Scalar type of the elements of a buffer. The discriminant is part of the call signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum DType {
    I32 = 1,
    I64 = 2,
    U32 = 3,
    U64 = 4,
    F32 = 5,
    F64 = 6,
}

/// Reduction operator. The discriminant is part of the call signature.
///
/// Integers wrap. A floating-point fold that yields a NaN yields the canonical quiet NaN, minimum and maximum
/// propagate NaN and order -0 below +0, so every operator is commutative bit for bit; only floating-point sum and
/// product depend on the order of folding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Op {
    Sum = 1,
    Product = 2,
    Min = 3,
    Max = 4,
}

/// The order in which contributions are folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum FoldOrder {
    /// As they come: fastest; bits equal on all ranks, not from run to run for inexact operators.
    #[default]
    Arrival = 0,
    /// By rank: the same bits in every run, still starting early on the prefix of ranks that are there.
    Rank = 1,
}

impl DType {
    /// Every type, in discriminant order.
    pub const ALL: [DType; 6] = [DType::I32, DType::I64, DType::U32, DType::U64, DType::F32, DType::F64];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    /// Name as printed in reports (`f32`).
    pub const fn name(self) -> &'static str {
        match self {
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }
}

impl Op {
    /// Every operator, in discriminant order.
    pub const ALL: [Op; 4] = [Op::Sum, Op::Product, Op::Min, Op::Max];

    /// Name as printed in reports (`sum`).
    pub const fn name(self) -> &'static str {
        match self {
            Op::Sum => "sum",
            Op::Product => "product",
            Op::Min => "min",
            Op::Max => "max",
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type whose values can be reduced.
pub trait Element: Copy + Send + Sync + PartialEq + std::fmt::Debug + sealed::Sealed + 'static {
    /// Its tag.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty => $d:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$d;
        }
    )*};
}
elements!(i32 => I32, i64 => I64, u32 => U32, u64 => U64, f32 => F32, f64 => F64);
