//! The verdict on the report's doubts, from the cells of a run.

use results::{Cell, Comparison, Results};

/// Sentences about the most rules that were measured. None without them.
pub(super) fn sentences(results: &Results) -> Vec<String> {
    let seen = Seen::of(results);
    let Some((fewest, most)) = seen.counts() else { return Vec::new() };
    let mut sentences: Vec<String> = primary(results).collect();
    for system in seen.systems() {
        sentences.extend(seen.flatness(system, fewest, most));
        sentences.extend(seen.growth(system, fewest, most));
        sentences.extend(seen.flows_or_rules(system, fewest, most));
        sentences.extend(seen.tracking(system, fewest));
    }
    sentences
}

/// The cells with a capacity and the fewest packet threads.
struct Seen<'a>(Vec<(&'a Cell, f64)>);

impl<'a> Seen<'a> {
    fn of(results: &'a Results) -> Self {
        let number = |cell: &Cell| cell.axes.get("pmds").and_then(|text| text.parse::<u32>().ok());
        let least = results.cells.iter().filter_map(number).min();
        let cells = results.cells.iter().filter(|cell| cell.valid && number(cell) == least);
        let figures = cells.filter_map(|cell| Some((cell, cell.metrics.get(CAPACITY)?.median)));
        Self(figures.filter(|(_, rate)| *rate > 0.0).collect())
    }

    fn systems(&self) -> Vec<&'a str> {
        let mut systems: Vec<&str> = Vec::new();
        for (cell, _) in &self.0 {
            if !systems.contains(&cell.system.as_str()) {
                systems.push(&cell.system);
            }
        }
        systems
    }

    /// The fewest and the most rules, if they differ.
    fn counts(&self) -> Option<(u32, u32)> {
        let counts = || self.0.iter().filter_map(|(cell, _)| rules(cell));
        let (fewest, most) = (counts().min()?, counts().max()?);
        (fewest < most).then_some((fewest, most))
    }

    fn cell(&self, system: &str, set: &str, number: u32) -> Option<&(&'a Cell, f64)> {
        self.0.iter().find(|(cell, _)| {
            cell.system == system
                && cell.axes.get("set").is_some_and(|own| own == set)
                && rules(cell) == Some(number)
        })
    }

    /// Nanoseconds for each packet.
    fn time(&self, system: &str, set: &str, number: u32) -> Option<f64> {
        let (_, rate) = self.cell(system, set, number)?;
        Some(1e9 / rate)
    }

    /// The part of [`Seen::time`] in which the source hands the packet over.
    fn source(&self, system: &str, set: &str, number: u32) -> Option<f64> {
        let (cell, rate) = self.cell(system, set, number)?;
        let cycles = |name: &str| Some(cell.metrics.get(name)?.median);
        let part = cycles("cycles.receive")? / cycles("cycles").filter(|all| *all > 0.0)?;
        Some(part * 1e9 / rate)
    }

    fn flatness(&self, system: &str, fewest: u32, most: u32) -> Option<String> {
        let kept = SETS.iter().filter_map(|set| {
            let (few, many) = (self.time(system, set, fewest)?, self.time(system, set, most)?);
            Some(format!("{set} {:.2}", few / many))
        });
        let kept: Vec<String> = kept.collect();
        (!kept.is_empty()).then(|| {
            let kept = kept.join(", ");
            format!("With {most} rules {system} keeps this part of its rate with {fewest}: {kept}.")
        })
    }

    /// The source's frames do not fit the caches either.
    fn growth(&self, system: &str, fewest: u32, most: u32) -> Option<String> {
        let of_set = |set: &&str| {
            let more = self.time(system, set, most)? - self.time(system, set, fewest)?;
            let source = self.source(system, set, most)? - self.source(system, set, fewest)?;
            Some(format!("{set} {:.0} ({more:.0} and {source:.0})", more - source))
        };
        let all: Vec<String> = SETS.iter().filter_map(of_set).collect();
        (!all.is_empty()).then(|| {
            format!(
                "{system}: nanoseconds more for a packet with {most} rules than with {fewest}, without \
                 the source's own (with it, and the source's): {}.",
                all.join(", ")
            )
        })
    }

    /// Are NAT rules slow, or the five-tuples that come with them?
    fn flows_or_rules(&self, system: &str, fewest: u32, most: u32) -> Option<String> {
        let few = self.time(system, "nat", fewest)?;
        let (one_rule, all_rules) =
            (self.time(system, "base", most)?, self.time(system, "nat", most)?);
        let (growth, of_flows) = (all_rules - few, one_rule - few);
        if growth <= 0.0 {
            return Some(format!(
                "{system}: nat with {most} rules is no slower than with {fewest}."
            ));
        }
        let part = (of_flows / growth).clamp(0.0, 1.0) * 100.0;
        Some(format!(
            "{system}, nat: a packet takes {few:.0} ns with {fewest} rules and {all_rules:.0} with \
             {most}; the same five-tuples through one NAT rule (base) take {one_rule:.0}, so \
             {part:.0} % of the growth comes from the five-tuples and the rest from the rules."
        ))
    }

    /// Why are packet threads busy while the matches are offloaded?
    fn tracking(&self, system: &str, fewest: u32) -> Option<String> {
        let plain = self.time(system, "raw", fewest)?;
        let tracked = self.time(system, "base", fewest)?;
        Some(format!(
            "{system}: tracking and NAT of a single flow take {:.0} of {tracked:.0} ns, which stay on \
             the packet thread however its match is found.",
            tracked - plain
        ))
    }
}

/// The primary comparisons in words.
fn primary(results: &Results) -> impl Iterator<Item = String> + '_ {
    let of_capacity = |one: &&Comparison| one.primary && one.metric == CAPACITY;
    results.comparisons.iter().filter(of_capacity).filter_map(|one| {
        let rate = |system: &str| {
            let mut cells = results.cells.iter();
            let cell = cells.find(|cell| cell.system == system && cell.axes == one.axes)?;
            Some(cell.metrics.get(CAPACITY)?.median / 1e6)
        };
        let at: Vec<String> =
            one.axes.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
        let interval = match (one.ratio.ci95, one.ratio.range) {
            (Some([low, high]), _) => format!(" [{low:.2}, {high:.2}]"),
            (None, Some([low, high])) => format!(" (range {low:.2} to {high:.2})"),
            (None, None) => String::new(),
        };
        Some(format!(
            "At {}: {} {:.2}, {} {:.2} million packets a second: {:.2} times{interval}.",
            at.join(", "),
            one.a,
            rate(&one.a)?,
            one.b,
            rate(&one.b)?,
            one.ratio.median,
        ))
    })
}

fn rules(cell: &Cell) -> Option<u32> {
    cell.axes.get("rules")?.parse().ok()
}

const CAPACITY: &str = "capacity_pps";
const SETS: [&str; 4] = ["base", "mac", "nat", "raw"];

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Axes, Form, Metric};

    fn results(figures: &[(&str, &str, f64)]) -> Results {
        let mut results = Results::new("flow-rules", Form::Quick);
        for (set, rules, rate) in figures {
            let axes = [("set", *set), ("rules", *rules), ("pmds", "1")];
            let axes: Axes = axes.map(|(a, v)| (a.to_owned(), v.to_owned())).into_iter().collect();
            let mut cell = Cell::new("a", axes);
            let median = *rate;
            let unit = "packets/s".to_owned();
            let metric = Metric { median, ci95: None, coverage: None, range: None, n: 1, unit };
            cell.metrics.insert(CAPACITY.to_owned(), metric);
            results.cells.push(cell);
        }
        results
    }

    #[test]
    fn the_growth_is_told_apart() {
        let run = results(&[
            ("base", "1", 5e6),
            ("base", "65536", 2.5e6),
            ("nat", "1", 5e6),
            ("nat", "65536", 2e6),
            ("raw", "1", 10e6),
            ("raw", "65536", 9e6),
        ]);
        let told = sentences(&run);
        assert_eq!(
            told,
            [
                "With 65536 rules a keeps this part of its rate with 1: base 0.50, nat 0.40, raw 0.90.",
                "a, nat: a packet takes 200 ns with 1 rules and 500 with 65536; the same five-tuples \
                 through one NAT rule (base) take 400, so 67 % of the growth comes from the \
                 five-tuples and the rest from the rules.",
                "a: tracking and NAT of a single flow take 100 of 200 ns, which stay on the packet \
                 thread however its match is found.",
            ]
        );
    }

    #[test]
    fn the_growth_of_the_source_is_no_growth_of_the_switch() {
        let mut run = results(&[("mac", "1", 10e6), ("mac", "65536", 8e6)]);
        for (cell, [all, receive]) in run.cells.iter_mut().zip([[200.0, 20.0], [250.0, 40.0]]) {
            for (name, median) in [("cycles", all), ("cycles.receive", receive)] {
                let unit = "cycles".to_owned();
                let metric = Metric { median, ci95: None, coverage: None, range: None, n: 1, unit };
                cell.metrics.insert(name.to_owned(), metric);
            }
        }
        assert_eq!(
            sentences(&run)[1],
            "a: nanoseconds more for a packet with 65536 rules than with 1, without the source's own \
             (with it, and the source's): mac 15 (25 and 10)."
        );
    }

    #[test]
    fn one_size_alone_says_nothing() {
        assert_eq!(sentences(&results(&[("base", "1", 5e6)])), [""; 0]);
        assert_eq!(sentences(&results(&[])), [""; 0]);
    }
}
