//! Communicators: joining, splitting, their properties and settings; error texts and versions.
#![allow(unsafe_code)]

use crate::codes;
use crate::errors;
use crate::export::export;
use earlybird::{Choice, Collective, Communicator, Config, Error, Identity};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError};

/// `eb_comm`.
pub struct Comm(pub Arc<Communicator>);

/// Returns the communicator of a handle.
///
/// # Safety
/// H.
#[inline]
pub unsafe fn of<'a>(comm: *const Comm) -> Result<&'a Arc<Communicator>, Error> {
    // SAFETY: H.
    let comm = unsafe { comm.as_ref() };
    comm.map(|comm| &comm.0).ok_or_else(|| Error::usage("the communicator is null; join first"))
}

/// Writes a result to a variable of the caller.
///
/// # Safety
/// C: `to` is null or has room.
pub unsafe fn write_out<T>(to: *mut T, name: &str, value: T) -> Result<(), Error> {
    check_out_pointer(to, name)?;
    // SAFETY: C; what was there is no value that needs dropping.
    unsafe { to.write(value) };
    Ok(())
}

/// Refuses the address of a result that is null or not aligned.
pub fn check_out_pointer<T>(to: *mut T, name: &str) -> Result<(), Error> {
    match to.is_null() || !to.is_aligned() {
        true => Err(Error::usage(format!("{name} at {to:p} cannot hold a result; give the address of a variable"))),
        false => Ok(()),
    }
}

/// Writes the handle of what `make` makes to the caller's variable, which is null for `None` and after an error.
///
/// # Safety
/// C: `to` is null or has room.
pub unsafe fn write_handle<H>(
    to: *mut *mut H,
    name: &str,
    make: impl FnOnce() -> Result<Option<H>, Error>,
) -> Result<(), Error> {
    // SAFETY: C.
    unsafe { write_out(to, name, std::ptr::null_mut())? };
    if let Some(made) = make()? {
        // SAFETY: C, checked.
        unsafe { to.write(Box::into_raw(Box::new(made))) };
    }
    Ok(())
}

/// Frees a handle, if it is not null, and sets the caller's variable to null.
///
/// # Safety
/// C: `at` is null or the address of a handle. H: the handle is null or one of the library, and is not in use.
pub unsafe fn free_handle<H>(at: *mut *mut H, name: &str) -> Result<(), Error> {
    check_out_pointer(at, name)?;
    // SAFETY: C, H.
    unsafe {
        let handle = at.replace(std::ptr::null_mut());
        if !handle.is_null() {
            drop(Box::from_raw(handle));
        }
    }
    Ok(())
}

/// Reads a string argument.
///
/// # Safety
/// C: `at` is null or a string that ends in a zero.
pub unsafe fn text<'a>(at: *const c_char, name: &str) -> Result<&'a str, Error> {
    if at.is_null() {
        return Err(Error::usage(format!("{name} is null; give a string")));
    }
    // SAFETY: C.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map_err(|_| Error::usage(format!("{name} {text:?} is not valid UTF-8")))
}

/// Variables that are not options, because arguments of `eb_join_as` or the launcher set them.
const NOT_OPTIONS: &[&str] = &["EARLYBIRD_RANK", "EARLYBIRD_SIZE", "EARLYBIRD_JOB", "EARLYBIRD_INTERPOSE"];

/// Reads the configuration from the environment and from the caller's options, which precede it.
///
/// # Safety
/// C: `options` is null or an array of strings that ends in a null.
unsafe fn config(options: *const *const c_char) -> Result<Config, Error> {
    let mut given = Vec::new();
    if !options.is_null() {
        // SAFETY: C: up to and with the null at the end.
        let each = (0..).map(|i| unsafe { *options.add(i) }).take_while(|option| !option.is_null());
        for option in each {
            // SAFETY: C.
            let option = unsafe { text(option, "an option") }?;
            let pair = option.split_once('=').filter(|(name, _)| name.starts_with("EARLYBIRD_"));
            let Some((name, value)) = pair else {
                return Err(Error::usage(format!("the option {option:?} is not of the form EARLYBIRD_NAME=value")));
            };
            if NOT_OPTIONS.contains(&name) {
                return Err(Error::usage(format!("{name} is not an option; eb_join_as takes job, rank and size")));
            }
            given.push((name.to_owned(), value.to_owned()));
        }
    }
    Config::from_env_and(given)
}

/// Writes the handle of a communicator to the caller's variable, as `write_handle`.
///
/// # Safety
/// C: `to` is null or has room.
unsafe fn write_comm(
    to: *mut *mut Comm,
    name: &str,
    make: impl FnOnce() -> Result<Option<Communicator>, Error>,
) -> Result<(), Error> {
    // SAFETY: C.
    unsafe { write_handle(to, name, || Ok(make()?.map(|comm| Comm(Arc::new(comm))))) }
}

/// Returns the name of an algorithm as a C string that is never freed.
fn static_c_string(name: &'static str) -> *const c_char {
    static NAMES: Mutex<BTreeMap<&'static str, CString>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.entry(name).or_insert_with(|| CString::new(name).unwrap_or_default()).as_ptr()
}

export! {
    fn eb_join(comm: *mut *mut Comm, options: *const *const c_char) {
        // SAFETY: C.
        unsafe { write_comm(comm, "comm", || Communicator::builder().try_config(config(options)).connect().map(Some)) }
    }

    fn eb_join_as(
        comm: *mut *mut Comm,
        job: *const c_char,
        rank: usize,
        size: usize,
        options: *const *const c_char,
    ) {
        let join = || {
            // SAFETY: C.
            let (job, config) = unsafe { (text(job, "job")?, config(options)) };
            let identity = Identity::named(job, rank, size)?;
            Communicator::builder().try_config(config).identity(identity).connect().map(Some)
        };
        // SAFETY: C.
        unsafe { write_comm(comm, "comm", join) }
    }

    fn eb_comm_free(comm: *mut *mut Comm) {
        // SAFETY: C, H.
        unsafe { free_handle(comm, "comm") }
    }

    fn eb_comm_close(comm: *mut *mut Comm) {
        check_out_pointer(comm, "comm")?;
        // SAFETY: C, H.
        let handle = unsafe { comm.replace(std::ptr::null_mut()) };
        if handle.is_null() {
            return Ok(());
        }
        // SAFETY: H.
        let Comm(shared) = *unsafe { Box::from_raw(handle) };
        Arc::into_inner(shared).map_or(Ok(()), Communicator::close)
    }

    fn eb_split(comm: *const Comm, color: i64, key: i64, part: *mut *mut Comm) {
        let split = || {
            // SAFETY: H.
            let comm = unsafe { of(comm)? };
            let color = match color {
                -1 => None,
                _ => Some(u32::try_from(color).map_err(|_| {
                    Error::usage(format!("the color {color} is neither 0 to {} nor EB_NO_COLOR", u32::MAX))
                })?),
            };
            comm.split(color, key)
        };
        // SAFETY: C.
        unsafe { write_comm(part, "part", split) }
    }

    fn eb_duplicate(comm: *const Comm, copy: *mut *mut Comm) {
        // SAFETY: H, C.
        unsafe { write_comm(copy, "copy", || of(comm)?.duplicate().map(Some)) }
    }

    fn eb_shrink(comm: *const Comm, survivors: *mut *mut Comm) {
        // SAFETY: H, C.
        unsafe { write_comm(survivors, "survivors", || of(comm)?.shrink().map(Some)) }
    }

    fn eb_rank(comm: *const Comm, rank: *mut usize) {
        // SAFETY: H, C.
        unsafe { write_out(rank, "rank", of(comm)?.rank()) }
    }

    fn eb_size(comm: *const Comm, size: *mut usize) {
        // SAFETY: H, C.
        unsafe { write_out(size, "size", of(comm)?.size()) }
    }

    fn eb_job_ranks(comm: *const Comm, ranks: *mut usize) {
        check_out_pointer(ranks, "ranks")?;
        // SAFETY: H, C: room for as many as there are ranks.
        unsafe {
            let from = of(comm)?.job_ranks();
            std::ptr::copy_nonoverlapping(from.as_ptr(), ranks, from.len());
        }
        Ok(())
    }

    fn eb_set_algorithm(comm: *const Comm, name: *const c_char) {
        // SAFETY: H, C.
        unsafe { of(comm)?.set_algorithm(text(name, "the name of the algorithm")?.parse::<Choice>()?) }
    }

    fn eb_set_order(comm: *const Comm, order: c_int) {
        // SAFETY: H.
        unsafe { of(comm)? }.set_order(codes::order(order)?)
    }

    fn eb_last_algorithm(comm: *const Comm, name: *mut *const c_char) {
        // SAFETY: H, C.
        unsafe {
            let ran = of(comm)?.last_call().map_or(c"".as_ptr(), |report| static_c_string(report.algorithm.name()));
            write_out(name, "name", ran)
        }
    }

    fn eb_explain(comm: *const Comm, collective: *const c_char, bytes: usize, explanation: *mut *const c_char) {
        // SAFETY: H, C.
        unsafe {
            let collective = text(collective, "the name of the collective")?.parse::<Collective>()?;
            let text = of(comm)?.explain(collective, bytes)?.to_string();
            write_out(explanation, "text", keep_explanation(text))
        }
    }

    fn eb_type_size(dtype: c_int, bytes: *mut usize) {
        // SAFETY: C.
        unsafe { write_out(bytes, "bytes", codes::dtype(dtype)?.size()) }
    }
}

/// Keeps the text of an explanation for the caller, until the next one of this thread.
fn keep_explanation(text: String) -> *const c_char {
    thread_local! {
        static LAST: RefCell<CString> = RefCell::default();
    }
    LAST.with_borrow_mut(|last| {
        *last = CString::new(text).unwrap_or_default();
        last.as_ptr()
    })
}

#[unsafe(no_mangle)]
extern "C" fn eb_error_name(error: c_int) -> *const c_char {
    errors::name(error).map_or(std::ptr::null(), CStr::as_ptr)
}

#[unsafe(no_mangle)]
extern "C" fn eb_last_error_message() -> *const c_char {
    errors::last_message()
}

#[unsafe(no_mangle)]
extern "C" fn eb_last_error_rank() -> i64 {
    errors::last_rank()
}

#[unsafe(no_mangle)]
extern "C" fn eb_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
