//! The frame of every page: a body, its data, and the only script and style sheet that may run.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::embed;
use results::Series;
use units::{foreign, visible};

pub(super) fn page(title: &str, body: &Markup, drawn: &[&Series]) -> String {
    // The body's texts may come from other machines, so they are filtered. The page's own script
    // and style stay unchanged, because the policy contains their hashes.
    let body = PreEscaped(visible(&body.0));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body {
                (body)
                script type="application/json" id="series-data" { (PreEscaped(embed::json(drawn))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// Renders the document's head. Only this page's own script and style may run.
fn head(title: &str) -> Markup {
    let policy = format!(
        "default-src 'none'; script-src '{SCRIPT_HASH}'; style-src '{STYLE_HASH}'; img-src data:; \
         base-uri 'none'; form-action 'none'"
    );
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(policy);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="referrer" content="no-referrer";
            title { (foreign(title)) }
            style { (PreEscaped(STYLE)) }
        }
    }
}

const SCRIPT: &str = include_str!(concat!(env!("OUT_DIR"), "/report.js"));
const SCRIPT_HASH: &str = include_str!(concat!(env!("OUT_DIR"), "/report.js.hash"));
const STYLE: &str = include_str!(concat!(env!("OUT_DIR"), "/report.css"));
const STYLE_HASH: &str = include_str!(concat!(env!("OUT_DIR"), "/report.css.hash"));
