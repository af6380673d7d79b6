//! Rows of the result, as CSV (line by line while the run goes on), JSON or a table.

use super::args::{BenchArgs, Format};
use super::check::judge;
use super::choosing::tuning_lines;
use super::page::page;
use super::row::Row;
use super::stats::{Bounds, Caveat, Verdict};
use crate::output::{json, print, write_file};
use crate::table::{markdown, table, table_of};
use earlybird::launch::say;
use earlybird::{Algorithm, Error};
use std::fs::File;
use std::io::Write;
use strum::VariantArray;

/// The rows of a benchmark, which it writes to standard output in the form that the arguments ask for.
pub struct Report<'a> {
    args: &'a BenchArgs,
    rows: Vec<Row>,
    /// The header of the CSV has been written.
    has_header: bool,
}

impl<'a> Report<'a> {
    /// A report without rows.
    pub fn new(args: &'a BenchArgs) -> Self {
        Report { args, rows: Vec::new(), has_header: args.continued }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::System`] if standard output cannot be written.
    pub fn add(&mut self, row: Row) -> Result<(), Error> {
        if self.args.format == Format::Csv {
            let header = !std::mem::replace(&mut self.has_header, true);
            let mut csv = csv::WriterBuilder::new().has_headers(header).from_writer(Vec::new());
            csv.serialize(&row).map_err(cannot_write)?;
            print(&String::from_utf8_lossy(&csv.into_inner().map_err(cannot_write)?))?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Writes the rows that have not been written yet and, with `--check`, the verdict. Returns the exit code: 1 for a wrong
    /// result or a violated guideline.
    ///
    /// # Errors
    /// [`Error::System`] if standard output cannot be written.
    pub fn finish(self) -> Result<u8, Error> {
        let wrong: u64 = self.rows.iter().map(|row| row.wrong).sum();
        let verdict = self.args.check.then(|| judge(&self.rows));
        let failed = wrong > 0 || verdict.as_ref().is_some_and(|verdict| verdict.violations() > 0);
        self.write(verdict.map(|verdict| verdict.to_text()))?;
        if wrong > 0 {
            say(format_args!("earlybird bench: {wrong} wrong results; see the column `wrong`"));
        }
        Ok(u8::from(failed))
    }

    fn write(self, verdict: Option<String>) -> Result<(), Error> {
        let BenchArgs { format, preset, html, into: tuning_file, .. } = self.args;
        if let Some(path) = tuning_file {
            return append(path, &self.rows);
        }
        let text = match (format, preset) {
            (Format::Csv, _) => String::new(),
            (Format::Json, _) => json(&self.rows),
            (Format::Table | Format::Markdown, Some(preset)) => preset.side_by_side(&self.rows),
            (Format::Markdown, None) => result_table(&self.rows, markdown),
            (Format::Table, None) => result_table(&self.rows, table) + &losses(&self.rows),
        };
        print(&text)?;
        caveats(&self.rows).into_iter().for_each(|caveat| say(format_args!("earlybird bench: warning: {caveat}")));
        if let Some(path) = html {
            let page = page(&self.rows, verdict.as_deref().unwrap_or_default())?;
            write_file(path, &page)?;
        }
        match (verdict, format) {
            (None, _) => Ok(()),
            (Some(verdict), Format::Table | Format::Markdown) => print(&verdict),
            (Some(verdict), Format::Csv | Format::Json) => {
                say(format_args!("{}", verdict.trim_end()));
                Ok(())
            }
        }
    }
}

/// Adds lines to the file of `tune`.
fn append(path: &str, rows: &[Row]) -> Result<(), Error> {
    let file = File::options().append(true).open(path);
    file.and_then(|mut file| file.write_all(tuning_lines(rows).as_bytes()))
        .map_err(|error| Error::system("write the tuning", error))
}

fn cannot_write(error: impl ToString + 'static) -> Error {
    Error::system("write the result", error)
}

/// The rows with their ratios before the number of wrong results, drawn by `table`.
fn result_table(rows: &[Row], table: fn(&[&'static str], Vec<Vec<String>>) -> String) -> String {
    let cells = |row: &Row| {
        let ratio = row.versus_baseline.map_or("-".into(), |ratio| format!("{:.2}x", ratio.median));
        let mut cells = row.cells().to_vec();
        cells.insert(cells.len() - 1, ("tail vs static-leader", ratio));
        cells
    };
    let table = table_of(rows.iter().map(cells), table);
    let first = rows.first().map_or(String::new(), |row| {
        let skew = if row.skew > 0 { format!(", blocks {} % longer and shorter", row.skew) } else { String::new() };
        format!("{} on {} ranks, elements {}, fold order {}{skew}\n", row.op, row.ranks, row.dtype, row.order)
    });
    let words = "tail = last exit - last arrival, latency = last exit - first arrival (medians, p99 of the tail); \
                 call, cpu = mean time and processor time per rank and call\n";
    format!("{first}\n{table}\n\n{words}{}", overlaps(rows))
}

/// The overlap of started calls with the computation, where ranks compute: the part of the blocking call's time that they hide.
fn overlaps(rows: &[Row]) -> String {
    let mut text = String::new();
    let computing = || rows.iter().filter(|row| row.compute_us > 0.0);
    for row in computing() {
        let blocking = match &*row.algorithm {
            "started" => Algorithm::Auto.name(),
            "mpi-started" => "mpi",
            _ => continue,
        };
        let Some(blocking) = computing().find(|other| other.algorithm == blocking && other.is_comparable_to(row))
        else {
            continue;
        };
        let (alone_us, left_us) = (blocking.call_us_mean, row.call_us_mean);
        let hidden = match 100.0 * (1.0 - left_us / alone_us) {
            percent if percent > 0.0 => format!("{percent:.0} %"),
            _ => "nothing".to_owned(),
        };
        let words =
            format!("{hidden} of a call's {alone_us:.2} us hidden behind the computation, {left_us:.2} us left");
        text += &format!("  {:>9} bytes  {:<10} {}: {words}\n", row.bytes, row.pattern, row.algorithm);
    }
    text
}

/// Each reason to distrust rows, with their number.
fn caveats(rows: &[Row]) -> Vec<String> {
    let count = |caveat: &Caveat| rows.iter().filter(|row| row.caveats.contains(caveat)).count();
    let unreliable = Caveat::VARIANTS.iter().map(|caveat| (caveat, count(caveat))).filter(|(_, count)| *count > 0);
    unreliable.map(|(caveat, count)| format!("in {count} of {} rows {caveat}", rows.len())).collect()
}

/// The comparisons with the baseline by their verdicts, and the rows that lose beyond the noise, worst first.
fn losses(rows: &[Row]) -> String {
    let compared = rows.iter().filter(|row| row.algorithm != Algorithm::StaticLeader.name());
    let compared: Vec<(Bounds, &Row)> = compared.filter_map(|row| Some((row.versus_baseline?, row))).collect();
    let count = |verdict| compared.iter().filter(|(ratio, _)| Verdict::of(*ratio) == verdict).count();
    if compared.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "tail against static-leader in {} comparisons: shorter in {}, longer in {}, no difference beyond the noise in {}\n",
        compared.len(),
        count(Verdict::Faster),
        count(Verdict::Slower),
        count(Verdict::NoDifference),
    );
    let mut lost: Vec<_> = compared.iter().filter(|(ratio, _)| Verdict::of(*ratio) == Verdict::Slower).collect();
    lost.sort_by(|(a, _), (b, _)| b.median.total_cmp(&a.median));
    for (Bounds { low, median, high }, row) in lost {
        let interval = format!("{median:.2}x ({low:.2} to {high:.2})");
        text += &format!("  {interval:<23} {:>9} bytes  {:<10} {}\n", row.bytes, row.pattern, row.algorithm);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn the_header_is_the_public_one() {
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.serialize(row(8, "flat", 1.5)).expect("serialize");
        let text = String::from_utf8(csv.into_inner().expect("flush")).expect("utf-8");
        let header = "op,ranks,bytes,dtype,pattern,algorithm,iterations,tail_us_median,tail_us_p99,latency_us_median,\
                      call_us_mean,cpu_us_mean,wrong,nodes,mif,delay_us,order,buffers,chosen,compute_us,skew";
        let values = "allreduce,2,8,f32,random,flat,10,1.5,9.0,3.0,2.0,1.0,0,1,10.0,5.0,arrival,private,flat,0.0,0";
        assert_eq!(text, format!("{header}\n{values}\n"));
    }

    #[test]
    fn the_overlap_is_a_part_of_the_blocking_call() {
        let computing = |algorithm, call_us_mean| Row { compute_us: 100.0, call_us_mean, ..row(8, algorithm, 120.0) };
        let text = overlaps(&[computing("auto", 20.0), computing("started", 5.0), computing("flat", 10.0)]);
        assert!(text.contains("75 % of a call's 20.00 us hidden behind the computation, 5.00 us left"), "{text}");
        let text = overlaps(&[computing("auto", 20.0), computing("started", 25.0)]);
        assert!(text.contains("nothing of a call's 20.00 us hidden behind the computation, 25.00 us left"), "{text}");
        assert_eq!(overlaps(&[computing("auto", 20.0), Row { bytes: 9, ..computing("started", 5.0) }]), "");
        assert_eq!(overlaps(&[row(8, "auto", 20.0), row(8, "started", 20.0)]), "");
    }

    #[test]
    fn unreliable_rows_are_counted() {
        let unreliable = Row { caveats: vec![Caveat::Outliers], ..row(8, "flat", 1.0) };
        let sentences = caveats(&[unreliable.clone(), row(8, "chain", 1.0), unreliable]);
        assert!(
            matches!(&sentences[..], [one] if one.starts_with("in 2 of 3 rows more than one call")),
            "{sentences:?}"
        );
    }

    /// A row whose tail is this many times that of static-leader, give or take `spread`.
    fn compared(bytes: u64, algorithm: &'static str, ratio: f64, spread: f64) -> Row {
        let versus = Bounds { low: ratio * (1.0 - spread), median: ratio, high: ratio * (1.0 + spread) };
        Row { versus_baseline: Some(versus), ..row(bytes, algorithm, ratio) }
    }

    #[test]
    fn losses_beyond_the_noise_are_named_worst_first() {
        let rows = [
            compared(8, "static-leader", 1.0, 0.0),
            compared(8, "flat", 0.5, 0.1),
            compared(8, "chain", 1.5, 0.1),
            compared(64, "flat", 4.0, 0.1),
            compared(64, "chain", 1.3, 0.4),
            row(425, "flat", 9.0),
        ];
        let text = losses(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("4 comparisons: shorter in 1, longer in 2, no difference beyond the noise in 1"));
        assert!(lines[1].contains("4.00x (3.60 to 4.40)") && lines[1].contains("64 bytes"), "{text}");
        assert!(lines[2].contains("1.50x") && lines[2].contains("chain"), "{text}");
        assert_eq!(lines.len(), 3);
        assert!(result_table(&rows, table).contains("0.50x"));
        assert!(result_table(&rows, markdown).contains("| bytes | pattern |"), "{}", result_table(&rows, markdown));
        assert_eq!(losses(&rows[5..]), "");
    }
}
