//! The mode of the interposer for MPI programs and the calls that it intercepts, as users write them:
//! `profile,broadcast=mpi:1Mi-,barrier=mpi`.

use crate::Error;
use crate::units::parse_range;
use earlybird_shm::Collective;
use strum::EnumString;

/// The mode of the interposer for MPI programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, EnumString)]
#[strum(serialize_all = "lowercase")]
#[non_exhaustive]
pub enum Interpose {
    /// Intercepts every call that it can carry out.
    #[default]
    On,
    /// Forwards every call to MPI.
    Off,
    /// The same as `On`, with a report of rank 0 at MPI_Finalize: the calls that were intercepted, those that were not, and why.
    Profile,
}

/// The library that carries out a call which can be intercepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString)]
#[strum(serialize_all = "lowercase")]
#[non_exhaustive]
pub enum Carrier {
    /// This library.
    Earlybird,
    /// The MPI library.
    Mpi,
}

/// The library that carries out each call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Carriers {
    /// Ranges of block sizes in bytes, both ends included, each with the library for a collective. The first that fits counts.
    ranges: Vec<(Collective, Carrier, u64, u64)>,
    /// The number, from 1, of the first call of a communicator that earlybird may carry out; `None`: as measured.
    pub from_call: Option<u64>,
}

impl Carriers {
    /// The entries for `collective`: the library, and the first and the last byte count.
    pub fn of(&self, collective: Collective) -> impl Iterator<Item = (Carrier, u64, u64)> {
        let of_it = self.ranges.iter().filter(move |(of, ..)| *of == collective);
        of_it.map(|(_, carrier, first, last)| (*carrier, *first, *last))
    }

    fn add(&mut self, text: &str) -> Result<(), Error> {
        let Some(number) = text.strip_prefix("from-call=") else {
            self.ranges.push(entry(text)?);
            return Ok(());
        };
        let Ok(number @ 1..) = number.parse() else {
            return Err(Error::usage(format!("{text:?} is not valid; give a number from 1, such as from-call=1")));
        };
        self.from_call = Some(number);
        Ok(())
    }
}

impl Interpose {
    /// Reads `EARLYBIRD_INTERPOSE`: a word, then entries `from-call=NUMBER`, `OPERATION=CARRIER` or `OPERATION=CARRIER:FIRST-LAST`,
    /// the last size may be missing; any part alone. Nothing is as if it were unset.
    ///
    /// # Errors
    /// [`Error::Usage`] for anything else.
    pub fn read(given: &str) -> Result<(Interpose, Carriers), Error> {
        if given.is_empty() {
            return Ok(Default::default());
        }
        let mut entries = given.split(',').peekable();
        let mode: Option<Interpose> = entries.peek().and_then(|first| first.parse().ok());
        let mut carriers = Carriers::default();
        entries.skip(usize::from(mode.is_some())).try_for_each(|text| carriers.add(text))?;
        Ok((mode.unwrap_or_default(), carriers))
    }
}

fn entry(text: &str) -> Result<(Collective, Carrier, u64, u64), Error> {
    let refuse = || {
        let names = Vec::from_iter(Collective::PUBLIC.iter().map(|known| known.name())).join(", ");
        Error::usage(format!(
            "{text:?} is not valid; one of: on, off, profile, and after it entries such as from-call=1, broadcast=mpi:1Mi- or \
             barrier=earlybird, with one of: {names}"
        ))
    };
    let (name, rest) = text.split_once('=').ok_or_else(refuse)?;
    let collective = Collective::named(name).ok_or_else(refuse)?;
    let (carrier, range) = rest.split_once(':').unwrap_or((rest, "0-"));
    let carrier = carrier.parse().map_err(|_| refuse())?;
    let (first, last) = parse_range(text, range.split_once('-').ok_or_else(refuse)?)?;
    Ok((collective, carrier, first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;

    #[test]
    fn words_and_entries_are_read() {
        let (asked, carriers) =
            Interpose::read("profile,broadcast=mpi:1Mi-,broadcast=earlybird:8-1Ki,barrier=mpi").unwrap();
        assert_eq!(asked, Interpose::Profile);
        let of = |collective| carriers.of(collective).collect::<Vec<_>>();
        assert_eq!(of(Collective::Broadcast), [(Carrier::Mpi, 1 << 20, u64::MAX), (Carrier::Earlybird, 8, 1 << 10)]);
        assert_eq!(of(Collective::Barrier), [(Carrier::Mpi, 0, u64::MAX)]);
        assert!(of(Collective::Reduce).is_empty());
        let (_, carriers) = Interpose::read("from-call=20,barrier=mpi").unwrap();
        assert_eq!((carriers.from_call, carriers.of(Collective::Barrier).count()), (Some(20), 1));
        for name in ["reduce", "gather", "scatter", "alltoall", "reduce-scatter"] {
            assert_eq!(Interpose::read(&format!("{name}=mpi")).unwrap().0, Interpose::On);
        }
        assert_eq!(Interpose::read("").unwrap(), (Interpose::On, Carriers::default()));
        assert_eq!(Interpose::read("off").unwrap(), (Interpose::Off, Carriers::default()));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for given in [
            "maybe",
            "on,",
            "on,off",
            "split=mpi",
            "duplicate=mpi",
            "reduce=open",
            "reduce=mpi:5",
            "reduce=mpi:x-",
            "profile;on",
            "from-call=0",
            "from-call=x",
        ] {
            let message = usage(Interpose::read(given).map(|_| ()));
            assert!(
                ["one of", "size", "a number from 1"].iter().any(|part| message.contains(part)),
                "{given}: {message}"
            );
        }
        assert!(usage(Interpose::read("reduce=mpi:2-1").map(|_| ())).contains("ends before it begins"));
    }
}
