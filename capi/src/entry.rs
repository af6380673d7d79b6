//! How a function of this library becomes one of C.
#![allow(unsafe_code)]

/// Exports functions: the body gives `Result<(), Error>`, C gets the number of the error.
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
