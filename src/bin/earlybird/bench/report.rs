//! Rows of the result, as CSV (line by line while the run goes on), JSON or a table.

use super::args::{BenchArgs, Format, Preset};
use super::check::judge;
use super::choosing::size_table;
use super::page::page;
use super::row::Row;
use crate::output::print;
use crate::table::table;
use earlybird::launch::say;
use earlybird::{Algorithm, Error};
use std::fs::File;
use std::io::{Write, stdout};

/// Takes rows and writes them to standard output.
pub struct Report {
    format: Format,
    preset: Option<Preset>,
    /// The page, and where it is.
    html: Option<(File, String)>,
    /// The file of `tune`, to which a table is added in place of everything else.
    tuned: Option<String>,
    checked: bool,
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
        let (tuned, checked) = (args.into.clone(), args.check);
        Ok(Report { format: args.format, preset: args.preset, html, tuned, checked, rows: Vec::new(), csv })
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

    /// Writes the rows that have not been written yet and, with `--check`, the verdict. Returns the exit code: 1 for a wrong
    /// result or a violated guideline.
    ///
    /// # Errors
    /// [`Error::System`] if standard output cannot be written.
    pub fn finish(self) -> Result<u8, Error> {
        let wrong: u64 = self.rows.iter().map(|row| row.wrong).sum();
        let verdict = self.checked.then(|| judge(&self.rows));
        let failed = wrong > 0 || verdict.as_ref().is_some_and(|verdict| verdict.violations() > 0);
        self.write(verdict.map(|verdict| verdict.to_text()))?;
        if wrong > 0 {
            say(format_args!("earlybird bench: {wrong} wrong results; see the column `wrong`"));
        }
        Ok(u8::from(failed))
    }

    fn write(self, verdict: Option<String>) -> Result<(), Error> {
        if let Some(path) = &self.tuned {
            return append(path, &self.rows);
        }
        let text = match self.format {
            Format::Csv => String::new(),
            Format::Json => serde_json::to_string_pretty(&self.rows).map_err(cannot_write)? + "\n",
            Format::Table => match self.preset {
                Some(preset) => preset.side_by_side(&self.rows),
                None => result_table(&self.rows) + &losses(&self.rows),
            },
        };
        print(&text)?;
        if let Some((mut file, path)) = self.html {
            let page = page(&self.rows, verdict.as_deref().unwrap_or_default())?;
            let written = file.write_all(page.as_bytes());
            written.map_err(|error| Error::system("write the page", format!("{path}: {error}")))?;
        }
        match (verdict, self.format) {
            (None, _) => Ok(()),
            (Some(verdict), Format::Table) => print(&verdict),
            (Some(verdict), Format::Csv | Format::Json) => {
                say(format_args!("{}", verdict.trim_end()));
                Ok(())
            }
        }
    }
}

/// Adds a line to the file of `tune`.
fn append(path: &str, rows: &[Row]) -> Result<(), Error> {
    let Some(first) = rows.first() else { return Ok(()) };
    let line = match size_table(rows) {
        Some(table) => format!("ranks.{}.{} = \"{table}\"\n", first.ranks, first.op),
        None => format!("# ranks.{}.{}: auto everywhere\n", first.ranks, first.op),
    };
    let file = File::options().append(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|error| Error::system("write the tuning", error))
}

fn cannot_write(error: impl ToString + 'static) -> Error {
    Error::system("write the result", error)
}

/// The tail relative to that of static-leader in the same cell, if that was measured.
fn ratio(row: &Row, rows: &[Row]) -> Option<f64> {
    let is_baseline = |other: &&Row| other.is_beside(row) && other.algorithm == Algorithm::StaticLeader.name();
    Some(row.tail_us_median / rows.iter().find(is_baseline)?.tail_us_median)
}

/// The rows with their ratios before the number of wrong results.
fn result_table(rows: &[Row]) -> String {
    let with_ratio = |cells: &[String], ratio: String| [&cells[..11], &[ratio], &cells[11..]].concat();
    let header = with_ratio(&Row::COLUMNS.map(str::to_owned), "tail vs static-leader".into());
    let cells =
        |row: &Row| with_ratio(&row.cells(), ratio(row, rows).map_or("-".into(), |ratio| format!("{ratio:.2}x")));
    let table = table(&header, rows.iter().map(cells).collect());
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
        assert!(result_table(&rows).contains("0.50x"));
        assert_eq!(losses(&rows[5..]), "");
    }
}
