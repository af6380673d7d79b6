//! The rows of the result.

use serde::Serialize;

/// One line of the result. Field names and their order are the CSV's header.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub op: &'static str,
    pub ranks: usize,
    pub bytes: u64,
    pub dtype: &'static str,
    pub pattern: &'static str,
    pub algorithm: String,
    pub iterations: usize,
    pub tail_us_median: f64,
    pub tail_us_p99: f64,
    pub latency_us_median: f64,
    pub call_us_mean: f64,
    pub cpu_us_mean: f64,
    pub wrong: u64,
    pub nodes: usize,
    /// Nothing where the delay was given instead.
    pub mif: Option<f64>,
    pub delay_us: f64,
    pub order: &'static str,
    pub buffers: &'static str,
    pub chosen: String,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn row(bytes: u64, algorithm: &'static str, tail_us_median: f64) -> Row {
        Row {
            op: "allreduce",
            ranks: 2,
            bytes,
            dtype: "f32",
            pattern: "random",
            algorithm: algorithm.into(),
            iterations: 10,
            tail_us_median,
            tail_us_p99: 9.0,
            latency_us_median: 3.0,
            call_us_mean: 2.0,
            cpu_us_mean: 1.0,
            wrong: 0,
            nodes: 1,
            mif: Some(10.0),
            delay_us: 5.0,
            order: "arrival",
            buffers: "private",
            chosen: algorithm.into(),
        }
    }
}
