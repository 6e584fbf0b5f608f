//! The table of the first screen.

use maud::{Markup, html};

use super::tables::{self, TALL};
use crate::interval::Around;
use crate::summary::{Field, Head, Summary, SummaryRow};
use crate::{Entry, comparison, method, missing, number};
use results::{Comparison, Results};
use stats::Verdict;

pub(super) fn section(results: &Results) -> Markup {
    if results.confusion.is_some() {
        return tables::verdicts(results);
    }
    let Some(summary) = Summary::of(results) else {
        return html! { p id="results" class="muted" { "Nothing was measured." } };
    };
    let tall = if summary.rows.len() > TALL { "scroll tall" } else { "scroll" };
    html! {
        section id="results" {
            h2 { (summary.title) }
            div class=(tall) tabindex="0" role="group" aria-label=(summary.title) {
                table class="summary" {
                    thead { tr {
                        @for name in &summary.names { th scope="col" class="text" { (name) } }
                        @for one in &summary.heads { (head(one)) }
                    } }
                    tbody { @for one in &summary.rows { (row(one)) } }
                }
            }
            p class="note" { (summary.note) }
        }
    }
}

fn head(head: &Head) -> Markup {
    html! {
        @let class = if head.verdicts { Some("broad") } else { head.published.then_some("published") };
        th scope="col" class=[class] {
            (head.text)
            @if !head.unit.is_empty() { small { (head.unit) } }
            @if head.published { small { "reference" } }
        }
    }
}

fn row(row: &SummaryRow<'_>) -> Markup {
    html! {
        tr class=[row.begins.then_some("begins")] {
            @for (place, name) in row.names.iter().enumerate() {
                @if place == 0 { th scope="row" { (name) } } @else { td class="text" { (name) } }
            }
            // On a phone the columns of verdicts do not fit: the verdicts are below the value.
            @for (place, field) in row.fields.iter().enumerate() {
                @match field {
                    Field::Value { entry, main, verdicts } => {
                        (value(entry, *main, verdicts, &behind(&row.fields[place + 1..])))
                    }
                    Field::Verdict(one) => td class="broad" { @if let Some(one) = one { (verdict(one, false)) } },
                }
            }
        }
    }
}

/// Returns the comparisons in the columns that follow a value.
fn behind<'a>(fields: &[Field<'a>]) -> Vec<&'a Comparison> {
    let verdicts = fields.iter().take_while(|field| matches!(field, Field::Verdict(_)));
    verdicts.filter_map(Field::verdict).collect()
}

fn value(
    entry: &Entry<'_>,
    main: bool,
    verdicts: &[&Comparison],
    stacked: &[&Comparison],
) -> Markup {
    let Some(cell) = entry.cell else {
        let published = entry.published.map(|(_, value)| number::format(value));
        return html! {
            td class="published" { (published.unwrap_or_else(|| "–".to_owned())) }
        };
    };
    html! {
        td {
            @if let Some(word) = missing::in_a_word(cell) {
                span class=(missing::class(cell)) title=[missing::reason(cell)] { (word) }
            } @else if let Some(metric) = entry.metric {
                @let around = Around::metric(metric);
                @let title = around.as_ref().map(Around::labelled);
                @if main { b title=[title] { (number::format(metric.value())) } }
                @else { span title=[title] { (number::format(metric.value())) } }
                @if main { (method::mark(cell)) }
                @if let (Some(around), true) = (around, main) { " " span class="ends" { (around.ends) } }
            } @else if let Some(missing) = entry.missing {
                span class="failed" title=(missing.reason) { (missing::in_place(missing)) }
            } @else {
                span class="muted" { "–" }
            }
            @if let Some((reference, value)) = entry.published {
                small title={ (reference.system) ", " (reference.source) } {
                    "ref " (number::format(value))
                    @if let (Some(ratio), true) = (entry.ratio(), main) { " · " (number::ratio(ratio)) }
                }
            }
            @for one in verdicts { small { (verdict(one, true)) } }
            @for one in stacked { small class="stacked" { (verdict(one, true)) } }
        }
    }
}

/// Renders a verdict as `▲ 1.05×`; the tooltip shows the interval and the verdict as text.
fn verdict(one: &Comparison, named: bool) -> Markup {
    let class = match one.verdict {
        Verdict::Better => "verdict good",
        Verdict::Worse => "verdict bad",
        Verdict::Same | Verdict::Undecided => "verdict",
    };
    let ends = Around::ratio(&one.ratio).map(|around| around.labelled() + ", ").unwrap_or_default();
    let words = format!("{} / {}: {ends}{}", one.a, one.b, comparison::verdict(one));
    html! {
        span class=(class) title=(words) {
            (comparison::short(one))
            @if named { " " (one.b) }
        }
    }
}
