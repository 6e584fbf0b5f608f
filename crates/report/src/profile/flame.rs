//! A flame graph: a rectangle for each function, as wide as its share of the stacks, above its
//! caller.

use std::collections::BTreeMap;
use std::sync::Arc;

use maud::{Markup, html};

use super::{SystemProfile, clean};

#[derive(Debug, Default)]
struct Node {
    samples: u64,
    callees: BTreeMap<Arc<str>, Node>,
}

#[derive(Debug)]
pub(super) struct Flame<'a> {
    system: &'a str,
    root: Node,
}

struct Drawn<'a> {
    name: &'a str,
    depth: usize,
    from: f64,
    width: f64,
    samples: u64,
}

impl<'a> Flame<'a> {
    pub(super) fn of(profile: &'a SystemProfile) -> Self {
        let mut root = Node::default();
        for (frames, count) in &profile.stacks {
            root.samples += count;
            let mut node = &mut root;
            for name in frames.iter().take(DEEPEST) {
                node = node.callees.entry(Arc::clone(name)).or_default();
                node.samples += count;
            }
        }
        Self { system: &profile.system, root }
    }

    pub(super) fn render(&self) -> Markup {
        let mut drawn = Vec::new();
        let all = self.root.samples.max(1) as f64;
        self.root.lay_out(0, 0.0, all, &mut drawn);
        let rows = drawn.iter().map(|one| one.depth + 1).max().unwrap_or(1);
        let height = rows as f64 * ROW;
        html! {
            svg role="img" viewBox={"0 0 " (WIDTH) " " (height)} width=(WIDTH) height=(height)
                xmlns="http://www.w3.org/2000/svg" font-family="monospace" font-size="11" {
                title { "Stacks of " (clean(self.system)) }
                rect width=(WIDTH) height=(height) fill="#ffffff" {}
                @for one in &drawn {
                    @let y = height - (one.depth as f64 + 1.0) * ROW;
                    g {
                        title {
                            (clean(one.name)) ": " (one.samples) " stacks, "
                            (format!("{:.1}", one.samples as f64 / all * 100.0)) " %"
                        }
                        rect x=(n(one.from)) y=(n(y)) width=(n((one.width - 0.4).max(0.2)))
                            height=(n(ROW - 1.0)) fill=(colour(one)) {}
                        @if let Some(text) = fitted(one) {
                            text x=(n(one.from + 3.0)) y=(n(y + 11.5)) fill="#1a1a1a" { (text) }
                        }
                    }
                }
            }
        }
    }
}

impl Node {
    fn lay_out<'n>(&'n self, depth: usize, from: f64, all: f64, into: &mut Vec<Drawn<'n>>) {
        let mut from = from;
        for (name, node) in &self.callees {
            let width = node.samples as f64 / all * WIDTH;
            if width >= NARROWEST {
                into.push(Drawn { name, depth, from, width, samples: node.samples });
                node.lay_out(depth + 1, from, all, into);
            }
            from += width;
        }
    }
}

/// Cuts the name to the width of its rectangle; `None` if too few letters fit.
fn fitted(one: &Drawn<'_>) -> Option<String> {
    let room = ((one.width - 6.0) / LETTER) as usize;
    let name = clean(one.name);
    match name.chars().count() {
        length if length <= room => Some(name),
        _ if room < 4 => None,
        _ => Some(format!("{}…", name.chars().take(room - 1).collect::<String>())),
    }
}

/// Returns the colour of a function: threads, user code and the kernel have different colours.
fn colour(one: &Drawn<'_>) -> &'static str {
    let shade = one.name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31) + byte as usize);
    let of = |colours: [&'static str; 4]| colours[shade % 4];
    match one.name {
        _ if one.depth == 0 => "#c9d1d9",
        name if name.starts_with('[') => of(["#9ecbff", "#8fbff5", "#a9d3ff", "#b6daff"]),
        _ => of(["#ffb366", "#ffa94d", "#ffc078", "#ffcc80"]),
    }
}

fn n(value: f64) -> String {
    format!("{value:.1}")
}

const WIDTH: f64 = 1200.0;
const ROW: f64 = 16.0;
const LETTER: f64 = 6.7;
/// Minimum width of a drawn function. A narrower function would be invisible.
const NARROWEST: f64 = 0.6;
/// Maximum number of levels, to bound the height of the drawing and the depth of the recursion.
const DEEPEST: usize = 90;
