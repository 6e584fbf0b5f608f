//! The page of a verb without cells and systems.

use maud::{Markup, html};

use super::{cells, document};
use crate::page::{Page, Section};
use results::Series;
use units::foreign;

pub(crate) fn render(page: &Page) -> String {
    let drawn: Vec<&Series> = page.series.iter().collect();
    let body = html! {
        header {
            div class="eyebrow" {
                span { (page.verb) }
                button id="theme" type="button" hidden { "Dark" }
            }
            h1 { (foreign(&page.title)) }
            div class="answer" { @for sentence in &page.answer { p { (sentence) } } }
            div class="facts" { @for fact in &page.facts { span { (fact) } } }
        }
        main {
            @for one in page.sections.iter().take(1) { (section(one)) }
            (over_time(&drawn, &page.data))
            @for one in page.sections.iter().skip(1) { (section(one)) }
        }
        (footer(&page.data))
    };
    document::page(&format!("{} · {}", page.title, page.verb), &body, &drawn)
}

/// Renders the drawings of series, and names the file `data` that has their values.
pub(super) fn over_time(drawn: &[&Series], data: &str) -> Markup {
    let places: Vec<(usize, &Series)> = drawn.iter().copied().enumerate().collect();
    html! {
        @if !places.is_empty() {
            h2 id="time" { "Over time" }
            noscript {
                p class="note" {
                    "Lines over time are drawn by a script, which this browser does not run; the "
                    "values are in " code { (data) } "."
                }
            }
            p class="note" {
                "Each point covers the time before it. Drag to look closer, double-click to see "
                "all again."
            }
            section class="charted" id="charts" { (cells::charts(0, &places)) }
        }
    }
}

pub(super) fn footer(data: &str) -> Markup {
    html! {
        footer {
            p {
                "Written by weir " (env!("CARGO_PKG_VERSION")) ". Every number of this page is in "
                code { (data) } " beside it. The page loads nothing from the network."
            }
        }
    }
}

/// Renders a table whose first column has the rows' names.
pub(super) fn text_table(
    label: &str,
    class: Option<&str>,
    heads: &[String],
    rows: &[Vec<String>],
) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="group" aria-label=(label) {
            table class=[class] {
                @if !heads.is_empty() {
                    thead {
                        tr {
                            @for (place, head) in heads.iter().enumerate() {
                                th scope="col" class=[(place == 0).then_some("text")] { (head) }
                            }
                        }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            @for (place, text) in row.iter().enumerate() {
                                @if place == 0 { th scope="row" { (text) } } @else { td { (text) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn section(section: &Section) -> Markup {
    html! {
        h2 { (section.heading) }
        @if !section.rows.is_empty() {
            @let class = if section.heads.is_empty() { "wrap pairs" } else { "wrap" };
            (text_table(&section.heading, Some(class), &section.heads, &section.rows))
        }
        @if !section.items.is_empty() { ul { @for item in &section.items { li { (item) } } } }
        @if !section.commands.is_empty() { pre { code { (section.commands.join("\n")) } } }
    }
}
