//! `libearlybird`: the collectives for programs in C and in languages that can call C.
//!
//! `include/earlybird.h` is the documentation of every function; `tests/header.rs` compares its numbers and names with
//! these sources.
//!
//! Every function checks its arguments, returns the number of its error, records the message for `eb_last_error_message`, and catches
//! panics. The header asks the caller for the conditions that cannot be checked, invariants
//!
//! * **H (handles)**: a handle that is not null comes from this library and has not been freed; no other thread frees it
//!   meanwhile.
//! * **C (caller's memory)**: a pointer that is not null points to what the header says, for as long as it says; no other
//!   thread writes there meanwhile.

mod buffers;
mod call;
pub mod codes;
mod comm;
mod data_movement;
pub mod errors;
mod export;
mod grouped;
mod reductions;
mod requests;
mod shared;
mod user_ops;
