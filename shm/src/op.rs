//! Element types, operators and orders: the words of a call that every layer shares. Data only, no arithmetic.

use crate::Error;
use std::any::TypeId;
use strum::{IntoStaticStr, VariantArray};

/// Type of the elements of a buffer. The discriminant is part of the call signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[repr(u8)]
pub enum DType {
    /// [`i32`].
    I32 = 1,
    /// [`i64`].
    I64 = 2,
    /// [`u32`].
    U32 = 3,
    /// [`u64`].
    U64 = 4,
    /// [`f32`].
    F32 = 5,
    /// [`f64`].
    F64 = 6,
    /// [`i8`].
    I8 = 7,
    /// [`i16`].
    I16 = 8,
    /// [`u8`].
    U8 = 9,
    /// [`u16`].
    U16 = 10,
    /// `half::f16`.
    F16 = 11,
    /// `half::bf16`.
    BF16 = 12,
    /// `Complex<f32>` of num-complex.
    ComplexF32 = 13,
    /// `Complex<f64>` of num-complex.
    ComplexF64 = 14,
    /// [`bool`].
    Bool = 15,
    /// `Indexed<i32, i32>`.
    IndexedI32 = 16,
    /// `Indexed<i64, i64>`.
    IndexedI64 = 17,
    /// `Indexed<f32, i32>`.
    IndexedF32 = 18,
    /// `Indexed<f64, i64>`.
    IndexedF64 = 19,
}

/// Reduction operator. The discriminant is part of the call signature. `docs/types.md` has the table of which types
/// each exists for; any other pair is [`Error::Unsupported`].
///
/// Integers wrap. A floating-point fold that yields a NaN yields the canonical quiet NaN, minimum and maximum
/// propagate NaN and order -0 below +0, so every operator is commutative bit for bit; only sum, product and average of
/// floats and complex numbers depend on the order of folding. Half types are summed and multiplied in `f32` and
/// rounded once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[repr(u8)]
#[non_exhaustive]
pub enum Op {
    /// The sum.
    Sum = 1,
    /// The product.
    Product = 2,
    /// The smallest value.
    Min = 3,
    /// The largest value.
    Max = 4,
    /// The sum divided by the number of ranks, rounded once more; floats and complex numbers.
    Average = 5,
    /// Bitwise and.
    BitAnd = 6,
    /// Bitwise or.
    BitOr = 7,
    /// Bitwise exclusive or.
    BitXor = 8,
    /// 1 or true if all are non-zero, else 0 or false.
    LogicalAnd = 9,
    /// 1 or true if any is non-zero.
    LogicalOr = 10,
    /// 1 or true if an odd number of them is non-zero.
    LogicalXor = 11,
    /// The smallest value and where it stands; the lowest index among equal values.
    MinIndex = 12,
    /// The largest value and where it stands; the lowest index among equal values.
    MaxIndex = 13,
}

/// The order in which contributions are folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[repr(u8)]
#[non_exhaustive]
pub enum FoldOrder {
    /// In arrival order: fastest; bits equal on all ranks, not from run to run for inexact operators.
    #[default]
    Arrival = 0,
    /// In rank order: the same bits in every run, still starting early on the lowest ranks that have arrived.
    Rank = 1,
}

crate::named_choice!(DType, "type");
crate::named_choice!(Op, "operator");
crate::named_choice!(FoldOrder, "order");

/// A class of types that share their arithmetic.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Integer,
    Float,
    Complex,
    Bool,
    Indexed,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
            DType::ComplexF32 | DType::IndexedI32 | DType::IndexedF32 => 8,
            DType::ComplexF64 | DType::IndexedI64 | DType::IndexedF64 => 16,
        }
    }

    const fn family(self) -> Family {
        match self {
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => Family::Integer,
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => Family::Integer,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Family::Float,
            DType::ComplexF32 | DType::ComplexF64 => Family::Complex,
            DType::Bool => Family::Bool,
            DType::IndexedI32 | DType::IndexedI64 | DType::IndexedF32 | DType::IndexedF64 => Family::Indexed,
        }
    }

    /// Returns whether `op` exists for this type.
    pub const fn has(self, op: Op) -> bool {
        match op {
            Op::Sum | Op::Product => matches!(self.family(), Family::Integer | Family::Float | Family::Complex),
            Op::Min | Op::Max => matches!(self.family(), Family::Integer | Family::Float),
            Op::Average => matches!(self.family(), Family::Float | Family::Complex),
            Op::BitAnd | Op::BitOr | Op::BitXor => matches!(self.family(), Family::Integer | Family::Bool),
            Op::LogicalAnd | Op::LogicalOr | Op::LogicalXor => matches!(self.family(), Family::Integer | Family::Bool),
            Op::MinIndex | Op::MaxIndex => matches!(self.family(), Family::Indexed),
        }
    }

    /// Returns whether the order of folding shows in the bits of this type under `op`.
    pub const fn is_inexact(self, op: Op) -> bool {
        matches!(self.family(), Family::Float | Family::Complex) && matches!(op, Op::Sum | Op::Product | Op::Average)
    }

    /// Checks that `op` exists for this type.
    ///
    /// # Errors
    /// [`Error::Unsupported`], naming the operators of the type and the types of the operator.
    pub fn must_have(self, op: Op) -> Result<(), Error> {
        if self.has(op) {
            return Ok(());
        }
        let list = |names: Vec<&str>| names.join(", ");
        let ops = list(Op::ALL.into_iter().filter(|o| self.has(*o)).map(Op::name).collect());
        let types = list(DType::ALL.into_iter().filter(|d| d.has(op)).map(DType::name).collect());
        Err(Error::Unsupported {
            what: format!("the operator {} on {}", op.name(), self.name()),
            hint: format!("{} has {ops}; {} exists for {types}", self.name(), op.name()),
        })
    }
}

/// The elements of a call: a built-in type, or plain data that only a user's operator understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datatype {
    /// A type that the library can reduce.
    Builtin(DType),
    /// Elements of this many bytes, which only a user's operator understands.
    Opaque(usize),
}

/// The identity of a reduction operator, as ranks compare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpIdentity {
    /// One of the library's.
    Builtin(Op),
    /// A user's operator: its order, and the tag that distinguishes it from the user's others.
    User {
        /// Not commutative.
        ordered: bool,
        /// Below [`OpIdentity::TAGS`].
        tag: u8,
    },
}

impl From<DType> for Datatype {
    fn from(dtype: DType) -> Self {
        Datatype::Builtin(dtype)
    }
}

impl From<Op> for OpIdentity {
    fn from(op: Op) -> Self {
        OpIdentity::Builtin(op)
    }
}

impl Datatype {
    /// Code of every user's type in a signature.
    pub const OPAQUE: u8 = 0xff;

    /// Bytes of one element.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Datatype::Builtin(dtype) => dtype.size(),
            Datatype::Opaque(bytes) => bytes,
        }
    }

    /// Its code in a signature.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            Datatype::Builtin(dtype) => dtype as u8,
            Datatype::Opaque(_) => Datatype::OPAQUE,
        }
    }
}

impl OpIdentity {
    /// Number of tags for users' operators.
    pub const TAGS: u8 = 64;

    /// The code in a signature: users' operators have the highest bit set, the next one means "ordered", the rest is the tag.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            OpIdentity::Builtin(op) => op as u8,
            OpIdentity::User { ordered, tag } => 0x80 | (ordered as u8) << 6 | tag,
        }
    }

    /// The operator with this code in words; `None` if there is none.
    pub fn describe(code: u8) -> Option<String> {
        if code & 0x80 == 0 {
            return Op::ALL.iter().find(|op| **op as u8 == code).map(|op| op.name().to_owned());
        }
        let kind = if code & 0x40 == 0 { "commutative" } else { "ordered" };
        Some(format!("a user's {kind} operator (tag {})", code & 0x3f))
    }
}

/// A value and where it stands, for [`Op::MinIndex`] and [`Op::MaxIndex`]: MPI's pairs for `MINLOC` and `MAXLOC`.
///
/// The index is of the value's width, so that a pair has no padding: `Indexed<f32, i32>` is laid out as
/// `MPI_FLOAT_INT`, `Indexed<i32, i32>` as `MPI_2INT`. Among values that are NaN the lowest index wins, and a NaN wins
/// over every number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(C)]
pub struct Indexed<V, I> {
    /// The value to compare.
    pub value: V,
    /// The index of the value: any number, such as a rank or a position.
    pub index: I,
}

mod sealed {
    pub trait Sealed {}
}

/// A type whose values can be reduced by the operators of [`Op`].
pub trait Element: Copy + Send + Sync + PartialEq + std::fmt::Debug + sealed::Sealed + 'static {
    /// Its tag.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty => $d:ident),* $(,)?) => {
        impl DType {
            /// The tag of `T`, if the library knows the type.
            pub fn of<T: 'static>() -> Option<DType> {
                let known = [$((TypeId::of::<$t>(), DType::$d)),*];
                known.into_iter().find(|(id, _)| *id == TypeId::of::<T>()).map(|(_, dtype)| dtype)
            }
        }
        $(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = {
                assert!(size_of::<$t>() == DType::$d.size());
                DType::$d
            };
        }
        )*
    };
}
elements!(
    i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, f32 => F32, f64 => F64,
    half::f16 => F16, half::bf16 => BF16, num_complex::Complex<f32> => ComplexF32,
    num_complex::Complex<f64> => ComplexF64, bool => Bool, Indexed<i32, i32> => IndexedI32,
    Indexed<i64, i64> => IndexedI64, Indexed<f32, i32> => IndexedF32, Indexed<f64, i64> => IndexedF64,
);

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_different() {
        for (i, dtype) in DType::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, i + 1);
            assert!(DType::ALL[..i].iter().all(|other| other.name() != dtype.name()));
            assert!(dtype.size().is_power_of_two(), "counts are shifts");
        }
        for (i, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, i + 1);
            assert!(Op::ALL[..i].iter().all(|other| other.name() != op.name()));
        }
    }

    #[test]
    fn a_missing_pair_is_refused_with_what_exists() {
        assert_eq!(DType::F32.must_have(Op::Sum), Ok(()));
        let Err(Error::Unsupported { what, hint }) = DType::I32.must_have(Op::Average) else { panic!("accepted") };
        assert_eq!(what, "the operator average on i32");
        assert_eq!(
            hint,
            "i32 has sum, product, min, max, bit-and, bit-or, bit-xor, logical-and, logical-or, logical-xor; \
             average exists for f32, f64, f16, bf16, complex-f32, complex-f64"
        );
        for dtype in DType::ALL {
            assert!(Op::ALL.into_iter().any(|op| dtype.has(op)), "{dtype:?} has no operator");
            assert!(Op::ALL.into_iter().any(|op| !dtype.has(op)), "{dtype:?} has all operators");
        }
    }
}
