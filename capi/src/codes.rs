//! The numbers of types, operators and orders in C: those of the library, which ranks compare.

use earlybird::{DType, Error, FoldOrder, Op};
use std::ffi::c_int;

/// Converts a name such as `bit-and` to `EB_BIT_AND`.
pub fn c_name(name: &str) -> String {
    format!("EB_{}", name.replace('-', "_").to_uppercase())
}

/// Returns every type with its name in C.
pub fn dtypes() -> Vec<(c_int, String)> {
    DType::ALL.iter().map(|dtype| (*dtype as c_int, c_name(dtype.name()))).collect()
}

/// Returns every operator with its name in C.
pub fn ops() -> Vec<(c_int, String)> {
    Op::ALL.iter().map(|op| (*op as c_int, c_name(op.name()))).collect()
}

/// Returns every order with its name in C.
pub fn orders() -> Vec<(c_int, String)> {
    FoldOrder::ALL.iter().map(|order| (*order as c_int, c_name(&format!("order-{}", order.name())))).collect()
}

/// Returns the value with this number, of values that are numbered from 1 in this order.
#[inline]
fn by_number<T: Copy>(all: &[T], number: c_int) -> Option<T> {
    all.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

/// Returns the type with this number.
#[inline]
pub fn dtype(number: c_int) -> Result<DType, Error> {
    let known = by_number(&DType::ALL, number).filter(|dtype| *dtype as c_int == number);
    known.ok_or_else(|| unknown("type", "eb_type", number, &dtypes()))
}

/// Returns the operator with this number.
#[inline]
pub fn op(number: c_int) -> Result<Op, Error> {
    let known = by_number(&Op::ALL, number).filter(|op| *op as c_int == number);
    known.ok_or_else(|| unknown("operator", "eb_op", number, &ops()))
}

/// Returns the order with this number.
pub fn order(number: c_int) -> Result<FoldOrder, Error> {
    let known = FoldOrder::ALL.into_iter().find(|order| *order as c_int == number);
    known.ok_or_else(|| unknown("order", "eb_order", number, &orders()))
}

#[cold]
fn unknown(what: &str, of: &str, number: c_int, known: &[(c_int, String)]) -> Error {
    let known: Vec<String> = known.iter().map(|(number, name)| format!("{name} ({number})")).collect();
    Error::usage(format!("there is no {what} {number} in {of}; use one of: {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_value() {
        for number in -3..40 {
            let found = dtype(number).map(|found| found as c_int);
            assert_eq!(found.is_ok(), dtypes().iter().any(|(known, _)| *known == number));
            assert!(found.is_err() || found == Ok(number));
            let found = op(number).map(|found| found as c_int);
            assert_eq!(found.is_ok(), ops().iter().any(|(known, _)| *known == number));
            assert!(found.is_err() || found == Ok(number));
            assert_eq!(order(number).is_ok(), orders().iter().any(|(known, _)| *known == number));
        }
    }
}
