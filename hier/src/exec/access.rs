//! Data dependencies between instructions: for every byte of a buffer, the last writer and the readers since.

use super::program::Span;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
struct AccessedRange {
    end: usize,
    writer: Option<u32>,
    readers: Vec<u32>,
}

/// The accesses to one buffer while a program is read in order.
#[derive(Debug, Default)]
pub(super) struct AccessHistory(BTreeMap<usize, AccessedRange>);

impl AccessHistory {
    /// Makes `at` a border between ranges.
    fn split(&mut self, at: usize) {
        let Some((_, cell)) = self.0.range_mut(..at).next_back() else { return };
        if cell.end > at {
            let right = cell.clone();
            cell.end = at;
            self.0.insert(at, right);
        }
    }

    /// Records that `reader` reads the span: `reader` waits for the last writers.
    pub(super) fn read(&mut self, span: Span, reader: u32, waits_for: &mut Vec<u32>) {
        self.split(span.first);
        self.split(span.end);
        let mut at = span.first;
        while at < span.end {
            let next = self.0.range(at..span.end).next().map_or(span.end, |(first, _)| *first);
            if next > at {
                self.0.insert(at, AccessedRange { end: next, writer: None, readers: vec![reader] });
                at = next;
                continue;
            }
            let Some(cell) = self.0.get_mut(&at) else { unreachable!("a cell begins at `next`") };
            waits_for.extend(cell.writer);
            cell.readers.push(reader);
            at = cell.end;
        }
    }

    /// Records that `writer` writes the span: `writer` waits for all readers since the last writer, or for that one.
    pub(super) fn write(&mut self, span: Span, writer: u32, waits_for: &mut Vec<u32>) {
        self.split(span.first);
        self.split(span.end);
        while let Some(first) = self.0.range(span.first..span.end).next().map(|(first, _)| *first) {
            let Some(cell) = self.0.remove(&first) else { unreachable!("the key was just read") };
            // The readers have waited for the last writer.
            match cell.readers.is_empty() {
                true => waits_for.extend(cell.writer),
                false => waits_for.extend(cell.readers),
            }
        }
        self.0.insert(span.first, AccessedRange { end: span.end, writer: Some(writer), readers: Vec::new() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_wait_for_readers_and_readers_for_writers() {
        let mut history = AccessHistory::default();
        let span = |first, end| Span { first, end };
        let mut waits = |write: bool, first, end, id| {
            let mut found = Vec::new();
            match write {
                true => history.write(span(first, end), id, &mut found),
                false => history.read(span(first, end), id, &mut found),
            }
            found.sort_unstable();
            found.dedup();
            found
        };
        assert_eq!(waits(true, 10, 20, 1), [0; 0]);
        assert_eq!(waits(false, 0, 15, 2), [1]);
        assert_eq!(waits(true, 12, 30, 3), [1, 2], "12..15 was read, 15..20 only written");
        assert_eq!(waits(true, 0, 5, 4), [2], "never written, but read");
        assert_eq!(waits(false, 0, 40, 5), [1, 3, 4]);
        assert_eq!(waits(true, 35, 36, 6), [5]);
    }
}
