//! The types of elements as the buffer protocol writes them: struct formats, with numpy's and PEP 3118's complex numbers and
//! structures.

use earlybird::{DType, Datatype};
use std::ffi::CStr;

/// The formats of the types that the library calculates with. The first one of a type is the one that Python is given; `l` and `L`
/// have the size of the platform's `long`.
const FORMATS: [(DType, &CStr); 24] = [
    (DType::I8, c"b"),
    (DType::I16, c"h"),
    (DType::I32, c"i"),
    (DType::I32, c"l"),
    (DType::I64, c"q"),
    (DType::I64, c"l"),
    (DType::U8, c"B"),
    (DType::U16, c"H"),
    (DType::U32, c"I"),
    (DType::U32, c"L"),
    (DType::U64, c"Q"),
    (DType::U64, c"L"),
    (DType::F16, c"e"),
    (DType::F32, c"f"),
    (DType::F64, c"d"),
    (DType::ComplexF32, c"Zf"),
    (DType::ComplexF64, c"Zd"),
    (DType::Bool, c"?"),
    (DType::IndexedI32, c"T{ii}"),
    (DType::IndexedI64, c"T{qq}"),
    (DType::IndexedI64, c"T{ll}"),
    (DType::IndexedF32, c"T{fi}"),
    (DType::IndexedF64, c"T{dq}"),
    (DType::IndexedF64, c"T{dl}"),
];

/// Returns the datatype of elements of `bytes` bytes in this format. Types that the library cannot calculate with are opaque: they are
/// moved, not reduced.
pub fn datatype(format: &[u8], bytes: usize) -> Option<Datatype> {
    let letters = letters(format);
    let known = FORMATS.iter().find(|(dtype, known)| known.to_bytes() == letters && dtype.size() == bytes);
    (bytes > 0).then(|| known.map_or(Datatype::Opaque(bytes), |(dtype, _)| (*dtype).into()))
}

/// Returns a format of elements of this type; `None` where Python has none, as for structures.
pub fn format(datatype: Datatype) -> Option<&'static CStr> {
    let Datatype::Builtin(dtype) = datatype else { return None };
    let (_, format) = FORMATS.iter().find(|(of, _)| *of == dtype)?;
    (!format.to_bytes().starts_with(b"T")).then_some(*format)
}

/// Returns whether elements in this format are or have references to objects, which mean nothing to another process.
pub fn has_objects(format: &[u8]) -> bool {
    letters(format).contains(&b'O')
}

/// Returns whether some byte is not a valid bool.
pub fn is_no_bool(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| *byte > 1)
}

/// Returns the format without the names of fields and without byte orders, which are this machine's; empty for another's.
fn letters(format: &[u8]) -> Vec<u8> {
    let mut letters = Vec::with_capacity(format.len());
    let mut is_name = false;
    for byte in format {
        match byte {
            b':' => is_name = !is_name,
            _ if is_name => {}
            b'@' | b'=' | b'^' => {}
            b'<' if cfg!(target_endian = "little") => {}
            b'>' | b'!' if cfg!(target_endian = "big") => {}
            b'<' | b'>' | b'!' => return Vec::new(),
            letter => letters.push(*letter),
        }
    }
    letters
}
