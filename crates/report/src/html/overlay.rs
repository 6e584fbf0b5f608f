//! Charts with the curves of several systems at the same axis values.

use maud::{Markup, html};

use super::fold::fold;
use crate::axis;
use results::{Axes, Line, Series, Shape};

/// The charts of one point: a combination of axis values.
#[derive(Debug)]
pub(super) struct Overlay {
    axes: Axes,
    pub(super) charts: Vec<Series>,
}

/// Builds the charts of each point at which more than one system has curves: a chart for each type
/// of curve, with the first line of every system. Empty if the points are many, because the cells'
/// own charts then show the curves.
pub(super) fn overlays(series: &[Series], systems: &[String]) -> Vec<Overlay> {
    let mut places: Vec<(String, Axes, Vec<&Series>)> = Vec::new();
    for one in series.iter().filter(|one| one.shape == Shape::Lines && one.repeat == 0) {
        let key = axis::key(&one.axes);
        match places.iter_mut().find(|(known, ..)| *known == key) {
            Some((.., those)) => those.push(one),
            None => places.push((key, one.axes.clone(), vec![one])),
        }
    }
    let several = |those: &Vec<&Series>| those.iter().any(|one| one.system != those[0].system);
    places.retain(|(.., those)| several(those));
    if places.len() > MOST_PLACES {
        return Vec::new();
    }
    let overlay = |(_, axes, those): (String, Axes, Vec<&Series>)| {
        let mut names: Vec<&str> = Vec::new();
        for one in &those {
            if !names.contains(&one.name.as_str()) {
                names.push(&one.name);
            }
        }
        let chart = |name: &str| {
            let same: Vec<&Series> = those.iter().filter(|s| s.name == name).copied().collect();
            merged(name, &axes, &same, systems)
        };
        Overlay { charts: names.into_iter().map(chart).collect(), axes }
    };
    places.into_iter().map(overlay).collect()
}

/// Renders the overlays. `first` is the index of the first chart in the page's data. `common` holds
/// the axis values that most cells share.
pub(super) fn section(overlays: &[Overlay], first: usize, common: &Axes) -> Markup {
    let first_of = |number: usize| {
        first + overlays[..number].iter().map(|overlay| overlay.charts.len()).sum::<usize>()
    };
    html! {
        @if !overlays.is_empty() {
            (fold("time", "Over time", &html! {
            p class="note" {
                "The first flow of each system, and the queue at the bottleneck, in the first repeat. "
                "Drag to look closer, double-click to see all again."
            }
            @for (number, overlay) in overlays.iter().enumerate() {
                section class="charted" id={"time-" (number)} {
                    h3 { (titled(&overlay.axes, common)) }
                    div class="charts" {
                        @for (place, chart) in (first_of(number)..).zip(&overlay.charts) {
                            figure {
                                figcaption { (chart.name) }
                                div data-series=(place) {}
                            }
                        }
                    }
                }
            }
            }))
        }
    }
}

/// Builds a title with only the axes by which the point differs from most other points. Among all
/// axes these axes would be hard to find.
fn titled(axes: &Axes, common: &Axes) -> String {
    let own: Axes = axes
        .iter()
        .filter(|(axis, value)| common.get(*axis) != Some(*value))
        .map(|(axis, value)| (axis.clone(), value.clone()))
        .collect();
    if own.is_empty() { "the usual path".to_owned() } else { axis::describe(&own) }
}

/// Merges several systems' series into one, with a line for each system over the times of all, so
/// that each system has the same colour in every chart.
fn merged(name: &str, axes: &Axes, those: &[&Series], systems: &[String]) -> Series {
    let mut times: Vec<f64> = those.iter().flat_map(|one| one.time_s.iter().copied()).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    let unit = those.iter().find_map(|one| one.lines.first()).map(|line| line.unit.clone());
    let lines = systems
        .iter()
        .map(|system| {
            let one = those.iter().find(|one| one.system == *system);
            let Some((one, line)) = one.and_then(|one| Some((one, one.lines.first()?))) else {
                let (name, unit) = (system.clone(), unit.clone().unwrap_or_default());
                return Line { name, unit, values: vec![None; times.len()] };
            };
            let mut known = one.time_s.iter().zip(&line.values).peekable();
            let values =
                times.iter().map(|time| *known.next_if(|(at, _)| **at == *time)?.1).collect();
            Line { name: system.clone(), unit: line.unit.clone(), values }
        })
        .collect();
    Series {
        name: name.to_owned(),
        system: String::new(),
        axes: axes.clone(),
        repeat: 0,
        block: 0,
        valid: true,
        shape: Shape::Lines,
        time_s: times,
        lines,
    }
}

const MOST_PLACES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(system: &str, loss: &str, time_s: &[f64]) -> Series {
        let line = Line {
            name: "flow 1".to_owned(),
            unit: "kB".to_owned(),
            values: time_s.iter().map(|time| Some(time * 10.0)).collect(),
        };
        Series {
            name: "window".to_owned(),
            system: system.to_owned(),
            axes: Axes::from([("loss".to_owned(), loss.to_owned())]),
            repeat: 0,
            block: 0,
            valid: true,
            shape: Shape::Lines,
            time_s: time_s.to_vec(),
            lines: vec![line],
        }
    }

    #[test]
    fn systems_at_one_point_share_a_chart() {
        let series = [
            curve("a", "0%", &[0.0, 1.0, 2.0]),
            curve("b", "0%", &[1.0, 2.0, 3.0]),
            curve("a", "1%", &[0.0]),
        ];
        let systems = ["b".to_owned(), "a".to_owned()];
        let overlays = overlays(&series, &systems);
        assert_eq!(overlays.len(), 1, "a single system at 1% needs no shared chart");
        let chart = &overlays[0].charts[0];
        assert_eq!(chart.time_s, [0.0, 1.0, 2.0, 3.0]);
        let names: Vec<&str> = chart.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(chart.lines[1].values, [Some(0.0), Some(10.0), Some(20.0), None]);
        assert_eq!(chart.lines[0].values, [None, Some(10.0), Some(20.0), Some(30.0)]);
        let common = Axes::from([("loss".to_owned(), "0%".to_owned())]);
        let drawn = section(&overlays, 5, &common).into_string();
        assert!(drawn.contains("data-series=\"5\"") && drawn.contains("the usual path"), "{drawn}");
    }
}
