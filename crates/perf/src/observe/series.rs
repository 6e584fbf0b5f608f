use serde::Serialize;
use units::{Span, Time};

/// Time series of a test for reports: several lines over the same time axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// `throughput`, `rtt`, `cwnd`, `send_window`, `delivery_rate`, `retransmits`, `limited_by`,
    /// `cpu` or `latency`.
    pub name: &'static str,
    /// Set if the series is of a single stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// True if the lines are shares of a whole, to be drawn stacked.
    pub stacked: bool,
    /// Seconds since the test began, ascending; each point covers the time since the previous
    /// point.
    pub time_s: Vec<f64>,
    pub lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    pub name: String,
    pub unit: &'static str,
    /// A value for each point of the time axis; `None` where nothing was read.
    pub values: Vec<Option<f64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merge {
    Mean,
    Max,
    Sum,
}

/// A series of bounded size. When the series is full, neighbouring points are merged. From then on
/// every point stands for twice the number of readings.
#[derive(Debug)]
pub(super) struct Table {
    name: &'static str,
    stream: Option<u32>,
    stacked: bool,
    limit: usize,
    merge: Merge,
    columns: Vec<Column>,
    times: Vec<f64>,
    /// Number of readings that a point stands for.
    stride: u32,
    gathered: u32,
}

#[derive(Debug)]
struct Column {
    name: String,
    unit: &'static str,
    /// NaN where nothing was read.
    values: Vec<f64>,
    sum: f64,
    most: f64,
    count: u32,
}

impl Table {
    /// Creates an empty table. `limit`: the maximum number of points.
    pub(super) fn new(name: &'static str, merge: Merge, limit: usize) -> Self {
        // An even limit, so that every point has a neighbour to merge with.
        let limit = limit.max(2) & !1;
        Self {
            name,
            stream: None,
            stacked: false,
            limit,
            merge,
            columns: Vec::new(),
            times: Vec::new(),
            stride: 1,
            gathered: 0,
        }
    }

    /// Makes this the series of a single stream whose lines are shares of a whole.
    pub(super) fn stacked(mut self, stream: u32) -> Self {
        self.stream = Some(stream);
        self.stacked = true;
        self
    }

    pub(super) fn column(&mut self, name: impl Into<String>, unit: &'static str) {
        let values = vec![f64::NAN; self.times.len()];
        self.columns.push(Column {
            name: name.into(),
            unit,
            values,
            sum: 0.0,
            most: 0.0,
            count: 0,
        });
    }

    /// Adds a reading; `row` has a value for each column.
    pub(super) fn push(&mut self, at: Span, row: impl IntoIterator<Item = Option<f64>>) {
        for (column, value) in self.columns.iter_mut().zip(row) {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                column.most = if column.count == 0 { value } else { column.most.max(value) };
                column.sum += value;
                column.count += 1;
            }
        }
        self.gathered += 1;
        if self.gathered >= self.stride {
            self.close_point(at);
        }
    }

    pub(super) fn into_series(mut self) -> Option<Series> {
        if self.columns.iter().any(|column| column.count > 0) {
            // The last point stands for fewer readings than the other points.
            let last = self.times.last().copied().unwrap_or(0.0);
            let step = self.times.len().checked_sub(2).map_or(0.0, |i| last - self.times[i]);
            let part = f64::from(self.gathered) / f64::from(self.stride);
            self.close_point(Span::from_secs_f64(last + step * part));
        }
        let reported = |column: &Column| column.values.iter().any(|value| !value.is_nan());
        let lines: Vec<Line> = self.columns.into_iter().filter(reported).map(Line::from).collect();
        (!lines.is_empty()).then_some(Series {
            name: self.name,
            stream: self.stream,
            stacked: self.stacked,
            time_s: self.times.into_iter().map(rounded).collect(),
            lines,
        })
    }

    fn close_point(&mut self, at: Span) {
        if self.times.len() == self.limit {
            self.halve();
        }
        self.times.push(at.secs_f64());
        for column in &mut self.columns {
            let value = match (column.count, self.merge) {
                (0, _) => f64::NAN,
                (_, Merge::Max) => column.most,
                (_, Merge::Sum) => column.sum,
                (count, Merge::Mean) => column.sum / f64::from(count),
            };
            column.values.push(value);
            (column.sum, column.count) = (0.0, 0);
        }
        self.gathered = 0;
    }

    fn halve(&mut self) {
        let merge = self.merge;
        self.times = self.times.chunks(2).filter_map(|pair| pair.last().copied()).collect();
        for column in &mut self.columns {
            column.values = column.values.chunks(2).map(|pair| merged(pair, merge)).collect();
        }
        self.stride = self.stride.saturating_mul(2);
    }
}

impl From<Column> for Line {
    fn from(column: Column) -> Self {
        let known = |value: f64| (!value.is_nan()).then(|| rounded(value));
        let values = column.values.into_iter().map(known).collect();
        Self { name: column.name, unit: column.unit, values }
    }
}

/// Time 0 of a test's series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin(pub(super) Time);

impl Origin {
    pub(super) fn until(self, now: Time) -> Span {
        now.since(self.0)
    }
}

fn merged(pair: &[f64], merge: Merge) -> f64 {
    let known = || pair.iter().copied().filter(|value| !value.is_nan());
    let count = known().count();
    match merge {
        _ if count == 0 => f64::NAN,
        Merge::Mean => known().sum::<f64>() / count as f64,
        Merge::Sum => known().sum(),
        Merge::Max => known().fold(f64::NEG_INFINITY, f64::max),
    }
}

/// Rounds to the digits that a report shows, so that the files stay small.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Maximum number of points of a series: enough for a chart as wide as a screen.
pub(super) const MOST_POINTS: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(merge: Merge, limit: usize) -> Table {
        let mut table = Table::new("rtt", merge, limit);
        table.column("1", "ms");
        table
    }

    #[test]
    fn a_missing_reading_is_a_gap_in_the_series() {
        let mut table = table(Merge::Mean, 8);
        table.column("3", "ms");
        table.column("never", "ms");
        table.push(Span::from_secs(1), [Some(2.0), None, None]);
        table.push(Span::from_secs(2), [None, Some(4.0), Some(f64::NAN)]);
        let series = table.into_series().unwrap();
        assert_eq!(series.time_s, [1.0, 2.0]);
        assert_eq!(series.lines.len(), 2);
        assert_eq!(series.lines[0].values, [Some(2.0), None]);
        assert_eq!(series.lines[1].values, [None, Some(4.0)]);
    }

    #[test]
    fn a_table_without_readings_gives_no_series() {
        assert_eq!(table(Merge::Max, 8).into_series(), None);
    }

    proptest! {
        #[test]
        fn a_full_series_table_stays_small_and_keeps_sums_and_peaks(
            values in proptest::collection::vec(0.0..1000.0_f64, 1..3000),
            limit in 2_usize..64,
        ) {
            let mut tables = [Merge::Mean, Merge::Max, Merge::Sum].map(|merge| table(merge, limit));
            for (index, value) in values.iter().enumerate() {
                for table in &mut tables {
                    table.push(Span::from_millis(index as u64 + 1), [Some(*value)]);
                }
            }
            let sum: f64 = values.iter().sum();
            let most = values.iter().copied().fold(0.0, f64::max);
            for (table, merge) in tables.into_iter().zip([Merge::Mean, Merge::Max, Merge::Sum]) {
                let series = table.into_series().unwrap();
                prop_assert!(series.time_s.len() <= limit + 1);
                prop_assert!(series.time_s.windows(2).all(|pair| pair[0] <= pair[1]));
                let kept: Vec<f64> = series.lines[0].values.iter().flatten().copied().collect();
                let peak = kept.iter().copied().fold(0.0, f64::max);
                match merge {
                    Merge::Max => prop_assert!((peak - most).abs() < 0.001),
                    Merge::Sum => prop_assert!((kept.iter().sum::<f64>() - sum).abs() < 2.0),
                    Merge::Mean => prop_assert!(peak <= most + 0.001),
                }
            }
        }
    }
}
