/// Formats columns as wide as their contents: the first and the last to the left, numbers between
/// them to the right.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells =
            row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
                0 => format!("{cell:<width$}"),
                _ if column == N - 1 => cell.clone(),
                _ => format!("{cell:>width$}"),
            });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_contents() {
        let rows = [["name", "rate", "why"], ["a long one", "5", "path"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "name        rate  why\na long one     5  path\n");
    }
}
