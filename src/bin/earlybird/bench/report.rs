//! Rows of the result, as CSV (line by line while the run goes on), JSON or a table.

use super::args::{BenchArgs, Format, Preset};
use super::check::GuidelineReport;
use super::page::page;
use super::row::Row;
use crate::output::print;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use earlybird::{Algorithm, Error};
use std::fs::File;
use std::io::{Write, stdout};

/// Takes rows and writes them to standard output.
pub struct Report {
    format: Format,
    preset: Option<Preset>,
    /// The page, and where it is.
    html: Option<(File, String)>,
    /// The file of `tune` in place of everything else, and the table to add.
    tuned: Option<(String, Option<String>)>,
    rows: Vec<Row>,
    csv: csv::Writer<std::io::Stdout>,
}

impl Report {
    /// Opens the page if there is to be one, before anything is measured.
    ///
    /// # Errors
    /// [`Error::Usage`] if it cannot be written.
    pub fn new(args: &BenchArgs) -> Result<Report, Error> {
        let csv = csv::WriterBuilder::new().has_headers(!args.continued).from_writer(stdout());
        let open = |path: &String| match File::create(path) {
            Ok(file) => Ok((file, path.clone())),
            Err(error) => Err(Error::usage(format!("--html {path}: {error}"))),
        };
        let html = args.html.as_ref().map(open).transpose()?;
        let tuned = args.into.clone().map(|path| (path, None));
        Ok(Report { format: args.format, preset: args.preset, html, tuned, rows: Vec::new(), csv })
    }

    /// Sets the table for the file of `tune`, if there is one.
    pub fn tune(&mut self, table: impl FnOnce() -> Option<String>) {
        if let Some((_, found)) = &mut self.tuned {
            *found = table();
        }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::System`] if standard output cannot be written.
    pub fn add(&mut self, row: Row) -> Result<(), Error> {
        if self.format == Format::Csv {
            self.csv.serialize(&row).map_err(cannot_write)?;
            self.csv.flush().map_err(cannot_write)?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Writes what has not been written yet, and the verdict if there is one; the number of wrong results.
    ///
    /// # Errors
    /// [`Error::System`] if standard output cannot be written.
    pub fn finish(mut self, verdict: Option<&GuidelineReport>) -> Result<u64, Error> {
        if let Some((path, table)) = self.tuned.take() {
            append(&path, &self.rows, table)?;
            return Ok(self.rows.iter().map(|row| row.wrong).sum());
        }
        let text = match self.format {
            Format::Csv => String::new(),
            Format::Json => serde_json::to_string_pretty(&self.rows).map_err(cannot_write)? + "\n",
            Format::Table => match self.preset {
                Some(preset) => preset.side_by_side(&self.rows),
                None => table(&self.rows) + &losses(&self.rows),
            },
        };
        print(&text)?;
        let verdict = verdict.map(GuidelineReport::to_text);
        if let Some((mut file, path)) = self.html {
            let page = page(&self.rows, verdict.as_deref().unwrap_or_default())?;
            let written = file.write_all(page.as_bytes());
            written.map_err(|error| Error::system("write the page", format!("{path}: {error}")))?;
        }
        match (verdict, self.format) {
            (None, _) => {}
            (Some(verdict), Format::Table) => print(&verdict)?,
            (Some(verdict), Format::Csv | Format::Json) => {
                earlybird::launch::say(format_args!("{}", verdict.trim_end()))
            }
        }
        Ok(self.rows.iter().map(|row| row.wrong).sum())
    }
}

/// Adds a line to the file of `tune`.
fn append(path: &str, rows: &[Row], table: Option<String>) -> Result<(), Error> {
    let Some(first) = rows.first() else { return Ok(()) };
    let line = match table {
        Some(table) => format!("{} {} {table}\n", first.ranks, first.op),
        None => format!("# {} {}: auto everywhere\n", first.ranks, first.op),
    };
    let file = File::options().append(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|error| Error::system("write the tuning", error))
}

fn cannot_write(error: impl ToString + 'static) -> Error {
    Error::system("write the result", error)
}

/// The tail relative to that of static-leader in the same cell, if that was measured.
fn ratio(row: &Row, rows: &[Row]) -> Option<f64> {
    let same_cell = |other: &&Row| other.bytes == row.bytes && other.pattern == row.pattern && other.mif == row.mif;
    let baseline = rows.iter().filter(same_cell).find(|other| other.algorithm == Algorithm::StaticLeader.name())?;
    Some(row.tail_us_median / baseline.tail_us_median)
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "bytes",
        "pattern",
        "delay us",
        "algorithm",
        "chosen",
        "calls",
        "tail us",
        "p99",
        "latency us",
        "call us",
        "cpu us",
        "tail vs static-leader",
        "wrong",
    ]);
    for row in rows {
        let relative = ratio(row, rows).map_or("-".into(), |ratio| format!("{ratio:.2}x"));
        table.add_row([
            row.bytes.to_string(),
            row.pattern.into(),
            format!("{:.1}", row.delay_us),
            row.algorithm.clone(),
            row.chosen.clone(),
            row.iterations.to_string(),
            format!("{:.2}", row.tail_us_median),
            format!("{:.2}", row.tail_us_p99),
            format!("{:.2}", row.latency_us_median),
            format!("{:.2}", row.call_us_mean),
            format!("{:.2}", row.cpu_us_mean),
            relative,
            row.wrong.to_string(),
        ]);
    }
    for index in [0, 2, 5, 6, 7, 8, 9, 10, 11, 12] {
        table.column_mut(index).expect("the table has 13 columns").set_cell_alignment(CellAlignment::Right);
    }
    let first = rows.first().map_or(String::new(), |row| {
        format!("{} on {} ranks, elements {}, fold order {}\n", row.op, row.ranks, row.dtype, row.order)
    });
    let words = "tail = last exit - last arrival, latency = last exit - first arrival (medians, p99 of the tail); \
                 call, cpu = mean time and processor time per rank and call\n";
    format!("{first}{table}\n{words}")
}

/// The rows in which an algorithm is slower than the baseline, worst first.
fn losses(rows: &[Row]) -> String {
    let mut lost: Vec<(f64, &Row)> =
        rows.iter().filter_map(|row| Some((ratio(row, rows)?, row))).filter(|(ratio, _)| *ratio >= 1.005).collect();
    lost.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let compared = rows.iter().filter(|row| row.algorithm != Algorithm::StaticLeader.name());
    let compared = compared.filter(|row| ratio(row, rows).is_some()).count();
    if compared == 0 {
        return String::new();
    }
    let mut text = format!("longer tail than static-leader in {} of {compared} comparisons\n", lost.len());
    for (ratio, row) in lost {
        text += &format!("  {ratio:.2}x  {:>9} bytes  {:<10} {}\n", row.bytes, row.pattern, row.algorithm);
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
                      call_us_mean,cpu_us_mean,wrong,nodes,mif,delay_us,order,buffers,chosen";
        let values = "allreduce,2,8,f32,random,flat,10,1.5,9.0,3.0,2.0,1.0,0,1,10.0,5.0,arrival,private,flat";
        assert_eq!(text, format!("{header}\n{values}\n"));
    }

    #[test]
    fn losses_are_named_worst_first() {
        let rows = [
            row(8, "static-leader", 2.0),
            row(8, "flat", 1.0),
            row(8, "chain", 3.0),
            row(64, "static-leader", 1.0),
            row(64, "flat", 4.0),
            row(425, "flat", 9.0),
        ];
        let text = losses(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "longer tail than static-leader in 2 of 3 comparisons");
        assert!(lines[1].contains("4.00x") && lines[1].contains("64 bytes"), "{text}");
        assert!(lines[2].contains("1.50x") && lines[2].contains("chain"), "{text}");
        assert_eq!(lines.len(), 3);
        assert!(table(&rows).contains("0.50x"));
        assert_eq!(losses(&rows[5..]), "");
    }
}
