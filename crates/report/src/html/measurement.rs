//! The page of one measurement.

use maud::{Markup, html};

use super::document;
use super::page::{footer, over_time, text_table};
use crate::measurement::{
    Measurement, Table, answer, cpu, environment, how, latency, limits, meaning, outcome, series,
    title,
};
use crate::{answer as words, number};
use results::Series;

pub(crate) fn render(measurement: &Measurement) -> String {
    let series = series(measurement);
    let drawn: Vec<&Series> = series.iter().collect();
    let title = title(&measurement.started);
    let body = html! {
        (masthead(measurement, &title))
        main {
            (section("outcome", "What both ends counted", &outcome(measurement)))
            (over_time(&drawn, DATA))
            (warnings(measurement))
            (section("latency", "Latency", &latency(measurement)))
            (section("limits", "What limited the sender", &limits(measurement)))
            (section("cpu", "CPU", &cpu(measurement)))
            @if let Some(profile) = &measurement.profile { (profile.section()) }
            (method(measurement))
            (named("environment", "This machine", environment(measurement)))
            (repeat(measurement))
        }
        (footer(DATA))
    };
    document::page(&format!("{title} · weir perf"), &body, &drawn)
}

fn masthead(measurement: &Measurement, title: &str) -> Markup {
    let count = measurement.ended.warnings.len();
    html! {
        header {
            div class="eyebrow" {
                span { "weir perf" }
                button id="theme" type="button" hidden { "Dark" }
            }
            h1 { (title) }
            div class="answer" { @for sentence in answer(measurement) { p { (sentence) } } }
            div class="facts" {
                @if count > 0 {
                    span class="badge warn" {
                        a href="#warnings" { (words::counted(count, "warning")) }
                    }
                }
                span { (httpdate::fmt_http_date(measurement.started.at)) }
                span { "took " (number::duration(measurement.ended.duration.secs_f64())) }
            }
        }
    }
}

fn section(id: &str, heading: &str, table: &Table) -> Markup {
    html! {
        @if !table.rows.is_empty() {
            h2 id=(id) { (heading) }
            (text_table(heading, None, &table.heads, &table.rows))
        }
    }
}

fn method(measurement: &Measurement) -> Markup {
    html! {
        (named("method", "How it was measured", how(measurement)))
        @for paragraph in meaning() { p { (paragraph) } }
    }
}

fn named(id: &str, heading: &str, rows: Vec<(String, String)>) -> Markup {
    html! {
        @if !rows.is_empty() {
            h2 id=(id) { (heading) }
            div class="scroll" { table class="wrap pairs" { tbody {
                @for (name, text) in rows { tr { th scope="row" { (name) } td { (text) } } }
            } } }
        }
    }
}

fn warnings(measurement: &Measurement) -> Markup {
    html! {
        @if !measurement.ended.warnings.is_empty() {
            h2 id="warnings" { "Warnings" }
            ul { @for warning in &measurement.ended.warnings { li { (warning) } } }
        }
    }
}

fn repeat(measurement: &Measurement) -> Markup {
    html! {
        @if !measurement.command.is_empty() {
            h2 id="repeat" { "How to repeat it" }
            pre { code { (measurement.command) } }
        }
    }
}

/// The file beside the page that has its numbers.
const DATA: &str = "results.json";
