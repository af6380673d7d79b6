//! Marks the lines of every rank with its number, whole lines at a time, so that ranks never mix within a line.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// One thread per stream of every rank.
pub(super) struct Readers {
    ended: Sender<()>,
    ends: Receiver<()>,
    running: usize,
}

impl Default for Readers {
    fn default() -> Self {
        let (ended, ends) = channel();
        Readers { ended, ends, running: 0 }
    }
}

impl Readers {
    /// Reads what `child` writes from now on.
    pub(super) fn add(&mut self, rank: usize, child: &mut Child) {
        if let Some(stream) = child.stdout.take() {
            self.copy(rank, stream, std::io::stdout);
        }
        if let Some(stream) = child.stderr.take() {
            self.copy(rank, stream, std::io::stderr);
        }
    }

    fn copy<W: Write + 'static>(&mut self, rank: usize, from: impl Read + Send + 'static, to: fn() -> W) {
        self.running += 1;
        let ended = self.ended.clone();
        std::thread::spawn(move || {
            let _ = copy_lines(rank, from, to);
            let _ = ended.send(());
        });
    }

    /// Waits until all has been written. A process that left its rank's group may hold a stream open for ever; it is
    /// waited for 1 s and then left alone.
    pub(super) fn finish(mut self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        while self.running > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.ends.recv_timeout(left).is_err() {
                return;
            }
            self.running -= 1;
        }
    }
}

/// Most bytes of a line that are buffered; a longer line is broken, and its rest is marked as a continuation.
const LINE_BYTES: u64 = 64 << 10;

/// Copies line by line; a last line without an end gets one. One write per line keeps lines whole.
fn copy_lines<W: Write>(rank: usize, from: impl Read, to: fn() -> W) -> std::io::Result<()> {
    let mut from = BufReader::new(from);
    let (mut line, mut continues) = (Vec::new(), false);
    loop {
        line.extend(format!("[{rank}{}] ", if continues { "+" } else { "" }).as_bytes());
        let count = from.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line)?;
        let ended = line.last() == Some(&b'\n');
        match (count, ended) {
            (0, _) => return Ok(()),
            // The end of a line whose last piece was full.
            (1, true) if continues => {}
            _ => {
                line.extend((!ended).then_some(b'\n'));
                let mut to = to();
                to.write_all(&line)?;
                to.flush()?;
            }
        }
        continues = !ended;
        line.clear();
    }
}
