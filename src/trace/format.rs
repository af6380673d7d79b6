//! The trace file of a rank as words: a header, calibrations of its clock, the names of algorithms, and a ring of records.
//!
//! Each part carries a check of its own, so that a file needs no end: whatever a rank had stored when it was killed is there,
//! and a record that it was storing is distinguished from one that was damaged later.

use super::checksum::check;
use super::record::RECORD_WORDS;
use super::record_clock::Calibration;
use earlybird_shm::text;

/// The first word of a file: `EBTRACE` and a zero.
const MAGIC: u64 = u64::from_le_bytes(*b"EBTRACE\0");
/// The version of the format. Files of another one are refused.
const VERSION: u64 = 3;

/// Words of the header, with room to grow, and of the calibrations at its end.
const HEADER_WORDS: usize = 256;
/// Words of a calibration, its check included.
const CALIBRATION_WORDS: usize = 4;
/// Calibrations that fit into a file.
pub(super) const CALIBRATIONS: usize = 48;
/// The word at which this calibration begins.
pub(super) const fn calibration_at(number: usize) -> usize {
    HEADER_WORDS - (CALIBRATIONS - number) * CALIBRATION_WORDS
}
/// Words of the name of an algorithm, its check included.
pub(super) const NAME_WORDS: usize = 16;
/// Names of algorithms that fit into a file.
pub(super) const NAMES: usize = 112;
/// Words before the first record.
pub(super) const RECORDS_AT: usize = HEADER_WORDS + NAMES * NAME_WORDS;
/// The word at which the name of this entry begins.
pub(super) const fn name_at(entry: usize) -> usize {
    HEADER_WORDS + entry * NAME_WORDS
}

const HOST_WORDS: usize = 8;
const USED_HEADER_WORDS: usize = 9 + HOST_WORDS + 1;

/// A process among all that write one trace, where its communicators do not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedProcess {
    pub rank: usize,
    pub size: usize,
    pub virtual_node: u32,
}

/// The facts that a rank states of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Records that the ring holds.
    pub capacity: usize,
    /// The rank in its job, and the ranks of the job.
    pub rank: usize,
    pub size: usize,
    /// A hash of the job's name; 0 where the launcher gives none that all ranks have.
    pub job: u64,
    /// Equal for ranks whose clock readings can be compared: of one boot and one time namespace.
    pub clock: u64,
    /// One moment by the monotonic clock and by the host's time of day, nanoseconds.
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
    /// The number of the virtual node.
    pub virtual_node: u32,
    pub process: u32,
    /// The first bytes of the host's name.
    pub host: String,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u64> {
        let mut words = vec![
            MAGIC,
            VERSION << 32 | RECORD_WORDS as u64,
            self.capacity as u64,
            (self.rank as u64) << 32 | self.size as u64,
            self.job,
            self.clock,
            self.monotonic_ns,
            self.realtime_ns,
            u64::from(self.virtual_node) << 32 | u64::from(self.process),
        ];
        let mut host = [0; HOST_WORDS];
        text::pack(&self.host, &mut host);
        words.extend(host);
        words.push(check(&words));
        words
    }

    pub(super) fn decode(words: &[u64]) -> Result<Header, String> {
        let [magic, version, capacity, ranks, job, clock, monotonic_ns, realtime_ns, process, ref rest @ ..] =
            words[..HEADER_WORDS]
        else {
            unreachable!("the slice has as many words")
        };
        if magic != MAGIC {
            return Err("it does not begin as a trace of earlybird does".into());
        }
        if version != VERSION << 32 | RECORD_WORDS as u64 {
            let given = version >> 32;
            return Err(format!("its format is version {given}, this program reads version {VERSION}"));
        }
        let used = USED_HEADER_WORDS - 1;
        if words[used] != check(&words[..used]) || words[used + 1..calibration_at(0)].iter().any(|word| *word != 0) {
            return Err("its header is damaged".into());
        }
        let (rank, size) = ((ranks >> 32) as usize, ranks as u32 as usize);
        let host = text::unpack(&rest[..HOST_WORDS]);
        if rank >= size || !capacity.is_power_of_two() {
            return Err(format!("it says to be of rank {rank} of {size} with room for {capacity} calls"));
        }
        let (virtual_node, process, capacity) = ((process >> 32) as u32, process as u32, capacity as usize);
        Ok(Header { capacity, rank, size, job, clock, monotonic_ns, realtime_ns, virtual_node, process, host })
    }
}

/// The words of a calibration.
pub(super) fn encode_calibration(calibration: Calibration) -> [u64; CALIBRATION_WORDS] {
    let Calibration { ticks, ns, error_ticks } = calibration;
    [ticks, ns, error_ticks, check(&[ticks, ns, error_ticks])]
}

/// The calibrations of a file, the oldest first; the one that was being written when the process was killed is left out.
pub(super) fn decode_calibrations(words: &[u64]) -> Result<Vec<Calibration>, String> {
    let (entries, _) = words[calibration_at(0)..HEADER_WORDS].as_chunks::<CALIBRATION_WORDS>();
    let is_whole =
        |[ticks, ns, error_ticks, stored]: &[u64; CALIBRATION_WORDS]| *stored == check(&[*ticks, *ns, *error_ticks]);
    let count = entries.iter().take_while(|entry| is_whole(entry)).count();
    let calibrations: Vec<Calibration> =
        entries[..count].iter().map(|&[ticks, ns, error_ticks, _]| Calibration { ticks, ns, error_ticks }).collect();
    let is_later = |pair: &[Calibration]| pair[0].ticks < pair[1].ticks && pair[0].ns < pair[1].ns;
    // The first two are written before any record, and the check of each comes last.
    let is_damaged = count == 1
        || !calibrations.windows(2).all(is_later)
        || entries.get(count).is_some_and(|[.., stored]| *stored != 0)
        || entries.iter().skip(count + 1).flatten().any(|word| *word != 0);
    if is_damaged { Err("a calibration of its clock is damaged".into()) } else { Ok(calibrations) }
}

/// The entry of an algorithm's name.
pub(super) fn encode_name(name: &str) -> [u64; NAME_WORDS] {
    let mut words = [0; NAME_WORDS];
    text::pack(name, &mut words[..NAME_WORDS - 1]);
    words[NAME_WORDS - 1] = check(&words[..NAME_WORDS - 1]);
    words
}

/// The name in an entry; `None` for an unused one.
pub(super) fn decode_name(words: &[u64]) -> Result<Option<String>, String> {
    let [name @ .., stored] = words else { unreachable!("an entry has words") };
    match words.iter().all(|word| *word == 0) {
        true => Ok(None),
        false if *stored == check(name) => Ok(Some(text::unpack(name))),
        false => Err("a name of an algorithm is damaged".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_between_letters() {
        let name = |text: &str| decode_name(&encode_name(text));
        assert_eq!(name("plan:ring"), Ok(Some("plan:ring".into())));
        let long = "\u{e4}".repeat(100);
        assert_eq!(name(&long), Ok(Some(long[..120].to_owned())));
        assert_eq!(decode_name(&[0; NAME_WORDS]), Ok(None));
    }
}
