//! Results over all cells: means of every metric, and heat maps.

use maud::{Markup, html};

use super::fold::fold;
use crate::charts::svg::{Caption, HeatField, HeatMap};
use crate::overall::OverallTable;
use crate::{axis, overall, pivot};
use results::{Heat, Results, metrics};

/// Renders the table of means, and each metric's means by groups of cells. Empty if the lab has no
/// means.
pub(super) fn means(results: &Results) -> Markup {
    let Some(all) = overall::table(results) else { return html! {} };
    let headline = pivot::headline(results);
    let groups: Vec<_> = overall::grouped_metrics(results)
        .into_iter()
        .filter_map(|one| Some((one, overall::by_group(results, &one.metric)?)))
        .collect();
    html! {
        (fold("overall", "Over all cells", &html! {
            (overall_table(&all))
            p class="note" {
                "Means over the cells in which every system has the metric; the best is marked with ◂. "
                "The number below is the count of cells in which a system is within a hundredth of the best."
            }
        }))
        @if !groups.is_empty() {
            (fold("groups", "By the unusual axes of a cell", &html! {
            p class="note" {
                "The same means over the cells in which these axes, and no others, have a value "
                "other than the lab's usual one."
            }
            @for (one, table) in &groups {
                details class="print" open[Some(one.metric.as_str()) == headline] {
                    summary { (overall::named(one)) }
                    (overall_table(table))
                }
            }
            }))
        }
    }
}

fn overall_table(table: &OverallTable) -> Markup {
    html! {
        div class="scroll" { table {
            thead { tr {
                @for (place, head) in table.heads.iter().enumerate() {
                    @if place < table.names { th scope="col" class="text" { (head) } }
                    @else { th scope="col" { (head) } }
                }
            } }
            tbody {
                @for row in &table.rows {
                    tr {
                        @for (place, figure) in row.iter().enumerate() {
                            @if place < table.names { td class="text" { (figure.text) } }
                            @else {
                                td {
                                    @if figure.ahead { b { (figure.text) " ◂" } } @else { (figure.text) }
                                    @if let Some(wins) = figure.wins { small { "best in " (wins) } }
                                }
                            }
                        }
                    }
                }
            }
        } }
    }
}

pub(super) fn maps(results: &Results) -> Markup {
    let heats = results.view.iter().flat_map(|view| &view.heat);
    let drawn: Vec<(String, HeatMap)> =
        heats.enumerate().filter_map(|(number, heat)| map(results, heat, number)).collect();
    html! {
        @if !drawn.is_empty() {
            (fold("heat", "Maps", &html! {
            @for (title, map) in &drawn {
                figure {
                    figcaption { (title) }
                    div class="scroll" { (map.render()) }
                }
            }
            p class="note" {
                "A deeper colour shows a larger value; all fields of a map share one scale. \
                 Where several cells fall into one square it shows their mean."
            }
            }))
        }
    }
}

fn map(results: &Results, heat: &Heat, number: usize) -> Option<(String, HeatMap)> {
    let cells: Vec<_> = results
        .cells
        .iter()
        .filter(|cell| {
            heat.at.iter().all(|(axis, values)| {
                cell.axes.get(axis).is_some_and(|value| values.contains(value))
            })
        })
        .filter(|cell| heat.usual.iter().all(|(axis, value)| cell.axes.get(axis) == Some(value)))
        .filter_map(|cell| {
            let value = cell.metrics.get(&heat.metric)?.value();
            Some((cell, value)).filter(|_| value.is_finite() && cell.is_measured())
        })
        .collect();
    let used = |axis: &str| -> Vec<String> {
        let here =
            |value: &String| cells.iter().any(|(cell, _)| cell.axes.get(axis) == Some(value));
        axis::values(results, axis).into_iter().filter(here).collect()
    };
    let (x_values, y_values) = (used(&heat.x), used(&heat.y));
    // A single square is one number, and the tables already show it.
    if x_values.len() * y_values.len() < 2 {
        return None;
    }
    let mean = |system: &str, x: &String, y: &String| {
        let values: Vec<f64> = cells
            .iter()
            .filter(|(cell, _)| {
                let at = |axis: &str, value| cell.axes.get(axis) == Some(value);
                cell.system == system && at(&heat.x, x) && at(&heat.y, y)
            })
            .map(|(_, value)| *value)
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let fields = pivot::systems(results)
        .into_iter()
        .map(|system| HeatField {
            rows: y_values
                .iter()
                .map(|y| x_values.iter().map(|x| mean(&system, x, y)).collect())
                .collect(),
            name: system,
        })
        .collect();
    let label = metrics::meaning(&heat.metric).label;
    let unit = pivot::unit(results, &heat.metric);
    let what = if unit.is_empty() { label } else { format!("{label}, {unit}") };
    let fixed: Vec<String> = heat
        .at
        .iter()
        .filter(|(axis, values)| values.len() == 1 && **axis != heat.x && **axis != heat.y)
        .map(|(axis, values)| format!("{axis} {}", values.join(", ")))
        .collect();
    let title = format!("{what} by {} and {}", heat.y, heat.x);
    let caption = Caption {
        id: format!("heat-{number}"),
        title: title.clone(),
        description: format!(
            "One field for each system; at {}. The tables hold the same numbers.",
            fixed.join(" · ")
        ),
    };
    let map = HeatMap {
        caption,
        x_label: heat.x.clone(),
        x_values,
        y_label: heat.y.clone(),
        y_values,
        fields,
    };
    let place = if fixed.is_empty() { String::new() } else { format!(" ({})", fixed.join(" · ")) };
    Some((format!("{title}{place}"), map))
}
