//! A run's results as CSV and its charts as SVG, for other programs.

use crate::charts::svg::NARROW_ID;
use crate::{html, missing};
use results::{Axes, Results, Samples};

/// Returns the files by name, with their contents.
pub fn export(results: &Results, samples: &Samples) -> Vec<(String, String)> {
    let mut files = vec![
        ("results.csv".to_owned(), cells(results)),
        ("comparisons.csv".to_owned(), comparisons(results)),
        ("samples.csv".to_owned(), every_sample(results, samples)),
    ];
    let page = html::render(results, samples, &[], "");
    files.extend(drawings(&page));
    files
}

fn cells(results: &Results) -> String {
    let axes = crate::axis::names(results);
    let mut text = line(["system"].into_iter().chain(axes.iter().map(String::as_str)).chain([
        "metric", "unit", "median", "low", "high", "repeats", "valid", "failed", "not_run",
    ]));
    for cell in &results.cells {
        let place = || places(&cell.axes, &axes);
        let failed = cell.failed.as_deref().unwrap_or_default();
        let not_run = cell.not_run.as_deref().unwrap_or_default();
        let valid = cell.valid.to_string();
        if cell.metrics.is_empty() {
            let rest = ["", "", "", "", "", "", valid.as_str(), failed, not_run];
            text += &line([cell.system.as_str()].into_iter().chain(place()).chain(rest));
        }
        for (name, metric) in &cell.metrics {
            let [low, high] = metric
                .interval()
                .or(metric.range)
                .map_or([String::new(), String::new()], |r| r.map(|end| end.to_string()));
            let (median, repeats) = (metric.value().to_string(), metric.n.to_string());
            let rest: [&str; 9] =
                [name, &metric.unit, &median, &low, &high, &repeats, &valid, failed, not_run];
            text += &line([cell.system.as_str()].into_iter().chain(place()).chain(rest));
        }
        for missing in &cell.missing {
            let reason = format!("{}: {}", missing::WORD, missing.reason);
            for name in &missing.metrics {
                let rest = [name.as_str(), "", "", "", "", "0", &valid, &reason, not_run];
                text += &line([cell.system.as_str()].into_iter().chain(place()).chain(rest));
            }
        }
    }
    text
}

fn comparisons(results: &Results) -> String {
    let axes = crate::axis::names(results);
    let head = ["metric", "system", "baseline"].into_iter();
    let head = head.chain(axes.iter().map(String::as_str));
    let mut text = line(head.chain(["ratio", "low", "high", "pairs", "verdict", "primary"]));
    for one in &results.comparisons {
        let ratio = &one.ratio;
        let [low, high] = ratio
            .ci95
            .map_or([String::new(), String::new()], |ends| ends.map(|end| end.to_string()));
        let (median, pairs) = (ratio.median.to_string(), ratio.n.to_string());
        let primary = one.primary.to_string();
        let first = [one.metric.as_str(), &one.a, &one.b].into_iter();
        let rest = [median.as_str(), &low, &high, &pairs, one.verdict.word(), &primary];
        text += &line(first.chain(places(&one.axes, &axes)).chain(rest));
    }
    text
}

fn every_sample(results: &Results, samples: &Samples) -> String {
    let axes = crate::axis::names(results);
    let head = ["system"].into_iter().chain(axes.iter().map(String::as_str));
    let mut text = line(head.chain(["repeat", "metric", "unit", "time_s", "value"]));
    for sample in &samples.rows {
        let (repeat, value) = (sample.repeat.to_string(), sample.value.to_string());
        let time = sample.time_s.map_or_else(String::new, |time| time.to_string());
        let rest = [repeat.as_str(), &sample.metric, &sample.unit, &time, &value];
        let first = [sample.system.as_str()].into_iter();
        text += &line(first.chain(places(&sample.axes, &axes)).chain(rest));
    }
    text
}

fn places<'a>(at: &'a Axes, axes: &'a [String]) -> Vec<&'a str> {
    axes.iter().map(|axis| at.get(axis).map_or("", String::as_str)).collect()
}

/// Formats a line of CSV (RFC 4180), ended by LF alone.
fn line<'a>(fields: impl Iterator<Item = &'a str>) -> String {
    let quoted = |field: &str| match field.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    };
    fields.map(quoted).collect::<Vec<_>>().join(",") + "\n"
}

/// Extracts the drawings of the page, each with the part of the style sheet that it needs.
fn drawings(page: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for part in page.split("<svg ").skip(1) {
        let Some((drawing, _)) = part.split_once("</svg>") else { continue };
        let id = drawing
            .split_once("aria-labelledby=\"")
            .and_then(|(_, rest)| rest.split_once("-title"));
        let Some((id, _)) = id else { continue };
        // Skips the drawing of the same chart for a phone.
        if id.ends_with(NARROW_ID) {
            continue;
        }
        let Some((head, inside)) = drawing.split_once('>') else { continue };
        let style = STYLE.replace('\n', " ");
        let text = format!("<svg {head}><style>{style}</style>{inside}</svg>\n");
        found.push((format!("{id}.svg"), text));
    }
    found
}

/// The light theme of the page (web/src/report.css), for drawings that stand alone.
const STYLE: &str = "\
svg{background:#fdfdfc;--page:#fdfdfc;--ink:#1d2126;--muted:#626a73;--line:#c8cbce;--grid:#eceeef;--band:#f0f2f4;\
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b65c92;--c4:#b07d00;--c5:#2f9fd8;--c6:#6b5bb5;--c7:#555b61}
text{font:12.5px system-ui,sans-serif;fill:var(--muted)}
.name{fill:var(--ink)}.group{fill:var(--ink);font-weight:600}
.grid{stroke:var(--grid);fill:none}.axis{stroke:var(--line);fill:none}
.one{stroke:var(--muted);stroke-dasharray:3 3;fill:none}.band{fill:var(--band)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.bar{fill:none;stroke-width:1.4}
.dashed{stroke-dasharray:2 5;stroke-width:1.6}.hollow{fill:var(--page);stroke-width:1.6}
.better{fill:var(--c0);stroke:var(--c0)}.worse{fill:var(--c1);stroke:var(--c1)}
.same,.undecided{fill:var(--page);stroke:var(--c7)}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}
.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}
.stroke{stroke:var(--c)}.fill{fill:var(--c)}.layer{fill:var(--c);fill-opacity:.78}";

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Cell, Form, Metric, Missing};

    #[test]
    fn a_field_with_a_comma_is_quoted() {
        let fields = ["a", "1,5", "say \"x\""];
        assert_eq!(line(fields.into_iter()), "a,\"1,5\",\"say \"\"x\"\"\"\n");
    }

    #[test]
    fn a_missing_value_has_a_row_with_its_reason() {
        let mut results = Results::new("x", Form::Full);
        let mut cell = Cell::new("a", Axes::new());
        cell.metrics.insert("capacity_pps".to_owned(), Metric::single(2.0, "packets/s"));
        let metrics = vec!["ndr_pps".to_owned()];
        cell.missing = vec![Missing { metrics, reason: "no CPU".to_owned(), failed: false }];
        results.cells.push(cell);
        let text = cells(&results);
        assert!(text.ends_with("a,ndr_pps,,,,,0,true,not measured: no CPU,\n"), "{text}");
    }

    #[test]
    fn a_drawing_is_a_complete_svg_file() {
        let page = "<p><svg class=\"chart\" aria-labelledby=\"lines-0-title lines-0-desc\"><path/></svg></p>";
        let for_phones = page.replace("lines-0-", "lines-0-narrow-");
        let found = drawings(&format!("{page}{for_phones}"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "lines-0.svg");
        assert!(found[0].1.contains("<style>svg{background"), "{}", found[0].1);
        assert!(found[0].1.ends_with("<path/></svg>\n"), "{}", found[0].1);
    }
}
