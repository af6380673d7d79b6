//! The types of elements as the buffer protocol writes them: struct formats, with numpy's and PEP 3118's complex numbers and
//! structures.

use earlybird::{DType, Datatype};
use std::ffi::CStr;

/// Returns the datatype of elements of `bytes` bytes in this format. Types that the library cannot calculate with are opaque: they are
/// moved, not reduced.
pub fn datatype(format: &[u8], bytes: usize) -> Option<Datatype> {
    if bytes == 0 {
        return None;
    }
    let letters = letters(format);
    let builtin = match (letters.as_slice(), bytes) {
        (b"b", 1) => DType::I8,
        (b"h", 2) => DType::I16,
        (b"i" | b"l", 4) => DType::I32,
        (b"l" | b"q", 8) => DType::I64,
        (b"B", 1) => DType::U8,
        (b"H", 2) => DType::U16,
        (b"I" | b"L", 4) => DType::U32,
        (b"L" | b"Q", 8) => DType::U64,
        (b"e", 2) => DType::F16,
        (b"f", 4) => DType::F32,
        (b"d", 8) => DType::F64,
        (b"Zf", 8) => DType::ComplexF32,
        (b"Zd", 16) => DType::ComplexF64,
        (b"?", 1) => DType::Bool,
        (b"T{ii}", 8) => DType::IndexedI32,
        (b"T{ll}" | b"T{qq}", 16) => DType::IndexedI64,
        (b"T{fi}", 8) => DType::IndexedF32,
        (b"T{dl}" | b"T{dq}", 16) => DType::IndexedF64,
        _ => return Some(Datatype::Opaque(bytes)),
    };
    Some(builtin.into())
}

/// Returns a format of elements of this type; `None` where Python has none.
pub fn format(datatype: Datatype) -> Option<&'static CStr> {
    let Datatype::Builtin(dtype) = datatype else { return None };
    Some(match dtype {
        DType::I8 => c"b",
        DType::I16 => c"h",
        DType::I32 => c"i",
        DType::I64 => c"q",
        DType::U8 => c"B",
        DType::U16 => c"H",
        DType::U32 => c"I",
        DType::U64 => c"Q",
        DType::F16 => c"e",
        DType::F32 => c"f",
        DType::F64 => c"d",
        DType::ComplexF32 => c"Zf",
        DType::ComplexF64 => c"Zd",
        DType::Bool => c"?",
        _ => return None,
    })
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
