//! Quantities for a reader, rounded to three digits, with a unit.

use units::{Bytes, Rate, Span};

pub(crate) fn rate(rate: Rate) -> String {
    let bits = rate.bits_per_second() as f64;
    scaled(bits, &[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")])
}

pub(crate) fn bytes(bytes: Bytes) -> String {
    let count = bytes.count() as f64;
    scaled(count, &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes")])
}

pub(crate) fn span(span: Span) -> String {
    scaled(span.nanos() as f64, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")])
}

/// Writes a share from 0 to 1 as a percentage; small shares keep two significant digits.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        p if p == 0.0 || p >= 9.95 => format!("{percent:.0} %"),
        p if p >= 0.95 => format!("{percent:.1} %"),
        p if p >= 0.001 => format!("{percent:.2} %"),
        _ => format!("{percent:.0e} %"),
    }
}

/// Writes a count with its noun: `1 core`, `2 cores`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Writes a list of cores: `0, 1, 4-7`.
pub(crate) fn cores(cores: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match runs.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(*core) => *end = *core,
            _ => runs.push((*core, *core)),
        }
    }
    let words: Vec<_> = runs
        .into_iter()
        .map(|(start, end)| if start == end { start.to_string() } else { format!("{start}-{end}") })
        .collect();
    words.join(", ")
}

/// Writes the mask of these cores in the kernel's format: groups of 32 bits in hexadecimal.
pub(crate) fn mask(cores: &[usize]) -> String {
    let groups = cores.iter().map(|core| core / 32 + 1).max().unwrap_or(1).min(MOST_GROUPS);
    let mut words = vec![0u32; groups];
    for core in cores.iter().filter(|core| **core / 32 < groups) {
        words[core / 32] |= 1 << (core % 32);
    }
    let mut texts = words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>();
    texts[0] = texts[0].trim_start_matches('0').to_owned();
    if texts[0].is_empty() {
        texts[0].push('0');
    }
    texts.join(",")
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let (scale, unit) = units
        .iter()
        .find(|(scale, _)| value >= *scale * 0.9995)
        .or(units.last())
        .copied()
        .unwrap_or((1.0, ""));
    let value = value / scale;
    let digits = match value {
        v if v >= 99.95 || scale == 1.0 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text} {unit}")
}

const MOST_GROUPS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits_and_a_unit() {
        for (bits, text) in [
            (0, "0 bit/s"),
            (999, "999 bit/s"),
            (439_400_000, "439 Mbit/s"),
            (1_000_000_000, "1 Gbit/s"),
            (999_900_000, "1 Gbit/s"),
            (37_240_000, "37.2 Mbit/s"),
            (1_250_000, "1.25 Mbit/s"),
        ] {
            assert_eq!(rate(Rate::from_bits_per_second(bits)), text);
        }
        assert_eq!(span(Span::from_micros(20_100)), "20.1 ms");
        assert_eq!(span(Span::ZERO), "0 ns");
        assert_eq!(bytes(Bytes::new(130_000)), "130 kB");
        for (share, text) in [(0.634, "63 %"), (0.0, "0 %"), (0.012, "1.2 %"), (0.0004, "0.04 %")] {
            assert_eq!(percent(share), text);
        }
    }

    #[test]
    fn cores_are_written_as_lists_and_masks() {
        assert_eq!(cores(&[0, 1, 4, 5, 6, 9]), "0-1, 4-6, 9");
        assert_eq!(cores(&[]), "");
        assert_eq!(cores(&[usize::MAX, 0, 1]), format!("{}, 0-1", usize::MAX));
        assert_eq!(mask(&[0, 1]), "3");
        assert_eq!(mask(&[0, 32]), "1,00000001");
        assert_eq!(mask(&[]), "0");
        assert_eq!(counted(1, "core", "cores"), "1 core");
    }
}
