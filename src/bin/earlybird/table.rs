//! Tables for readers: columns of numbers stand on the right.

use comfy_table::{CellAlignment, Table, presets};

/// The text of a table, without a line end after its last row.
pub fn table(header: &[impl AsRef<str>], rows: Vec<Vec<String>>) -> String {
    drawn(presets::NOTHING, header, rows)
}

/// A table of rows whose cells have the names of their columns, the same in each, drawn by [`table`] or [`markdown`].
pub fn table_of(
    rows: impl IntoIterator<Item = Vec<(&'static str, String)>>,
    draw: fn(&[&'static str], Vec<Vec<String>>) -> String,
) -> String {
    let mut header = Vec::new();
    let cells = rows.into_iter().map(|row| {
        let (columns, cells) = row.into_iter().unzip();
        header = columns;
        cells
    });
    let cells = cells.collect();
    draw(&header, cells)
}

/// The same in Markdown.
pub fn markdown(header: &[impl AsRef<str>], rows: Vec<Vec<String>>) -> String {
    drawn(presets::ASCII_MARKDOWN, header, rows)
}

fn drawn(preset: &str, header: &[impl AsRef<str>], rows: Vec<Vec<String>>) -> String {
    let is_number = |cell: &String| cell.chars().all(|sign| sign.is_ascii_digit() || ".-x".contains(sign));
    let numbers: Vec<bool> = (0..header.len()).map(|at| rows.iter().all(|row| is_number(&row[at]))).collect();
    let mut table = Table::new();
    table.load_preset(preset).set_header(header.iter().map(AsRef::as_ref)).add_rows(rows);
    for (column, _) in table.column_iter_mut().zip(numbers).filter(|(_, numbers)| *numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn numbers_stand_on_the_right() {
        let rows = [["8", "flat", "-"], ["1024", "chain", "0.50x"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(
            table(&["bytes", "name", "ratio"], rows.to_vec()),
            " bytes  name   ratio \n     8  flat       - \n  1024  chain  0.50x "
        );
    }
}
