/// The starts of the flows of all templates, as TRex spaces them (`generate_flows_roundrobin` in
/// `src/bp_sim.cpp` of TRex 3.06).
///
/// If all templates together have N new flows per second, at most one flow begins in each Nth of a
/// second. The templates take turns. If a template's rate permits no flow yet, the next template
/// gets the turn. If the rate of no template permits a flow, no flow begins at this moment.
#[derive(Debug, Clone)]
pub(super) struct Starts {
    turns: Vec<Turn>,
    /// The index in `turns` of the template whose turn is next.
    place: usize,
    moment: u64,
    /// The time between two moments in nanoseconds.
    interval: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) template: usize,
    /// The flow's number within its template.
    pub(super) flow: u64,
    /// The start time in nanoseconds.
    pub(super) at: u64,
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    template: usize,
    /// The template's share of all flows.
    share: f64,
    begun: u64,
    /// The moment of the first flow.
    first: u64,
}

impl Starts {
    /// `rates`: the number of new flows per second of each template. A template with rate 0 begins
    /// no flow.
    pub(super) fn new(rates: impl Iterator<Item = f64>) -> Self {
        let rates: Vec<_> = rates.enumerate().filter(|(_, rate)| *rate > 0.0).collect();
        let whole: f64 = rates.iter().map(|(_, rate)| rate).sum();
        let turn = |(template, rate): (usize, f64)| Turn {
            template,
            share: rate / whole,
            begun: 0,
            first: 0,
        };
        Self {
            turns: rates.into_iter().map(turn).collect(),
            place: 0,
            moment: 0,
            interval: 1e9 / whole,
        }
    }

    /// Returns the next flow to begin. Returns `None` if no flow begins within a hundred years.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Start> {
        if self.turns.is_empty() {
            return None;
        }
        loop {
            let moment = self.moment;
            // Signed, because converting a signed number to `f64` takes fewer instructions than
            // converting an unsigned number.
            let nanos = moment as i64 as f64 * self.interval;
            if nanos >= FOREVER {
                return None;
            }
            self.moment += 1;
            let count = self.turns.len();
            for _ in 0..count {
                let turn = &mut self.turns[self.place];
                self.place += 1;
                if self.place == count {
                    self.place = 0;
                }
                if turn.takes(moment) {
                    let (template, flow) = (turn.template, turn.begun - 1);
                    return Some(Start { template, flow, at: nanos as i64 as u64 });
                }
            }
        }
    }
}

impl Turn {
    /// Begins a flow at `moment` if the template's rate permits a flow. Returns true if the flow
    /// began.
    #[inline]
    fn takes(&mut self, moment: u64) -> bool {
        if self.begun == 0 {
            self.first = moment;
        }
        let permitted = (moment - self.first) as i64 as f64 * self.share + ROUNDING;
        let takes = permitted >= self.begun as i64 as f64;
        self.begun += u64::from(takes);
        takes
    }
}

/// A hundred years in nanoseconds.
const FOREVER: f64 = 3e18;
/// Tolerance for shares that are not exact, such as a third of all flows. A flow may begin earlier
/// by this tolerance.
const ROUNDING: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn starts(rates: &[f64], count: usize) -> Vec<(usize, u64)> {
        let mut starts = Starts::new(rates.iter().copied());
        (0..count).map_while(|_| starts.next()).map(|start| (start.template, start.at)).collect()
    }

    /// The expected start times, in units of 1/52 s, are the times that TRex recorded for
    /// `imix.yaml` of its regression test.
    #[test]
    fn imix_flows_start_at_the_times_that_trex_recorded() {
        let expected = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13];
        let templates = [0, 1, 2, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0];
        for (number, (template, at)) in starts(&[28.0, 20.0, 4.0], 13).into_iter().enumerate() {
            let nanos = expected[number] as f64 * 1e9 / 52.0;
            assert!((at as f64 - nanos).abs() < 2.0, "flow {number}: {at}, not {nanos}");
            assert_eq!(template, templates[number], "flow {number}");
        }
    }

    #[test]
    fn templates_of_equal_rates_begin_flows_alternately_at_even_intervals() {
        for count in [1, 2, 3, 7, 8, 19] {
            let rates = vec![125.0; count];
            for (number, (template, at)) in starts(&rates, 5000).into_iter().enumerate() {
                assert_eq!(template, number % count);
                let nanos = number as f64 * 1e9 / (125.0 * count as f64);
                assert!((at as f64 - nanos).abs() < 2.0, "{count}: flow {number}: {at}");
            }
        }
    }

    #[test]
    fn a_template_with_rate_zero_begins_no_flow() {
        assert_eq!(starts(&[0.0, 0.0], 1), []);
        assert_eq!(starts(&[], 1), []);
        assert!(starts(&[0.0, 5.0], 100).iter().all(|(template, _)| *template == 1));
        assert_eq!(starts(&[1e-12], 3), [(0, 0)]);
    }

    proptest! {
        #[test]
        fn no_two_flows_begin_at_the_same_time_and_every_template_keeps_its_rate(
            rates in prop::collection::vec(0.5f64..1000.0, 1..20),
        ) {
            let whole: f64 = rates.iter().sum();
            let all = starts(&rates, 20_000);
            for pair in all.windows(2) {
                prop_assert!(pair[1].1 - pair[0].1 + 2 > (1e9 / whole) as u64);
            }
            let seconds = all[all.len() - 1].1 as f64 / 1e9;
            for (template, rate) in rates.iter().enumerate() {
                let begun = all.iter().filter(|start| start.0 == template).count() as f64;
                let most = rates.len() as f64 + 1.0;
                prop_assert!((begun - seconds * rate).abs() <= most, "{begun} {seconds} {rate}");
            }
        }
    }
}
