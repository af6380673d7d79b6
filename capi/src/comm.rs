//! Joining, communicators, what they say of themselves, errors and versions.
#![allow(unsafe_code)]

use crate::codes;
use crate::entry::export;
use crate::errors;
use earlybird::{Choice, Communicator, Config, Error, Identity};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError};

/// `eb_comm`.
pub struct Comm(pub Arc<Communicator>);

/// What a handle stands for.
///
/// # Safety
/// H.
#[inline]
pub unsafe fn of<'a>(comm: *const Comm) -> Result<&'a Arc<Communicator>, Error> {
    // SAFETY: H.
    let comm = unsafe { comm.as_ref() };
    comm.map(|comm| &comm.0).ok_or_else(|| Error::usage("the communicator is null; join first"))
}

/// Puts a result where C wants it.
///
/// # Safety
/// C: `to` is null or has room.
pub unsafe fn put<T>(to: *mut T, name: &str, value: T) -> Result<(), Error> {
    must_be(to, name)?;
    // SAFETY: C; what was there is no value that needs dropping.
    unsafe { to.write(value) };
    Ok(())
}

/// Refuses an address that nothing can be put to.
pub fn must_be<T>(to: *mut T, name: &str) -> Result<(), Error> {
    match to.is_null() || !to.is_aligned() {
        true => Err(Error::usage(format!("{name} at {to:p} is no place for a result; give the address of a variable"))),
        false => Ok(()),
    }
}

/// Ends what a handle stands for, if it is not null, and leaves null in its place.
///
/// # Safety
/// C: `at` is null or the place of a handle. H: what is there is null or a handle of the library, which is used nowhere else.
pub unsafe fn end<H>(at: *mut *mut H, name: &str) -> Result<(), Error> {
    must_be(at, name)?;
    // SAFETY: C, H.
    unsafe {
        let handle = at.replace(std::ptr::null_mut());
        if !handle.is_null() {
            drop(Box::from_raw(handle));
        }
    }
    Ok(())
}

/// The words at `at`.
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

/// Variables that mean nothing in a program that joins by itself.
const NOT_OPTIONS: &[&str] = &["EARLYBIRD_RANK", "EARLYBIRD_SIZE", "EARLYBIRD_JOB", "EARLYBIRD_INTERPOSE"];

/// The environment, and what the caller puts before it.
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
                return Err(Error::usage(format!("{name} is no option; eb_join_as takes job, rank and size")));
            }
            given.push((name.to_owned(), value.to_owned()));
        }
    }
    Config::from_env_and(given)
}

/// Gives C a communicator.
///
/// # Safety
/// C: `to` has room, as was checked.
pub unsafe fn give(to: *mut *mut Comm, comm: Option<Communicator>) {
    let comm = comm.map_or(std::ptr::null_mut(), |comm| Box::into_raw(Box::new(Comm(Arc::new(comm)))));
    // SAFETY: C.
    unsafe { to.write(comm) };
}

/// Names of algorithms as C strings: of each one, for ever.
fn for_ever(name: &'static str) -> *const c_char {
    static NAMES: Mutex<BTreeMap<&'static str, CString>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.entry(name).or_insert_with(|| CString::new(name).unwrap_or_default()).as_ptr()
}

export! {
    fn eb_join(comm: *mut *mut Comm, options: *const *const c_char) {
        must_be(comm, "comm")?;
        // SAFETY: C.
        unsafe {
            comm.write(std::ptr::null_mut());
            give(comm, Some(Communicator::connect_or_refuse(config(options), Identity::detect())?));
        }
        Ok(())
    }

    fn eb_join_as(
        comm: *mut *mut Comm,
        job: *const c_char,
        rank: usize,
        size: usize,
        options: *const *const c_char,
    ) {
        must_be(comm, "comm")?;
        // SAFETY: C.
        unsafe {
            comm.write(std::ptr::null_mut());
            let identity = Identity::named(text(job, "job")?, rank, size)?;
            give(comm, Some(Communicator::connect_or_refuse(config(options), Ok(identity))?));
        }
        Ok(())
    }

    fn eb_comm_free(comm: *mut *mut Comm) {
        // SAFETY: C, H.
        unsafe { end(comm, "comm") }
    }

    fn eb_comm_close(comm: *mut *mut Comm) {
        must_be(comm, "comm")?;
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
        must_be(part, "part")?;
        // SAFETY: H, C.
        unsafe {
            part.write(std::ptr::null_mut());
            let comm = of(comm)?;
            let color = match color {
                -1 => None,
                _ => Some(u32::try_from(color).map_err(|_| {
                    Error::usage(format!("the color {color} is neither 0 to {} nor EB_NO_COLOR", u32::MAX))
                })?),
            };
            give(part, comm.split(color, key)?);
        }
        Ok(())
    }

    fn eb_duplicate(comm: *const Comm, copy: *mut *mut Comm) {
        must_be(copy, "copy")?;
        // SAFETY: H, C.
        unsafe {
            copy.write(std::ptr::null_mut());
            give(copy, Some(of(comm)?.duplicate()?));
        }
        Ok(())
    }

    fn eb_shrink(comm: *const Comm, survivors: *mut *mut Comm) {
        must_be(survivors, "survivors")?;
        // SAFETY: H, C.
        unsafe {
            survivors.write(std::ptr::null_mut());
            give(survivors, Some(of(comm)?.shrink()?));
        }
        Ok(())
    }

    fn eb_rank(comm: *const Comm, rank: *mut usize) {
        // SAFETY: H, C.
        unsafe { put(rank, "rank", of(comm)?.rank()) }
    }

    fn eb_size(comm: *const Comm, size: *mut usize) {
        // SAFETY: H, C.
        unsafe { put(size, "size", of(comm)?.size()) }
    }

    fn eb_job_ranks(comm: *const Comm, ranks: *mut usize) {
        must_be(ranks, "ranks")?;
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
            let ran = of(comm)?.last_call().map_or(c"".as_ptr(), |report| for_ever(report.algorithm.name()));
            put(name, "name", ran)
        }
    }

    fn eb_type_size(dtype: c_int, bytes: *mut usize) {
        // SAFETY: C.
        unsafe { put(bytes, "bytes", codes::dtype(dtype)?.size()) }
    }
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
