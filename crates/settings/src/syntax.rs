use crate::mistake::{Mistakes, What};
use std::ops::Range;
use toml::de::DeTable;

/// Mends the lines that are not TOML, and adds their mistakes. All other bytes keep their places.
/// `None`: the rest of the text cannot be understood.
pub(crate) fn mend(text: &str, mistakes: &mut Mistakes) -> Option<String> {
    let mut text = text.to_owned();
    let mut mended: Vec<Range<usize>> = Vec::new();
    for _ in 0..MOST_LINES {
        let Err(error) = DeTable::parse(&text) else { return Some(text) };
        let place = error.span().map_or(0, |place| place.start.min(text.len()));
        let before = text.as_bytes()[..place].iter();
        let start = before.rev().position(|byte| *byte == b'\n').map_or(0, |back| place - back);
        let line = start..text[start..].find('\n').map_or(text.len(), |end| start + end);
        // The line above may have begun a value that goes on here.
        let follows = mended.iter().any(|above| above.end + 1 == start);
        let is_second = mended.contains(&line);
        if !follows && !is_second {
            mistakes.add(place..place, What::Syntax(error.message().to_owned()));
        }
        mistakes.doubt(&line);
        let better = if is_second { None } else { without_value(&text[line.clone()]) };
        let better = better.unwrap_or_else(|| " ".repeat(line.len()));
        if text[line.clone()].starts_with('[') || text[line.clone()] == better {
            return None;
        }
        text.replace_range(line.clone(), &better);
        mended.push(line);
    }
    None
}

/// Returns a line of the same length in which the key has another value, so that the key does not
/// count as missing.
fn without_value(line: &str) -> Option<String> {
    let key = line.split([' ', '\t', '=']).next()?;
    let is_key = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let better = format!("{key} =0");
    (!key.is_empty() && key.chars().all(is_key) && better.len() <= line.len())
        .then(|| format!("{better:width$}", width = line.len()))
}

/// Maximum number of lines that are mended. A text with more mistakes gets errors about the first
/// of them.
const MOST_LINES: usize = 50;
