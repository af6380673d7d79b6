//! The modules of [`super::memory`] that loom runs, in place of `mod.rs`: the words that ranks share, without mappings and
//! descriptors.
#![allow(dead_code)]

pub(crate) mod control;
pub(crate) mod grant;
pub(crate) mod liveness_word;
pub(crate) mod shared_words;
pub(crate) mod survivors;
pub(crate) mod table;
