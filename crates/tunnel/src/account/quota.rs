//! The limits of an identity, as the server's configuration file gives them.

use std::fmt::{Display, Formatter};
use std::str::FromStr;
use std::time::Duration;
use units::{Bytes, Rate};
use x509_cert::der::DateTime;

/// The limits of one identity; `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// The rate limit of each direction.
    pub rate: Option<Rate>,
    pub volume: Option<Volume>,
    pub sessions: Option<usize>,
}

/// Maximum number of bytes of both directions together in a calendar period, such as `100GB/month`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Volume {
    pub bytes: Bytes,
    pub period: Period,
}

/// A calendar period in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    Hour,
    Day,
    Month,
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no quota: write SIZE/hour, SIZE/day or SIZE/month, as in 100GB/month")]
pub struct VolumeError(String);

impl Period {
    /// Returns the number of the period that holds this time since 1970, and the end of that
    /// period.
    pub(crate) fn at(self, now: Duration) -> (u64, Duration) {
        match self {
            Self::Hour => nth(now, HOUR),
            Self::Day => nth(now, DAY),
            Self::Month => month(now).unwrap_or_else(|| nth(now, 30 * DAY)),
        }
    }
}

fn nth(now: Duration, seconds: u64) -> (u64, Duration) {
    let number = now.as_secs() / seconds;
    (number, Duration::from_secs((number + 1) * seconds))
}

/// Returns `None` for a time beyond the dates that certificates can express.
fn month(now: Duration) -> Option<(u64, Duration)> {
    let date = DateTime::from_unix_duration(Duration::from_secs(now.as_secs())).ok()?;
    let number = u64::from(date.year()) * 12 + u64::from(date.month()) - 1;
    let (year, month) = match date.month() {
        12 => (date.year() + 1, 1),
        month => (date.year(), month + 1),
    };
    Some((number, DateTime::new(year, month, 1, 0, 0, 0).ok()?.unix_duration()))
}

impl FromStr for Volume {
    type Err = VolumeError;

    fn from_str(text: &str) -> Result<Self, VolumeError> {
        let wrong = || VolumeError(text.to_owned());
        let (size, period) = text.split_once('/').ok_or_else(wrong)?;
        let bytes: Bytes = size.trim().parse().map_err(|_| wrong())?;
        let period = match period.trim() {
            "hour" => Period::Hour,
            "day" => Period::Day,
            "month" => Period::Month,
            _ => return Err(wrong()),
        };
        if bytes.count() == 0 {
            return Err(wrong());
        }
        Ok(Self { bytes, period })
    }
}

impl Display for Volume {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.bytes, self.period)
    }
}

impl Display for Period {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        })
    }
}

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_parses_as_a_size_per_period() {
        for (text, shown) in
            [("100GB/month", "100GB/month"), ("5 MiB / day", "5MiB/day"), ("1/hour", "1B/hour")]
        {
            assert_eq!(text.parse::<Volume>().unwrap().to_string(), shown);
        }
        for text in ["100GB", "100GB/week", "0B/day", "/day", "1e9/day/2", "-1/day"] {
            let refused = text.parse::<Volume>().unwrap_err().to_string();
            assert!(refused.contains("as in 100GB/month"), "{text}: {refused}");
        }
    }

    #[test]
    fn quota_periods_end_at_calendar_boundaries() {
        let at = |text: &str| text.parse::<DateTime>().unwrap().unix_duration();
        for (period, now, end) in [
            (Period::Hour, "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"),
            (Period::Day, "2028-02-28T00:00:00Z", "2028-02-29T00:00:00Z"),
            (Period::Month, "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
            (Period::Month, "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"),
        ] {
            let (number, ends) = period.at(at(now));
            assert_eq!(ends, at(end), "{period} {now}");
            assert_eq!(period.at(ends).0, number + 1);
            assert_eq!(period.at(ends - Duration::from_nanos(1)).0, number);
        }
    }
}
