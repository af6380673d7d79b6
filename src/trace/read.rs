//! Reading traces: files become records, or are refused with what is wrong with them. Whatever the bytes, nothing panics.

use super::format::{self, Header, NAME_WORDS, NAMES, RECORDS_AT};
use super::record::{RECORD_WORDS, Record};
use super::record_clock::{Calibration, TimeLine};
use super::recorder::path_of;
use crate::Error;
use std::path::Path;

/// Slots on either side of the newest record that may be half written: one for each thread that was in a call when the process
/// was killed.
const HALF_WRITTEN: usize = 16;

/// The file of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankTrace {
    pub header: Header,
    /// Names of algorithms by their entries.
    pub algorithms: Vec<Option<String>>,
    /// The newest calls, the oldest first.
    pub records: Vec<Record>,
    /// Calls that came before and were overwritten.
    pub dropped: u64,
    /// Calls that were being written when the process was killed.
    pub torn: usize,
    /// Nanoseconds by which times may differ from the host's monotonic clock; between ranks of one host they are the same.
    pub clock_error_ns: u64,
}

/// The files of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Ranks of the job.
    pub size: usize,
    /// Those whose files are there, by their numbers.
    pub ranks: Vec<RankTrace>,
}

impl RankTrace {
    /// The name of the algorithm that carried out a call; `-` where the rank did not see one.
    pub fn algorithm(&self, record: &Record) -> &str {
        record.algorithm.and_then(|entry| self.algorithms.get(usize::from(entry))?.as_deref()).unwrap_or("-")
    }
}

/// The trace of a rank in the bytes of its file.
///
/// # Errors
/// A phrase that completes "the file is refused:".
pub fn parse(bytes: &[u8]) -> Result<RankTrace, String> {
    let (mut trace, calibrations) = parse_raw(bytes)?;
    if let Some(line) = TimeLine::through(&calibrations) {
        convert(&mut trace, &line);
    }
    Ok(trace)
}

/// Puts the monotonic clock in the place of readings of the processor's counter.
fn convert(trace: &mut RankTrace, line: &TimeLine<'_>) {
    let mut worst = 0;
    for record in &mut trace.records {
        for time in [&mut record.arrival, &mut record.waiting, &mut record.exit].into_iter().filter(|time| **time != 0)
        {
            worst = worst.max(line.error_ns(*time));
            *time = line.ns(*time);
        }
    }
    trace.clock_error_ns = worst;
}

/// The trace with its times as they were read, and the calibrations of the counter, if that is what was read.
fn parse_raw(bytes: &[u8]) -> Result<(RankTrace, Vec<Calibration>), String> {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    if words.len() < RECORDS_AT || !rest.is_empty() {
        return Err(format!("{} bytes are no whole trace; it was cut, or is something else", bytes.len()));
    }
    let header = Header::decode(&words[..RECORDS_AT])?;
    let calibrations = format::decode_calibrations(&words[..RECORDS_AT])?;
    let (names, records) = words[format::name_at(0)..].split_at(NAMES * NAME_WORDS);
    let algorithms = names.chunks_exact(NAME_WORDS).map(format::decode_name).collect::<Result<Vec<_>, _>>()?;
    let (slots, _) = records.as_chunks::<RECORD_WORDS>();
    if header.capacity != slots.len() || records.len() != RECORD_WORDS * slots.len() {
        let expected = header.capacity.saturating_mul(RECORD_WORDS).saturating_add(RECORDS_AT).saturating_mul(8);
        return Err(format!("it has {} bytes of {expected}; it was cut, or grown", bytes.len()));
    }
    let (records, newest) = in_order(slots)?;
    let first = records.first().map_or(newest + 1, |record| record.index);
    let torn = (newest + 1 - first) as usize - records.len();
    let is_named = |entry: u8| matches!(algorithms.get(usize::from(entry)), Some(Some(_)));
    if let Some(record) = records.iter().find(|record| !record.algorithm.is_none_or(is_named)) {
        return Err(format!("call {} ran an algorithm whose name is missing", record.index));
    }
    let dropped = first.saturating_sub(1);
    Ok((RankTrace { header, algorithms, records, dropped, torn, clock_error_ns: 0 }, calibrations))
}

/// The records of a ring in their order, and the number of the newest one.
fn in_order(slots: &[[u64; RECORD_WORDS]]) -> Result<(Vec<Record>, u64), String> {
    let mut records: Vec<Record> = Vec::new();
    let mut damaged = Vec::new();
    for (at, slot) in slots.iter().enumerate() {
        match Record::decode(slot) {
            Some(record) if record.index > 0 && (record.index - 1) % slots.len() as u64 == at as u64 => {
                records.push(record);
            }
            None if slot.iter().all(|word| *word == 0) => {}
            _ => damaged.push(at),
        }
    }
    records.sort_unstable_by_key(|record| record.index);
    let Some(newest) = records.last().map(|record| record.index) else {
        return match damaged.as_slice() {
            [] => Ok((records, 0)),
            [at, ..] if *at < HALF_WRITTEN && damaged.len() <= HALF_WRITTEN => Ok((records, 0)),
            [at, ..] => Err(format!("the record in slot {at} is damaged")),
        };
    };
    let end = (newest - 1) as usize % slots.len();
    let is_near = |at: usize| {
        let ahead = (at + slots.len() - end) % slots.len();
        ahead <= HALF_WRITTEN || slots.len() - ahead <= HALF_WRITTEN
    };
    if let Some(at) = damaged.iter().find(|at| !is_near(**at)) {
        return Err(format!("the record in slot {at} is damaged"));
    }
    // The rest of the last lap ends where a half-written record of the next one begins.
    let oldest = newest.saturating_sub(slots.len() as u64 - 1).max(1);
    let first = records.iter().position(|record| record.index >= oldest).unwrap_or(0);
    records.drain(..first);
    let gap = records
        .windows(2)
        .find(|pair| pair[1].index - pair[0].index > 1 && newest - pair[0].index > HALF_WRITTEN as u64);
    match gap {
        Some(pair) => Err(format!("the calls after number {} are missing", pair[0].index)),
        None => Ok((records, newest)),
    }
}

impl Trace {
    /// Reads the files of all ranks that recorded under this name, which is what `EARLYBIRD_TRACE` was.
    ///
    /// # Errors
    /// [`Error::Usage`] for a damaged file and for files of different jobs, naming them; [`Error::System`] for one that cannot
    /// be read.
    pub fn read(path: &Path) -> Result<Trace, Error> {
        let first = numbers(path)?;
        let mut ranks: Vec<RankTrace> = Vec::new();
        let mut calibrations: Vec<Vec<Calibration>> = Vec::new();
        let mut size = None;
        for rank in first {
            if size.is_some_and(|size| rank >= size) {
                // Left over from a larger job of the same name.
                break;
            }
            let file = path_of(path, rank);
            let bytes = std::fs::read(&file);
            let bytes = bytes.map_err(|error| Error::system(format!("reading {}", file.display()), error))?;
            let refused = |why: String| Error::usage(format!("{} is refused: {why}", file.display()));
            let (trace, of_rank) = parse_raw(&bytes).map_err(refused)?;
            if trace.header.rank != rank {
                return Err(refused(format!("it is the trace of rank {}; name it after its rank", trace.header.rank)));
            }
            if let Some(RankTrace { header: one, .. }) = ranks.first()
                && (one.size, one.job) != (trace.header.size, trace.header.job)
            {
                return Err(refused(format!(
                    "it is of another job than that of rank {}; remove the older ones",
                    one.rank
                )));
            }
            size = Some(trace.header.size);
            ranks.push(trace);
            calibrations.push(of_rank);
        }
        convert_times(&mut ranks, &calibrations);
        match size {
            Some(size) => Ok(Trace { size, ranks }),
            None => {
                Err(Error::usage(format!("there is no trace {}; {}", path_of(path, 0).display(), instead_of(path))))
            }
        }
    }
}

/// The advice to a user who gave the path of no trace.
fn instead_of(path: &Path) -> String {
    let is_of_a_rank =
        |file: &Path| file.extension().is_some_and(|rank| rank.to_string_lossy().parse::<usize>().is_ok());
    if path.is_file() && is_of_a_rank(path) {
        return format!("{} is the file of one rank, give {}", path.display(), path.with_extension("").display());
    }
    let files = std::fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let traces =
        files.filter(|file| file.extension().is_some_and(|rank| rank == "0")).map(|file| file.with_extension(""));
    let traces: Vec<String> = traces.map(|trace| trace.display().to_string()).collect();
    match traces.is_empty() {
        true => "give what EARLYBIRD_TRACE was, without the rank's number".into(),
        false => format!("{} is a directory, give one of: {}", path.display(), traces.join(", ")),
    }
}

/// Converts the times of all ranks. Processors of one machine have one counter, so its ranks are converted by the calibrations of
/// one of them, the newest: what is between two ranks then has no error but that of the rate.
fn convert_times(ranks: &mut [RankTrace], calibrations: &[Vec<Calibration>]) {
    let clocks: Vec<u64> = ranks.iter().map(|rank| rank.header.clock).collect();
    for (trace, own) in ranks.iter_mut().zip(calibrations).filter(|(_, own)| !own.is_empty()) {
        let of_machine = clocks.iter().zip(calibrations).filter(|(clock, _)| **clock == trace.header.clock);
        let newest = of_machine.map(|(_, of_rank)| of_rank).max_by_key(|of_rank| of_rank.last().map(|last| last.ticks));
        if let Some(line) = TimeLine::through(newest.unwrap_or(own)) {
            convert(trace, &line);
        }
    }
}

/// The ranks whose files are there.
fn numbers(path: &Path) -> Result<Vec<usize>, Error> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let prefix = format!("{}.", path.file_name().unwrap_or_default().to_string_lossy());
    let entries = std::fs::read_dir(directory);
    let entries = entries.map_err(|error| Error::system(format!("reading {}", directory.display()), error))?;
    let mut numbers: Vec<usize> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix(&prefix)?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{encode, record};
    use super::*;
    use crate::pattern::mix;

    /// The file of a rank whose ring of 256 holds the last of `calls` calls, with times of the monotonic clock.
    fn file(calls: u64) -> Vec<u8> {
        file_of(1, calls, &[])
    }

    /// The same of a rank of two, with these calibrations.
    fn file_of(rank: usize, calls: u64, calibrations: &[Calibration]) -> Vec<u8> {
        let header = Header {
            capacity: 256,
            rank,
            size: 2,
            job: 7,
            clock: 8,
            monotonic_ns: 9,
            realtime_ns: 10,
            virtual_node: 0,
            process: 11,
            host: "here".into(),
        };
        let mut words = header.encode();
        words.resize(RECORDS_AT + 256 * RECORD_WORDS, 0);
        for (number, calibration) in calibrations.iter().enumerate() {
            let at = format::calibration_at(number);
            words[at..at + 4].copy_from_slice(&format::encode_calibration(*calibration));
        }
        let name = format::name_at(1);
        words[name..name + NAME_WORDS].copy_from_slice(&format::encode_name("flat"));
        for index in 1..=calls {
            let at = RECORDS_AT + (index - 1) as usize % 256 * RECORD_WORDS;
            words[at..at + RECORD_WORDS].copy_from_slice(&encode(record(index))[1]);
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    const RECORDS: usize = 8 * RECORDS_AT;
    const RECORD: usize = 8 * RECORD_WORDS;

    #[test]
    fn the_newest_records_are_read_and_the_others_counted() {
        for (calls, kept, dropped) in [(0, 0, 0), (1, 1, 0), (256, 256, 0), (257, 256, 1), (1000, 256, 744)] {
            let trace = parse(&file(calls)).unwrap();
            assert_eq!((trace.records.len(), trace.dropped, trace.torn), (kept, dropped, 0), "{calls}");
            assert!(trace.records.iter().zip(dropped + 1..).all(|(found, index)| *found == record(index)));
            assert!(trace.records.iter().all(|record| trace.algorithm(record) == "flat"));
        }
    }

    #[test]
    fn a_half_written_record_is_left_out_and_an_old_damaged_one_refused() {
        let mut bytes = file(200);
        bytes[RECORDS + 200 * RECORD] = 201;
        assert_eq!(parse(&bytes).unwrap().records.len(), 200, "its number was the first word");
        bytes[RECORDS + 199 * RECORD + 20] ^= 1;
        let trace = parse(&bytes).unwrap();
        assert_eq!((trace.records.len(), trace.dropped), (199, 0));
        bytes[RECORDS + 100 * RECORD + 20] ^= 1;
        assert_eq!(parse(&bytes), Err("the record in slot 100 is damaged".into()));
        let mut lap = file(300);
        lap[RECORDS + 44 * RECORD + 20] ^= 1;
        let trace = parse(&lap).unwrap();
        assert_eq!((trace.records.len(), trace.dropped), (255, 45), "the oldest gave way to the next");
        let mut bytes = file(200);
        bytes[RECORDS + 190 * RECORD..RECORDS + 191 * RECORD].fill(0);
        assert_eq!(parse(&bytes).unwrap().torn, 1, "a thread was killed before it had written");
        bytes[RECORDS + 9 * RECORD..RECORDS + 10 * RECORD].fill(0);
        assert_eq!(parse(&bytes), Err("the calls after number 9 are missing".into()));
    }

    #[test]
    fn damage_is_refused_or_in_what_was_being_written() {
        let whole = file_of(1, 200, &calibrations(5));
        let undamaged = parse(&whole).unwrap();
        for bytes in [0, 1, 8, RECORDS - 8, RECORDS, RECORDS + 1, whole.len() - RECORD, whole.len() - 1] {
            assert!(parse(&whole[..bytes]).unwrap_err().contains("cut"), "{bytes}");
        }
        let grown: Vec<u8> = whole.iter().copied().chain([0; RECORD]).collect();
        assert!(parse(&grown).unwrap_err().contains("grown"));
        assert!(parse(b"#!/bin/sh\n").unwrap_err().contains("something else"));
        assert!(parse(&[b'#'; RECORDS]).unwrap_err().contains("does not begin as"));
        let mut other = whole.clone();
        for version in [2, 4] {
            other[12] = version;
            assert!(parse(&other).unwrap_err().contains(&format!("version {version}")));
        }
        let (mut refused, mut left_out) = (0, 0);
        for draw in 0..4000u64 {
            let mut bytes = whole.clone();
            // Half of the draws in what comes before the records.
            let range = if draw % 2 == 0 { RECORDS } else { whole.len() };
            let at = (mix(draw) % range as u64) as usize;
            bytes[at] ^= 1 << (mix(mix(draw)) % 8);
            match parse(&bytes) {
                Err(_) => refused += 1,
                // The place of the next calibration.
                Ok(trace) if at < RECORDS => assert_eq!(trace, undamaged, "byte {at} went unnoticed"),
                Ok(trace) => {
                    left_out += 1;
                    let slot = (at - RECORDS) / RECORD;
                    assert!(slot.abs_diff(199) <= HALF_WRITTEN, "byte {at} went unnoticed");
                    assert!(trace.records.iter().all(|found| undamaged.records.contains(found)), "byte {at}");
                }
            }
        }
        assert!(refused > 2500 && left_out > 100, "{refused} {left_out}");
    }

    /// Calibrations of a counter of four ticks per nanosecond, each in doubt by 20 ns.
    fn calibrations(count: u64) -> Vec<Calibration> {
        (0..count).map(|n| Calibration { ticks: 4_000 * n, ns: 1_000_000 + 1_000 * n, error_ticks: 80 }).collect()
    }

    #[test]
    fn readings_of_the_counter_become_the_time() {
        let trace = parse(&file_of(1, 200, &calibrations(9))).unwrap();
        let expected = |index: u64| Record {
            arrival: 1_000_000 + 250 * index,
            waiting: 1_000_000 + 250 * index,
            exit: 1_000_000 + 250 * index + 175,
            ..record(index)
        };
        assert!(trace.records.iter().zip(1..).all(|(found, index)| *found == expected(index)));
        // The last reading is 168 700 ticks after the last calibration, which is 4 000 after the one before.
        assert!((1707..=1708).contains(&trace.clock_error_ns), "{}", trace.clock_error_ns);
        // All that a process had written of its next calibration when it was killed.
        let mut torn = file_of(1, 200, &calibrations(9));
        torn[8 * format::calibration_at(9)] = 7;
        assert_eq!(parse(&torn), Ok(trace));
        let damaged = Err("a calibration of its clock is damaged".into());
        torn[8 * format::calibration_at(3)] ^= 1;
        assert_eq!(parse(&torn), damaged);
        assert_eq!(parse(&file_of(1, 200, &calibrations(1))), damaged, "two were written before the first call");
        let mut backwards = calibrations(3);
        backwards[2].ticks = 1;
        assert_eq!(parse(&file_of(1, 200, &backwards)), damaged);
    }

    #[test]
    fn ranks_of_a_machine_are_converted_by_one_line() {
        let path = std::env::temp_dir().join(format!("earlybird-converted-{}", std::process::id()));
        // Rank 1 has calibrated for longer, and its calibrations are 40 ns apart from those of rank 0.
        let mut other = calibrations(12);
        other.iter_mut().for_each(|calibration| calibration.ns += 40);
        for (rank, calibrations) in [(0, &calibrations(4)), (1, &other)] {
            std::fs::write(path_of(&path, rank), file_of(rank, 100, calibrations)).unwrap();
        }
        let trace = Trace::read(&path).unwrap();
        assert_eq!(trace.ranks[0].records, trace.ranks[1].records);
        assert_eq!(trace.ranks[0].records[0].arrival, 1_000_290);
        (0..2).for_each(|rank| std::fs::remove_file(path_of(&path, rank)).unwrap());
    }

    #[test]
    fn random_words_never_panic() {
        for draw in 0..200u64 {
            let mut bytes = file_of(1, draw * 3, &calibrations(draw % 48));
            for change in 0..1 + draw % 40 {
                let at = (mix(draw ^ mix(change)) % (bytes.len() as u64 / 8)) as usize * 8;
                bytes[at..at + 8].copy_from_slice(&mix(at as u64 ^ draw).to_le_bytes());
            }
            let _ = parse(&bytes);
        }
    }
}
