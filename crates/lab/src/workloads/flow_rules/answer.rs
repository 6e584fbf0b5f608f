//! Answers to the report's questions, from the cells of a run.

use results::{Cell, Results};

/// Returns the sentences about one rule and about the most rules that every switch caches by
/// default, then about more rules. Empty if the run has fewer than two numbers of rules.
pub(super) fn sentences(results: &Results) -> Vec<String> {
    let seen = Seen::of(results);
    let Some((fewest, most)) = seen.counts(FLOW_LIMIT) else { return Vec::new() };
    let mut sentences: Vec<String> =
        [fewest, most].into_iter().filter_map(|rules| seen.beside(rules)).collect();
    sentences.extend(seen.without_loss());
    sentences.extend(seen.beyond());
    for system in seen.systems() {
        sentences.extend(seen.flatness(system, fewest, most));
        sentences.extend(seen.growth(system, fewest, most));
        sentences.extend(seen.flows_or_rules(system, fewest, most));
        sentences.extend(seen.tracking(system, fewest));
    }
    sentences.extend(seen.windows());
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

    /// Returns the fewest and the most rules up to `limit`, if they differ.
    fn counts(&self, limit: u32) -> Option<(u32, u32)> {
        let counts = || self.all_rules().into_iter().filter(|number| *number <= limit);
        let (fewest, most) = (counts().min()?, counts().max()?);
        (fewest < most).then_some((fewest, most))
    }

    /// Returns the numbers of rules in ascending order.
    fn all_rules(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.0.iter().filter_map(|(cell, _)| rules(cell)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Compares the switches at one number of rules: `With 1 rule, millions of packets a second of
    /// weir-switch and of ovs-dpdk: nat 8.89 and 5.15 (1.73 times), …` With several peers the ratio
    /// is the ratio to the fastest peer.
    fn beside(&self, number: u32) -> Option<String> {
        let names = self.names()?;
        let of_set = |set: &&str| self.all_at(CAPACITY, set, number);
        let all: Vec<String> = NAT_FIRST.iter().filter_map(of_set).collect();
        let number = of_rules(number);
        (!all.is_empty()).then(|| {
            format!("With {number}, millions of packets a second of {names}: {}.", all.join(", "))
        })
    }

    /// Compares the highest rate without loss, for each rule set and number of rules at which both
    /// switches have such a rate. The worst ratio comes first.
    fn without_loss(&self) -> Option<String> {
        let (names, own) = (self.names()?, *self.systems().first()?);
        let place = |set: &&'static str, number: u32| {
            let (figures, ratio) = self.figures_at(NDR, set, number)?;
            Some((ratio, figures.replacen(*set, &format!("{set}, {}", of_rules(number)), 1)))
        };
        let mut places: Vec<(f64, String)> = self
            .all_rules()
            .into_iter()
            .filter(|number| *number <= FLOW_LIMIT)
            .flat_map(|number| SETS.iter().filter_map(move |set| place(set, number)))
            .collect();
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        let behind = places.iter().filter(|(ratio, _)| *ratio < 1.0).count();
        let count = places.len();
        let listed: Vec<String> = places.into_iter().map(|(_, text)| text).collect();
        (count > 0).then(|| {
            format!(
                "Highest rates without loss are one search each, and {own} is behind in {behind} of {count}; \
                 millions a second of {names}, the lowest ratio first: {}.",
                listed.join("; ")
            )
        })
    }

    /// Compares the figures at more rules than the number of flows that Open vSwitch caches by
    /// default.
    fn beyond(&self) -> Option<String> {
        let names = self.names()?;
        let (own, other) = self.pair()?;
        let number = self.all_rules().into_iter().rfind(|number| *number > FLOW_LIMIT)?;
        let of_set = |set: &&str| self.all_at(CAPACITY, set, number);
        let all: Vec<String> = NAT_FIRST.iter().filter_map(of_set).collect();
        if all.is_empty() {
            return None;
        }
        let all = all.join(", ");
        let begin = format!(
            "{number} rules and five-tuples exceed the {FLOW_LIMIT} flows that Open vSwitch caches at its \
             default (`flow-limit`)"
        );
        Some(match self.systems().contains(&TUNED) {
            true => format!(
                "{begin}; {TUNED} has a higher limit. Millions of packets a second of {names}: {all}."
            ),
            false => format!(
                "{begin}, which the lab leaves as it is: the figures there compare {own} with \
                 an untuned {other}, and answer nothing about a tuned one: {all}."
            ),
        })
    }

    fn all_at(&self, metric: &str, set: &str, number: u32) -> Option<String> {
        self.figures_at(metric, set, number).map(|(text, _)| text)
    }

    /// Compares one rule set, `nat 8.90 and 5.26 (1.69 times)`, and returns the ratio to the
    /// fastest peer. A peer without a figure is `-`. `None` if no peer has a figure.
    fn figures_at(&self, metric: &str, set: &str, number: u32) -> Option<(String, f64)> {
        let systems = self.systems();
        let (own, peers) = systems.split_first()?;
        let own = self.figure(own, metric, set, number)?;
        let figures: Vec<Option<f64>> =
            peers.iter().map(|peer| self.figure(peer, metric, set, number)).collect();
        let best = figures.iter().copied().flatten().reduce(f64::max)?;
        let word = |figure: &Option<f64>| match figure {
            Some(rate) => format!("{:.2}", rate / 1e6),
            None => "-".to_owned(),
        };
        let words: Vec<String> = std::iter::once(&Some(own)).chain(&figures).map(word).collect();
        let of_what = if peers.len() > 1 { " the faster peer" } else { "" };
        let ratio = own / best;
        Some((format!("{set} {} ({ratio:.2} times{of_what})", listed(&words)), ratio))
    }

    /// Returns the names of all systems: `weir-switch and of ovs-dpdk`.
    fn names(&self) -> Option<String> {
        let systems = self.systems();
        let (last, others) = systems.split_last().filter(|(_, others)| !others.is_empty())?;
        Some(format!("{} and of {last}", others.join(", ")))
    }

    fn figure(&self, system: &str, metric: &str, set: &str, number: u32) -> Option<f64> {
        let (cell, _) = self.cell(system, set, number)?;
        Some(cell.metrics.get(metric)?.median).filter(|rate| *rate > 0.0)
    }

    /// Returns the first system, and the peer to compare with the first system.
    fn pair(&self) -> Option<(&'a str, &'a str)> {
        match self.systems().as_slice() {
            [own, other, ..] => Some((*own, *other)),
            _ => None,
        }
    }

    /// Returns the caution that the repeats of a cell share one start of the switch.
    fn windows(&self) -> Option<String> {
        let windows = self.0.iter().filter_map(|(cell, _)| {
            cell.metrics.get(CAPACITY).filter(|metric| metric.one_start).map(|metric| metric.n)
        });
        let most = windows.max()?;
        Some(format!(
            "Each cell has one start of its switch: the range beside a capacity is that of {most} successive \
             windows of one process, and decides nothing about another start."
        ))
    }

    fn cell(&self, system: &str, set: &str, number: u32) -> Option<&(&'a Cell, f64)> {
        self.0.iter().find(|(cell, _)| {
            cell.system == system
                && cell.axes.get("set").is_some_and(|own| own == set)
                && rules(cell) == Some(number)
        })
    }

    /// Returns the mean time for each packet at the measured capacity, in nanoseconds.
    fn time(&self, system: &str, set: &str, number: u32) -> Option<f64> {
        let (_, rate) = self.cell(system, set, number)?;
        Some(1e9 / rate)
    }

    /// Returns the part of [`Seen::time`] in which the source hands the packet over.
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

    /// States the time that more rules add to a packet. Subtracts the growth of the source's part:
    /// with more rules the source's frames do not fit the CPU's caches either.
    fn growth(&self, system: &str, fewest: u32, most: u32) -> Option<String> {
        let of_set = |set: &&str| {
            let more = self.time(system, set, most)? - self.time(system, set, fewest)?;
            let source = self.source(system, set, most)? - self.source(system, set, fewest)?;
            let own = more - source;
            if own < LEAST_GROWTH_NS {
                return Some(format!("{set} none"));
            }
            Some(format!("{set} {own:.0} ({more:.0} and {source:.0})"))
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

    /// States how much of the growth of a packet's time comes from the NAT rules, and how much from
    /// the five-tuples.
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
            "{system}, nat: a packet takes {few:.0} ns with {} and {all_rules:.0} with \
             {most}; the same five-tuples through one NAT rule (base) take {one_rule:.0}, so \
             {part:.0} % of the growth comes from the five-tuples and the rest from the rules.",
            of_rules(fewest)
        ))
    }

    /// States the time of tracking and NAT, which keeps packet threads busy even if matches are
    /// offloaded.
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

/// Joins words to a list in a sentence: `a, b and c`.
fn listed(words: &[String]) -> String {
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => words.concat(),
    }
}

fn of_rules(number: u32) -> String {
    if number == 1 { "1 rule".to_owned() } else { format!("{number} rules") }
}

fn rules(cell: &Cell) -> Option<u32> {
    cell.axes.get("rules")?.parse().ok()
}

const CAPACITY: &str = "capacity_pps";
const NDR: &str = "ndr_pps";
/// Number of flows that Open vSwitch caches by default (ovs-vswitchd.conf.db(5),
/// `other_config:flow-limit`).
const FLOW_LIMIT: u32 = 200_000;
/// Minimum growth in nanoseconds. A smaller growth rounds to 0, or comes from the scatter of the
/// windows.
const LEAST_GROWTH_NS: f64 = 0.5;
const SETS: [&str; 4] = ["base", "mac", "nat", "raw"];
/// The rule sets in the order of comparisons. NAT, which needs all parts of a switch, comes first.
const NAT_FIRST: [&str; 4] = ["nat", "mac", "base", "raw"];
/// The peer with room for more flows than [`FLOW_LIMIT`].
const TUNED: &str = "ovs-dpdk-tuned";

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
            cell.metrics.insert(CAPACITY.to_owned(), Metric::single(*rate, "packets/s"));
            results.cells.push(cell);
        }
        results
    }

    #[test]
    fn the_answer_separates_the_growth_by_five_tuples_from_the_growth_by_rules() {
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
                "a, nat: a packet takes 200 ns with 1 rule and 500 with 65536; the same five-tuples \
                 through one NAT rule (base) take 400, so 67 % of the growth comes from the \
                 five-tuples and the rest from the rules.",
                "a: tracking and NAT of a single flow take 100 of 200 ns, which stay on the packet \
                 thread however its match is found.",
            ]
        );
    }

    #[test]
    fn growth_of_the_source_does_not_count_as_growth_of_the_switch() {
        let mut run = results(&[("mac", "1", 10e6), ("mac", "65536", 8e6)]);
        for (cell, [all, receive]) in run.cells.iter_mut().zip([[200.0, 20.0], [250.0, 40.0]]) {
            for (name, median) in [("cycles", all), ("cycles.receive", receive)] {
                cell.metrics.insert(name.to_owned(), Metric::single(median, "cycles"));
            }
        }
        assert_eq!(
            sentences(&run)[1],
            "a: nanoseconds more for a packet with 65536 rules than with 1, without the source's own \
             (with it, and the source's): mac 15 (25 and 10)."
        );
    }

    /// Builds results of two systems at 1, 65,536 and 262,144 rules.
    fn of_two() -> Results {
        let figures = [("nat", "1", 9e6), ("nat", "65536", 7e6), ("nat", "262144", 7e6)];
        let mut run = results(&figures);
        let mut peer = results(&figures);
        for (cell, [capacity, ndr]) in
            peer.cells.iter_mut().zip([[5e6, 2.8e6], [0.7e6, 0.6e6], [0.2e6, 0.1e6]])
        {
            cell.system = "ovs-dpdk".to_owned();
            cell.metrics.insert(CAPACITY.to_owned(), Metric::single(capacity, ""));
            cell.metrics.insert(NDR.to_owned(), Metric::single(ndr, ""));
        }
        for cell in &mut run.cells {
            cell.metrics.insert(NDR.to_owned(), Metric::single(2.24e6, ""));
        }
        run.cells.extend(peer.cells);
        run
    }

    #[test]
    fn the_answer_first_has_the_numbers_of_rules_below_the_flow_limit_of_the_peer() {
        let told = sentences(&of_two());
        assert_eq!(
            told[..2],
            [
                "With 1 rule, millions of packets a second of a and of ovs-dpdk: nat 9.00 and 5.00 (1.80 \
                 times).",
                "With 65536 rules, millions of packets a second of a and of ovs-dpdk: nat 7.00 and 0.70 \
                 (10.00 times).",
            ]
        );
        let beyond = told.iter().position(|one| one.contains("35.00 times")).unwrap();
        assert!(beyond > 1 && told[beyond].contains("200000 flows"), "{told:?}");
        assert!(told.iter().all(|one| !one.contains("262144 rules a keeps")), "{told:?}");
    }

    #[test]
    fn the_ratio_beside_two_peers_is_the_ratio_to_the_faster_peer() {
        let mut run = of_two();
        let mut tuned = run.cells[3..].to_vec();
        for (cell, rate) in tuned.iter_mut().zip([4.5e6, 1e6, 0.8e6]) {
            cell.system = TUNED.to_owned();
            cell.metrics.insert(CAPACITY.to_owned(), Metric::single(rate, ""));
            cell.metrics.shift_remove(NDR);
        }
        run.cells.extend(tuned);
        let told = sentences(&run);
        let begin =
            "With 1 rule, millions of packets a second of a, ovs-dpdk and of ovs-dpdk-tuned";
        assert_eq!(
            told[0],
            format!("{begin}: nat 9.00, 5.00 and 4.50 (1.80 times the faster peer).")
        );
        assert!(told[1].contains("nat 7.00, 0.70 and 1.00 (7.00 times the faster"), "{told:?}");
        assert!(told[2].contains("nat, 1 rule 2.24, 2.80 and - (0.80 times"), "{told:?}");
        let beyond = told.iter().find(|one| one.contains("a higher limit")).unwrap();
        assert!(beyond.contains("nat 7.00, 0.20 and 0.80 (8.75 times the faster"), "{beyond}");
    }

    #[test]
    fn the_answer_names_a_no_drop_rate_below_the_rate_of_the_peer() {
        let told = sentences(&of_two());
        let named = told.iter().find(|one| one.contains("without loss")).unwrap();
        assert!(named.contains("behind in 1 of 2"), "{named}");
        assert!(
            named.contains("first: nat, 1 rule 2.24 and 2.80 (0.80 times); nat, 65536"),
            "{named}"
        );
    }

    #[test]
    fn rules_without_packet_cost_have_no_growth() {
        let mut run = results(&[("raw", "1", 10e6), ("raw", "65536", 10.2e6)]);
        for cell in &mut run.cells {
            for (name, median) in [("cycles", 200.0), ("cycles.receive", 20.0)] {
                cell.metrics.insert(name.to_owned(), Metric::single(median, "cycles"));
            }
        }
        let told = sentences(&run).join(" ");
        assert!(told.contains("raw none.") && !told.contains('-'), "{told}");
    }

    #[test]
    fn a_single_number_of_rules_gives_no_answer() {
        assert_eq!(sentences(&results(&[("base", "1", 5e6)])), [""; 0]);
        assert_eq!(sentences(&results(&[])), [""; 0]);
    }
}
