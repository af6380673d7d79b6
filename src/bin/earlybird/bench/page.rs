//! The result as a page: curves of the tail over the size for every pattern and delay, and all rows below. One file, nothing
//! fetched.

use super::row::Row;
use crate::chart::{Chart, svg};
use earlybird::Error;
use itertools::Itertools;

const STYLE: &str = "body{font-family:sans-serif;margin:2em;color:#222}table{border-collapse:collapse;font-size:.85em}\
                     td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}\
                     :is(td,th):is(:nth-child(2),:nth-child(4),:nth-child(5)){text-align:left}td.bad{background:#fbb}svg{max-width:100%;height:auto}";

/// The page. `notes` stands below the curves as it is.
///
/// # Errors
/// [`Error::System`] if a picture cannot be drawn.
pub fn page(rows: &[Row], notes: &str) -> Result<String, Error> {
    let Some(first) = rows.first() else {
        return Err(Error::usage("nothing was measured, so there is nothing to draw"));
    };
    let title = format!("earlybird bench {}, {} ranks on {} node(s)", first.op, first.ranks, first.nodes);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<p>Elements {}, fold order {}, buffers {}. Tail = last arrival to last exit, median.</p>\n",
        first.dtype, first.order, first.buffers
    );
    for case in rows.iter().unique_by(|row| (row.pattern, row.mif.map(f64::to_bits))) {
        let (pattern, mif) = (case.pattern, case.mif);
        let of = rows.iter().filter(|row| row.pattern == pattern && row.mif == mif);
        let delay = match (pattern, mif) {
            ("balanced", _) | (_, None) => String::new(),
            (_, Some(mif)) => format!(", full delay {mif} balanced times"),
        };
        let chart = Chart {
            title: format!("{} {pattern}{delay}", first.op),
            bytes: true,
            dots: false,
            x_name: "bytes",
            y_name: "tail in µs",
            points: of.map(|row| (row.algorithm.clone(), row.bytes as f64, row.tail_us_median)).collect(),
        };
        page += &svg(&chart)?;
        page.push('\n');
    }
    if !notes.is_empty() {
        page += &format!("<pre>{}</pre>\n", escaped(notes));
    }
    page += &format!("<table><tr><th>{}</tr>\n", Row::COLUMNS.join("<th>"));
    for row in rows {
        let bad = if row.wrong > 0 { " class=bad" } else { "" };
        let [cells @ .., wrong] = row.cells().map(|cell| escaped(&cell));
        page += &format!("<tr><td>{}<td{bad}>{wrong}</tr>\n", cells.join("<td>"));
    }
    page += "</table></body></html>\n";
    Ok(page)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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
        assert_eq!([page.matches("<svg").count(), page.matches("<tr><td>").count()], [2, 5]);
        assert!(page.contains("full delay 10 balanced times") && page.contains("auto &lt;= 1.10"));
        assert_eq!(page.matches("<td class=bad>7").count(), 1);
        assert!(!page.contains("http://") || page.matches("http").count() == page.matches("http://www.w3.org").count());
    }

    #[test]
    fn nothing_measured_is_refused() {
        assert_eq!(super::page(&[], "").expect_err("no rows").code(), "EB_USAGE");
    }
}
