//! Enumerations that users choose from by name: algorithms, types, operators; and the word that a user may have meant.

/// `FromStr`, `Display`, `ALL` and `name` for a plain enum, by the names that `strum` gives its variants.
#[doc(hidden)]
#[macro_export]
macro_rules! named_choice {
    ($type:ident, $what:literal) => {
        impl $type {
            /// Every value, in discriminant order.
            pub const ALL: [$type; <$type as ::strum::VariantArray>::VARIANTS.len()] =
                *<$type as ::strum::VariantArray>::VARIANTS.first_chunk().unwrap();

            /// The name that users write and reports print.
            pub const fn name(self) -> &'static str {
                self.into_str()
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::Error;

            /// Exactly one of the names; anything else is `Error::Usage`, which lists them.
            fn from_str(given: &str) -> Result<Self, Self::Err> {
                Self::ALL.into_iter().find(|choice| choice.name() == given).ok_or_else(|| {
                    let valid = Self::ALL.map(Self::name).join(", ");
                    let meant = $crate::named::did_you_mean(given, Self::ALL.map(Self::name));
                    $crate::Error::usage(format!(
                        concat!($what, " {:?} is not known{}; use one of: {}"),
                        given, meant, valid
                    ))
                })
            }
        }
    };
}

/// The least similarity (Jaro-Winkler) at which a word counts as a misspelling of another one.
const LEAST_SIMILARITY: f64 = 0.8;

/// Returns ` (did you mean "..."?)` with the most similar valid word, or nothing if none is similar.
pub fn did_you_mean<'a>(given: &str, valid: impl IntoIterator<Item = &'a str>) -> String {
    let scored = valid.into_iter().map(|word| (strsim::jaro_winkler(given, word), word));
    let nearest = scored.filter(|(score, _)| *score >= LEAST_SIMILARITY).max_by(|(a, _), (b, _)| a.total_cmp(b));
    nearest.map_or(String::new(), |(_, word)| format!(" (did you mean {word:?}?)"))
}

#[cfg(test)]
mod tests {
    use super::did_you_mean;

    #[test]
    fn the_nearest_word_is_named_and_no_far_one() {
        let words = ["leader", "static-leader", "slices", "chain"];
        for (given, nearest) in
            [("leder", "leader"), ("static_leader", "static-leader"), ("slice", "slices"), ("Chain", "chain")]
        {
            assert_eq!(did_you_mean(given, words), format!(" (did you mean {nearest:?}?)"));
        }
        assert_eq!([did_you_mean("fast", words), did_you_mean("", words)], ["", ""]);
    }
}
