//! The macro that exports functions to C.
#![allow(unsafe_code)]

/// Exports functions to C. The body returns `Result<(), Error>`, the C function the number of the error.
macro_rules! export {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
            crate::errors::guard(|| $body)
        }
        )*
    };
}
pub(crate) use export;
