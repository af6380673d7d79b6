//! The record of a call: a cache line, of which a rank stores one part when it arrives and the other one at the end.
//!
//! The check in the last word covers all. The end adds its words to the sum that the arrival has left, so neither part is read or
//! encoded again.

use super::checksum::{CheckSum, check};
use crate::Collective;
use serde::Serialize;
use strum::FromRepr;

/// Words of a record.
pub(super) const RECORD_WORDS: usize = 8;

/// Places of the words that are stored at the end.
const WAITING: usize = 5;
const EXIT: usize = 6;
const END: usize = 7;

/// The end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, FromRepr)]
#[serde(rename_all = "lowercase")]
pub enum CallOutcome {
    /// The rank was in the call when its file was last written.
    Open,
    Done,
    /// The group failed.
    Failed,
    /// The arguments were refused; no other rank has seen the call.
    Refused,
    /// The request was dropped before its end.
    Released,
}

/// One call of one rank. Times are nanoseconds of the host's monotonic clock; in a file with calibrations, readings of the
/// processor's counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The number of the record in its file, from 1.
    pub index: u64,
    /// The entry of the call.
    pub arrival: u64,
    /// The entry of the wait for a non-blocking call; of others, the arrival.
    pub waiting: u64,
    /// The return from the call; 0 if the rank has not seen it.
    pub exit: u64,
    /// The communicator: equal on its ranks.
    pub communicator: u64,
    /// The number of the call on its communicator, from 1, the same on all ranks; 40 bits.
    pub number: u64,
    /// Ranks of the communicator.
    pub size: u32,
    /// Bytes of the largest block, by which algorithms are selected; 48 bits.
    pub bytes: u64,
    /// The place in the order of arrival, from 0, where the algorithm takes one.
    pub place: Option<u16>,
    pub collective: Collective,
    /// The entry of the algorithm's name in the file, where it has one.
    pub algorithm: Option<u8>,
    pub outcome: CallOutcome,
    /// The call was non-blocking or persistent.
    pub is_started: bool,
}

/// The part of a record that is stored when the rank arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub index: u64,
    pub arrival: u64,
    pub communicator: u64,
    pub number: u64,
    pub size: u32,
    pub bytes: u64,
    pub collective: Collective,
    pub is_started: bool,
}

impl Arrival {
    /// The words of a record whose end is not stored, and the sum to which the end is added.
    #[inline(always)]
    pub fn encode(self) -> ([u64; RECORD_WORDS], CheckSum) {
        let call = self.number << 24 | u64::from(self.size) & 0xff_ffff;
        let kind = (self.collective as u64) << 8 | u64::from(self.is_started);
        let data = self.bytes.min((1 << 48) - 1) << 16 | kind;
        let sum = CheckSum::EMPTY.with(2, self.communicator);
        let sum = sum.with(0, self.index).with(1, self.arrival).with(3, call).with(4, data);
        ([self.index, self.arrival, self.communicator, call, data, 0, 0, sum.check() << 32], sum)
    }
}

/// The part of a record that is stored at the end of the call.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// The entry of the wait; 0 if it is the arrival.
    pub waiting: u64,
    pub exit: u64,
    pub place: Option<u16>,
    pub algorithm: Option<u8>,
    pub outcome: CallOutcome,
}

impl End {
    /// The last words of a record whose arrival has left this sum, with their places.
    #[inline(always)]
    pub fn encode(self, sum: CheckSum) -> [(usize, u64); RECORD_WORDS - WAITING] {
        let place = self.place.map_or(0, |place| u64::from(place) + 1) & 0xffff;
        let end = place << 16 | self.algorithm.map_or(0, |entry| u64::from(entry) + 1) << 8 | self.outcome as u64;
        let sum = sum.with(WAITING, self.waiting).with(EXIT, self.exit).with(END, end);
        [(WAITING, self.waiting), (EXIT, self.exit), (END, sum.check() << 32 | end)]
    }
}

impl Record {
    /// The record in these words; `None` where the check does not fit them.
    pub(super) fn decode(words: &[u64; RECORD_WORDS]) -> Option<Record> {
        let mut unchecked = *words;
        unchecked[END] &= u64::from(u32::MAX);
        if words[END] >> 32 != check(&unchecked) {
            return None;
        }
        let [index, arrival, communicator, call, data, waiting, exit, end] = unchecked;
        Some(Record {
            index,
            arrival,
            waiting: if waiting == 0 { arrival } else { waiting },
            exit,
            communicator,
            number: call >> 24,
            size: (call & 0xff_ffff) as u32,
            bytes: data >> 16,
            place: ((end >> 16) as u16).checked_sub(1),
            collective: Collective::from_repr((data >> 8) as u8)?,
            algorithm: ((end >> 8) as u8).checked_sub(1),
            outcome: CallOutcome::from_repr((end & 0xff) as usize)?,
            is_started: data & 1 != 0,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn record(index: u64) -> Record {
        Record {
            index,
            arrival: 1000 * index,
            waiting: 1000 * index,
            exit: 1000 * index + 700,
            communicator: 0xabcd,
            number: index,
            size: 2,
            bytes: 8,
            place: Some(1),
            collective: Collective::AllReduce,
            algorithm: Some(1),
            outcome: CallOutcome::Done,
            is_started: false,
        }
    }

    /// The words of a record at the arrival, and all of them at the end.
    pub fn encode(record: Record) -> [[u64; RECORD_WORDS]; 2] {
        let Record { index, arrival, waiting, exit, communicator, number, size, bytes, .. } = record;
        let Record { place, collective, algorithm, outcome, is_started, .. } = record;
        let waiting = if waiting == arrival { 0 } else { waiting };
        let (open, sum) =
            Arrival { index, arrival, communicator, number, size, bytes, collective, is_started }.encode();
        let mut whole = open;
        for (place, word) in (End { waiting, exit, place, algorithm, outcome }).encode(sum) {
            whole[place] = word;
        }
        [open, whole]
    }

    #[test]
    fn records_come_back_and_every_flipped_bit_is_noticed() {
        let extremes = Record {
            number: (1 << 40) - 1,
            size: (1 << 24) - 1,
            bytes: (1 << 48) - 1,
            waiting: 7500,
            place: Some(u16::MAX - 1),
            algorithm: Some(u8::MAX - 1),
            outcome: CallOutcome::Refused,
            is_started: true,
            ..record(7)
        };
        let of_arrival = |record: Record| {
            let (place, algorithm, outcome) = (None, None, CallOutcome::Open);
            Record { waiting: record.arrival, exit: 0, place, algorithm, outcome, ..record }
        };
        for done in [record(1), extremes, Record { place: None, algorithm: None, ..record(9) }] {
            for (words, whole) in encode(done).into_iter().zip([of_arrival(done), done]) {
                assert_eq!(Record::decode(&words), Some(whole));
                for bit in 0..64 * RECORD_WORDS {
                    let mut damaged = words;
                    damaged[bit / 64] ^= 1 << (bit % 64);
                    assert_eq!(Record::decode(&damaged), None, "bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_record_that_was_stored_in_part_is_noticed() {
        // What the slot held before, and the two stages of a record, each cut after every store.
        let [_, older] = encode(record(1));
        let [open, whole] = encode(Record { waiting: 9100, ..record(9) });
        for (from, to, first) in [(older, open, 0), (open, whole, WAITING)] {
            for stored in first + 1..RECORD_WORDS {
                let mut words = from;
                words[first..stored].copy_from_slice(&to[first..stored]);
                assert_eq!(Record::decode(&words), None, "{stored} words");
            }
        }
    }
}
