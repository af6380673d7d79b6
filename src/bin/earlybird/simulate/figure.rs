//! The result of a simulation: points of curves, each with its row of the table.

use crate::chart::Chart;
use crate::table::table;
use clap::ValueEnum;
use serde::Serialize;

/// The reported time of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    Time,
    Tail,
}

/// One line of the result. Field names and their order are the CSV's header.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulatedRow {
    pub algorithm: String,
    pub parameters: String,
    pub ranks: usize,
    pub bytes: u64,
    pub pattern: &'static str,
    pub time_us: f64,
    pub rounds: usize,
}

/// The quantity of the x axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    Bytes,
    Ranks,
    /// Latency-optimal steps of a butterfly.
    Steps,
    /// The delay as a multiple of the balanced time.
    Imbalance,
}

/// A point of the curve `series`.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub series: String,
    pub x: f64,
    pub y: f64,
    pub row: SimulatedRow,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub title: String,
    pub axis: Axis,
    /// y is a ratio, not microseconds.
    pub relative: bool,
    pub points: Vec<Point>,
    pub measure: Measure,
}

impl Figure {
    /// The curves.
    pub fn chart(&self) -> Chart {
        Chart {
            title: self.title.clone(),
            bytes: self.axis == Axis::Bytes,
            dots: false,
            x_name: match self.axis {
                Axis::Bytes => "bytes",
                Axis::Ranks => "ranks",
                Axis::Steps => "latency-optimal steps r",
                Axis::Imbalance => "delay, in balanced times (MIF)",
            },
            y_name: match (self.relative, self.measure) {
                (true, _) => "time, relative to the best",
                (false, Measure::Time) => "time in µs",
                (false, Measure::Tail) => "tail in µs",
            },
            points: self.points.iter().map(|p| (p.series.clone(), p.x, p.y)).collect(),
        }
    }

    /// Rows for a program.
    pub fn csv(&self) -> Result<String, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for point in &self.points {
            writer.serialize(&point.row)?;
        }
        let bytes = writer.into_inner().map_err(|error| error.into_error())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Rows for a reader.
    pub fn table(&self) -> String {
        let time = if self.measure == Measure::Tail { "tail us" } else { "time us" };
        let header = ["algorithm", "parameters", "ranks", "bytes", "pattern", time, "rounds"];
        let cells = |Point { row, .. }: &Point| {
            let (ranks, bytes, rounds) = (row.ranks.to_string(), row.bytes.to_string(), row.rounds.to_string());
            let (time, pattern) = (format!("{:.2}", row.time_us), row.pattern.to_string());
            vec![row.algorithm.clone(), row.parameters.clone(), ranks, bytes, pattern, time, rounds]
        };
        format!("{}\n{}\n", self.title, table(&header, self.points.iter().map(cells).collect()))
    }
}
