//! The result as a page: curves of the tail over the size for every pattern and delay, and all rows below.

use super::row::Row;
use crate::chart::Chart;
use crate::page::Page;
use earlybird::Error;
use itertools::Itertools;

/// The page. `notes` stands below the curves as it is.
///
/// # Errors
/// [`Error::System`] if a picture cannot be drawn.
pub fn page(rows: &[Row], notes: &str) -> Result<String, Error> {
    let Some(first) = rows.first() else {
        return Err(Error::usage("nothing was measured, so there is nothing to draw"));
    };
    let mut page =
        Page::new(&format!("earlybird bench {}, {} ranks on {} node(s)", first.op, first.ranks, first.nodes));
    page.add_paragraph(&format!(
        "Elements {}, fold order {}, buffers {}. Tail = last arrival to last exit, median.",
        first.dtype, first.order, first.buffers
    ));
    for case in rows.iter().unique_by(|row| (row.pattern, row.mif.map(f64::to_bits))) {
        let (pattern, mif) = (case.pattern, case.mif);
        let of = rows.iter().filter(|row| row.pattern == pattern && row.mif == mif);
        let delay = match (pattern, mif) {
            ("balanced", _) | (_, None) => String::new(),
            (_, Some(mif)) => format!(", full delay {mif} balanced times"),
        };
        page.add_chart(&Chart {
            title: format!("{} {pattern}{delay}", first.op),
            bytes: true,
            dots: false,
            x_name: "bytes",
            y_name: "tail in µs",
            points: of.map(|row| (row.algorithm.clone(), row.bytes as f64, row.tail_us_median)).collect(),
        })?;
    }
    if !notes.is_empty() {
        page.add_plain(notes);
    }
    let cells = rows.iter().map(Row::cells).collect_vec();
    let is_bad = |column: &str, cell: &str| column == "wrong" && cell != "0";
    page.add_table(&cells, &["pattern", "algorithm", "chosen"], is_bad);
    Ok(page.finish())
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn every_pattern_has_its_curves_and_every_row_its_line() {
        let balanced = |bytes, us| Row { pattern: "balanced", ..row(bytes, "flat", us) };
        let mut rows =
            vec![row(8, "flat", 1.0), row(64, "flat", 2.0), row(8, "chain", 3.0), balanced(8, 4.0), balanced(64, 5.0)];
        rows[2].wrong = 7;
        let page = page(&rows, "auto <= 1.10 x flat").expect("a page");
        assert_eq!([page.matches("<svg").count(), page.matches("<tr><td").count()], [2, 5]);
        assert!(page.contains("full delay 10 balanced times") && page.contains("auto &lt;= 1.10"));
        assert_eq!(page.matches("<td class=bad>7").count(), 1);
        assert!(!page.contains("http://") || page.matches("http").count() == page.matches("http://www.w3.org").count());
    }

    #[test]
    fn nothing_measured_is_refused() {
        assert_eq!(super::page(&[], "").expect_err("no rows").code(), "EB_USAGE");
    }
}
