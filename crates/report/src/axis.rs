//! The values of an axis in the order a reader expects.

use units::{Bytes, Rate, Share, Span};

use results::{Axes, Results};

/// Returns the axes of a run, in the order of the cells' own axes.
pub(crate) fn names(results: &Results) -> Vec<String> {
    let mut names = Vec::new();
    for name in results.cells.iter().flat_map(|cell| cell.axes.keys()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Returns the distinct values of one axis. Sorted by size if all are quantities of one kind,
/// otherwise in the order of their first occurrence.
pub(crate) fn values(results: &Results, axis: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for value in results.cells.iter().filter_map(|cell| cell.axes.get(axis)) {
        if !values.contains(value) {
            values.push(value.clone());
        }
    }
    if let Some(sizes) = sizes(&values) {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| sizes[*a].total_cmp(&sizes[*b]));
        values = order.into_iter().map(|index| values[index].clone()).collect();
    }
    values
}

/// Returns the most frequent value of each axis.
pub(crate) fn usual(results: &Results) -> Axes {
    let value = |name: String| {
        let values = values(results, &name).into_iter();
        let cells = |value: &String| {
            results.cells.iter().filter(|c| c.axes.get(&name) == Some(value)).count()
        };
        let most = values.rev().max_by_key(cells)?;
        Some((name, most))
    };
    names(results).into_iter().filter_map(value).collect()
}

/// Converts the values to numbers, if all are quantities of one kind.
pub(crate) fn sizes(values: &[String]) -> Option<Vec<f64>> {
    let all = |size: fn(&str) -> Option<f64>| -> Option<Vec<f64>> {
        values.iter().map(|value| size(value)).collect()
    };
    all(|text| text.parse::<f64>().ok().filter(|number| number.is_finite()))
        .or_else(|| all(|text| text.parse::<Share>().ok().map(Share::percent)))
        .or_else(|| all(|text| text.parse::<Span>().ok().map(Span::secs_f64)))
        .or_else(|| all(|text| text.parse::<Rate>().ok().map(Rate::mbit_per_second)))
        .or_else(|| all(|text| text.parse::<Bytes>().ok().map(|bytes| bytes.count() as f64)))
        // Buffers, in bandwidth-delay products.
        .or_else(|| all(|text| text.strip_suffix("bdp")?.parse().ok()))
}

/// Returns a text that identifies a point, whatever the order of its axes.
pub(crate) fn key(axes: &Axes) -> String {
    let mut parts: Vec<String> =
        axes.iter().map(|(name, value)| format!("{name}\u{1f}{value}")).collect();
    parts.sort();
    parts.join("\u{1e}")
}

/// Formats axis values as `loss 1% · rtt 20ms`. Leaves out axes that do not apply at the point.
pub(crate) fn describe(axes: &Axes) -> String {
    let applies = axes.iter().filter(|(_, value)| *value != DOES_NOT_APPLY);
    let parts: Vec<String> = applies.map(|(name, value)| format!("{name} {value}")).collect();
    parts.join(" · ")
}

/// Returns the usual values if more than three axes vary.
pub(crate) fn usual_of_many(results: &Results) -> Option<Axes> {
    let varies = |name: &&String| values(results, name).len() > 1;
    (names(results).iter().filter(varies).count() > MOST_AXES).then(|| usual(results))
}

/// Formats a point as [`describe`] does, without the values in `usual`.
pub(crate) fn describe_unusual(axes: &Axes, usual: Option<&Axes>) -> String {
    let Some(usual) = usual else { return describe(axes) };
    let unusual = axes.iter().filter(|(name, value)| usual.get(*name) != Some(*value));
    describe(&unusual.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The value of an axis at a point to which the axis does not apply: a size of messages where the
/// test has no messages.
const DOES_NOT_APPLY: &str = "-";
const MOST_AXES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Cell, Form};

    fn ordered(values_in: &[&str]) -> Vec<String> {
        let mut results = Results::new("x", Form::Full);
        for value in values_in {
            let axes = Axes::from([("a".to_owned(), (*value).to_owned())]);
            results.cells.push(Cell::new("s", axes));
        }
        values(&results, "a")
    }

    #[test]
    fn a_point_is_described_without_the_axes_that_do_not_apply() {
        let axes = [("test", "TCP_RR"), ("size", "-"), ("pinned", "no")];
        let axes = axes.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(describe(&Axes::from(axes)), "test TCP_RR · pinned no");
    }

    #[test]
    fn a_point_of_many_axes_is_described_by_its_unusual_values() {
        let mut results = Results::new("x", Form::Full);
        for number in 0..5 {
            let value = |axis: usize| if axis == number { "odd" } else { "usual" };
            let axes = (0..4).map(|axis| (format!("axis{axis}"), value(axis).to_owned()));
            results.cells.push(Cell::new("s", axes.collect()));
        }
        let usual = usual_of_many(&results);
        let text = describe_unusual(&results.cells[0].axes, usual.as_ref());
        assert_eq!(text, "axis0 odd");
        results.cells.truncate(2);
        assert_eq!(usual_of_many(&results), None);
        let text = describe_unusual(&results.cells[0].axes, None);
        assert_eq!(text, "axis0 odd · axis1 usual · axis2 usual · axis3 usual");
    }

    #[test]
    fn quantities_sort_by_size_and_words_keep_their_order() {
        assert_eq!(ordered(&["5%", "0%", "0.1%", "5%"]), ["0%", "0.1%", "5%"]);
        assert_eq!(ordered(&["100ms", "1ms", "2s"]), ["1ms", "100ms", "2s"]);
        assert_eq!(ordered(&["512", "32"]), ["32", "512"]);
        assert_eq!(ordered(&["25MB", "640KB", "8MB"]), ["640KB", "8MB", "25MB"]);
        assert_eq!(ordered(&["1bdp", "4bdp", "0.2bdp"]), ["0.2bdp", "1bdp", "4bdp"]);
        assert_eq!(ordered(&["two-to-one", "1ms", "all"]), ["two-to-one", "1ms", "all"]);
    }
}
