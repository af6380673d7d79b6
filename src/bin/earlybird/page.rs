//! An HTML page with the results of a command: pictures, text, tables, in one file without references to others.

use crate::chart::{Chart, svg};
use earlybird::Error;

const STYLE: &str = "body{font-family:sans-serif;margin:2em;color:#222}table{border-collapse:collapse;font-size:.85em}\
                     td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}:is(td,th).word{text-align:left}\
                     td.bad{background:#fbb}svg{max-width:100%;height:auto}pre{overflow-x:auto}";

/// A page under construction.
pub struct Page {
    html: String,
}

impl Page {
    /// A page with this title and heading.
    pub fn new(title: &str) -> Page {
        let title = escaped(title);
        Page {
            html: format!(
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\n\
                 <body><h1>{title}</h1>\n"
            ),
        }
    }

    /// Adds a paragraph.
    pub fn add_paragraph(&mut self, text: &str) {
        self.html += &format!("<p>{}</p>\n", escaped(text));
    }

    /// Adds text whose columns stand below each other.
    pub fn add_plain(&mut self, text: &str) {
        self.html += &format!("<pre>{}</pre>\n", escaped(text));
    }

    /// Adds curves.
    ///
    /// # Errors
    /// [`Error::System`] if they cannot be drawn.
    pub fn add_chart(&mut self, chart: &Chart) -> Result<(), Error> {
        self.add_svg(&svg(chart)?);
        Ok(())
    }

    /// Adds a picture.
    pub fn add_svg(&mut self, svg: &str) {
        self.html += svg;
        self.html.push('\n');
    }

    /// Adds a table of rows of columns and cells. The columns of `words` stand on the left; `is_bad` marks cells.
    pub fn add_table<const N: usize>(
        &mut self,
        rows: &[[(&str, String); N]],
        words: &[&str],
        is_bad: impl Fn(&str, &str) -> bool,
    ) {
        let class = |column: &str| if words.contains(&column) { " class=word" } else { "" };
        let heads = rows.iter().take(1).flatten().map(|(column, _)| format!("<th{}>{column}", class(column)));
        self.html += &format!("<table><tr>{}</tr>\n", heads.collect::<String>());
        for row in rows {
            let cells = row.iter().map(|(column, cell)| {
                let class = if is_bad(column, cell) { " class=bad" } else { class(column) };
                format!("<td{class}>{}", escaped(cell))
            });
            self.html += &format!("<tr>{}</tr>\n", cells.collect::<String>());
        }
        self.html += "</table>\n";
    }

    /// The text of the file.
    pub fn finish(self) -> String {
        self.html + "</body></html>\n"
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
