//! The project's own rules, held to its sources and its documents.

mod architecture;
#[cfg(feature = "cli")]
mod documentation;
mod imports;
mod names;
