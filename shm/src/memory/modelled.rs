//! The modules of [`super::memory`] that loom runs, in place of `mod.rs`: the words that ranks share, without mappings and
//! descriptors.
#![allow(dead_code)]

pub(crate) mod control;
pub mod grant;
pub(crate) mod liveness_word;
pub mod shared_words;
pub mod survivors;
pub mod table;
