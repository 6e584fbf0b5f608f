//! A part of the page that is closed until a reader opens it.

use maud::{Markup, html};

/// Renders a part that is closed on a screen and open on paper.
pub(super) fn fold(id: &str, title: impl AsRef<str>, inside: &Markup) -> Markup {
    html! {
        details class="fold print" id=(id) {
            summary { h2 { (title.as_ref()) } }
            div class="inside" { (inside) }
        }
    }
}
