//! Values of enumerations by their names, for command lines and words of schedules.

use strum::VariantArray;

/// The error for a name that no value has; it lists those that there are.
pub(crate) fn unknown<T: VariantArray + Copy + Into<&'static str>>(text: &str) -> String {
    let names: Vec<&str> = T::VARIANTS.iter().map(|value| (*value).into()).collect();
    format!("`{text}`: expected {}", names.join(", "))
}
