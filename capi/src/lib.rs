//! `libearlybird`: the collectives for programs in C and every language that can call C.
//!
//! `include/earlybird.h` is the documentation of every function; `tests/header.rs` compares its numbers and names with
//! these sources.
//!
//! Every function checks what it is given, turns each error into its number, keeps the sentence for
//! `eb_last_error_message`, and lets no panic out. What it cannot check is the header's to ask, invariants
//!
//! * **H (handles)**: a handle that is not null comes from this library and has not been freed; no other thread frees it
//!   meanwhile.
//! * **C (caller's memory)**: a pointer that is not null points to what the header says, for as long as it says; nobody
//!   else writes there meanwhile.

mod buffers;
pub mod codes;
mod comm;
mod entry;
pub mod errors;
mod grouped;
mod moves;
mod operators;
mod posted;
mod reductions;
mod requests;
mod shared;
