//! Cuts texts to a width so that they still differ from one another.

use std::collections::HashSet;

/// Cuts the text to `width` letters, and keeps its last `tail` letters.
pub(crate) fn cut(text: &str, width: usize, tail: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let head = width.saturating_sub(1 + tail);
    let ends = text.chars().skip(count - tail.min(width.saturating_sub(1)));
    text.chars().take(head).chain(['…']).chain(ends).collect()
}

/// Returns the minimum number of last letters that texts must keep to differ when they are cut to
/// `width`. `None` if no number suffices.
pub(crate) fn distinct(texts: &[&str], width: usize) -> Option<usize> {
    let texts: HashSet<&str> = texts.iter().copied().collect();
    (0..width.max(1)).find(|tail| {
        let cuts: HashSet<String> = texts.iter().map(|text| cut(text, width, *tail)).collect();
        cuts.len() == texts.len()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_cut_to_equal_texts_and_different_texts_to_different_texts() {
        let texts = ["Queue delay, median", "Queue delay, 95 %", "Queue delay, median", "Rate"];
        assert_eq!(distinct(&texts, 12), Some(1));
        assert_eq!(
            texts.map(|text| cut(text, 12, 1)),
            ["Queue dela…n", "Queue dela…%", "Queue dela…n", "Rate"]
        );
        assert_eq!(distinct(&["Queue delay, a", "Queue delay, b"], 30), Some(0));
        // The two texts end in the same letter, and a width of one letter shows only that letter.
        assert_eq!(distinct(&["a long text", "b long text"], 1), None);
    }
}
