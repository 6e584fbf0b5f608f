//! `--timestamps`: the time in front of each line.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes to `inner`, with the time in front of each line if a format is given.
#[derive(Debug)]
pub(crate) struct Stamped<W> {
    inner: W,
    format: Option<String>,
    in_line: bool,
}

impl<W: Write> Stamped<W> {
    pub(crate) fn new(inner: W, format: Option<String>) -> Self {
        Self { inner, format, in_line: false }
    }
}

impl<W: Write> Write for Stamped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(format) = &self.format else { return self.inner.write(bytes) };
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.in_line {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                self.inner.write_all(formatted(format, now.as_secs()).as_bytes())?;
            }
            self.inner.write_all(line)?;
            self.in_line = !line.ends_with(b"\n");
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Formats the time in UTC, with the conversions of strftime(3) that need no locale and no time
/// zone.
fn formatted(format: &str, seconds: u64) -> String {
    let (days, clock) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    let (date, time) =
        (format!("{year:04}-{month:02}-{day:02}"), format!("{hour:02}:{minute:02}:{second:02}"));
    let (mut text, mut letters) = (String::new(), format.chars());
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('Y') => text += &format!("{year:04}"),
            Some('m') => text += &format!("{month:02}"),
            Some('d') => text += &format!("{day:02}"),
            Some('H') => text += &format!("{hour:02}"),
            Some('M') => text += &format!("{minute:02}"),
            Some('S') => text += &format!("{second:02}"),
            Some('F') => text += &date,
            Some('T') => text += &time,
            Some('c') => text += &format!("{date} {time}"),
            Some('s') => text += &seconds.to_string(),
            Some('z') => text += "+0000",
            Some('Z') => text += "UTC",
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('%') => text.push('%'),
            Some(other) => text += &format!("%{other}"),
            None => text.push('%'),
        }
    }
    text
}

/// Returns year, month and day of a number of days since 1970 (Howard Hinnant's `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

pub(crate) const USUAL: &str = "%F %T ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_begins_with_the_time() {
        let mut out = Stamped::new(Vec::new(), Some("[%s] ".to_owned()));
        out.write_all(b"one\ntw").unwrap();
        out.write_all(b"o\n").unwrap();
        let text = String::from_utf8(out.inner).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.split_once("] ").unwrap().1).collect();
        assert_eq!(lines, ["one", "two"]);
        let mut plain = Stamped::new(Vec::new(), None);
        plain.write_all(b"one\n").unwrap();
        assert_eq!(plain.inner, b"one\n");
    }

    #[test]
    fn the_time_is_formatted_as_by_strftime() {
        assert_eq!(formatted("%F %T %Z|", 951_782_399), "2000-02-28 23:59:59 UTC|");
        assert_eq!(formatted("%H:%M %d.%m.%Y %% %q %", 951_782_400), "00:00 29.02.2000 % %q %");
    }
}
