/// Formats columns as wide as their contents. Aligns the first and the last column to the left; the
/// columns between them are numbers, aligned to the right. Columns of `spare` are left out, in this
/// order, until a line has at most `width` characters.
pub(crate) fn table<const N: usize>(rows: &[[String; N]], width: usize, spare: &[usize]) -> String {
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..N).map(|column| widest(column).unwrap_or(0)).collect();
    let mut shown: Vec<usize> = (0..N).collect();
    for column in spare {
        let line: usize = shown.iter().map(|column| widths[*column] + GAP.len()).sum();
        if line <= width.saturating_add(GAP.len()) {
            break;
        }
        shown.retain(|other| other != column);
    }
    let mut text = String::new();
    for row in rows {
        let cells = shown.iter().map(|&column| {
            let (cell, width) = (&row[column], widths[column]);
            match column {
                0 => format!("{cell:<width$}"),
                _ if column == N - 1 => cell.clone(),
                _ => format!("{cell:>width$}"),
            }
        });
        text.push_str(cells.collect::<Vec<_>>().join(GAP).trim_end());
        text.push('\n');
    }
    text
}

/// Formats left-aligned columns. If a row exceeds `width`, its last column continues in further
/// lines, broken behind a comma.
pub(crate) fn left_table<const N: usize>(rows: &[[String; N]], width: usize) -> String {
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..N - 1).map(|column| widest(column).unwrap_or(0)).collect();
    let before = widths.iter().sum::<usize>() + GAP.len() * (N - 1);
    let room = width.saturating_sub(before).max(20);
    let mut text = String::new();
    for row in rows {
        let mut lines = vec![String::new()];
        for part in row[N - 1].split_inclusive(", ") {
            match lines.last_mut() {
                Some(line)
                    if line.is_empty()
                        || line.chars().count() + part.trim_end().chars().count() <= room =>
                {
                    line.push_str(part);
                }
                _ => lines.push(part.to_owned()),
            }
        }
        for (number, last) in lines.iter().enumerate() {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let cell = if number == 0 { cell.as_str() } else { "" };
                line += &format!("{cell:<width$}{GAP}");
            }
            line += last;
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

const GAP: &str = "  ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_contents() {
        let rows = [["name", "rate", "why"], ["a long one", "5", "path"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let wide = "name        rate  why\na long one     5  path\n";
        assert_eq!(table(&rows, usize::MAX, &[1]), wide);
        assert_eq!(table(&rows, 22, &[1]), wide);
        assert_eq!(table(&rows, 21, &[1]), "name        why\na long one  path\n");
    }
}
