//! The parts of a metric in each cell, as stacked bars.

use maud::{Markup, html};

use super::fold::fold;
use crate::axis;
use crate::charts::svg::{BarRow, Bars, Caption};
use results::{Cell, Results, metrics};

/// Draws the charts; empty if the lab names no metric with parts, or if no cell has the parts.
pub(super) fn charts(results: &Results) -> Markup {
    let family = results.view.as_ref().and_then(|view| view.parts.as_deref());
    let Some(family) = family else { return html! {} };
    let parts = parts(results, family);
    let mut systems: Vec<&str> = Vec::new();
    for cell in results.cells.iter().filter(|cell| !values(cell, family, &parts).is_empty()) {
        if !systems.contains(&cell.system.as_str()) {
            systems.push(&cell.system);
        }
    }
    let meaning = metrics::meaning(family);
    html! {
        @if !systems.is_empty() {
            (fold("parts", format!("{} by part", meaning.label), &html! {
            @for (index, system) in systems.iter().enumerate() {
                @let rows = rows(results, system, family, &parts);
                figure class="wide" {
                    figcaption { (system) }
                    div class="scroll" { (Bars {
                        caption: Caption {
                            id: format!("parts-{index}"),
                            title: format!("{} of {system} by part", meaning.label),
                            description: "A bar for each cell; the parts are medians over its repeats"
                                .to_owned(),
                        },
                        x_label: meaning.unit.to_owned(),
                        parts: parts.iter().map(|part| (*part).to_owned()).collect(),
                        rows,
                    }.render()) }
                }
            }
            p class="note" { "The medians of the parts need not add up to the median of the whole." }
            }))
        }
    }
}

fn rows(results: &Results, system: &str, family: &str, parts: &[&str]) -> Vec<BarRow> {
    let own = results.cells.iter().filter(|cell| cell.system == system);
    let row = |cell: &Cell| BarRow {
        label: axis::describe(&cell.axes),
        values: values(cell, family, parts),
    };
    own.map(row).filter(|row| !row.values.is_empty()).collect()
}

/// Returns a value for each part; 0 for a part that this cell lacks. Empty if the cell has no part.
fn values(cell: &Cell, family: &str, parts: &[&str]) -> Vec<f64> {
    let of = |part: &&str| cell.metrics.get(&format!("{family}.{part}")).map(|m| m.value());
    match parts.iter().any(|part| of(part).is_some()) {
        true => parts.iter().map(|part| of(part).unwrap_or(0.0)).collect(),
        false => Vec::new(),
    }
}

/// Returns the parts that any cell has, in the order in which they were measured.
fn parts<'a>(results: &'a Results, family: &str) -> Vec<&'a str> {
    let mut parts: Vec<&str> = Vec::new();
    for name in results.cells.iter().flat_map(|cell| cell.metrics.keys()) {
        let part = name.strip_prefix(family).and_then(|rest| rest.strip_prefix('.'));
        if let Some(part) = part.filter(|part| !parts.contains(part)) {
            parts.push(part);
        }
    }
    parts
}
