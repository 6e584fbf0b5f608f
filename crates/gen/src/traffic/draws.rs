use crate::profile::Profile;

/// The order in which the templates of a profile draw addresses from shared pools: templates draw
/// in the order in which their windows begin. The order depends only on template and window, so
/// that threads agree without communication.
#[derive(Debug, Clone)]
pub(super) struct Draws {
    drawers: Vec<Drawer>,
    pairs: u64,
}

/// The indices that a draw takes from the client pool and the server pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Draw {
    pub(super) client: u64,
    pub(super) server: u64,
}

#[derive(Debug, Clone, Copy)]
struct Drawer {
    /// Start time of the first flow in seconds, for a multiplier of 1.
    start: f64,
    interval: f64,
    window: u64,
    limit: u64,
    client_pool: usize,
    server_pool: usize,
    is_alone: bool,
}

impl Draws {
    pub(super) fn of(profile: &Profile, pairs: u64) -> Self {
        let whole: f64 = profile.templates.iter().map(|template| template.flows.events()).sum();
        let drawers = profile.templates.iter().enumerate().map(|(number, template)| {
            let flows = template.flows.events();
            let mut others = profile.templates.iter().enumerate();
            let shares = others.any(|(other, their)| {
                other != number
                    && (their.client_pool == template.client_pool
                        || their.server_pool == template.server_pool)
            });
            Drawer {
                start: if whole > 0.0 { number as f64 / whole } else { 0.0 },
                interval: if flows > 0.0 { 1.0 / flows } else { f64::INFINITY },
                window: u64::from(template.window.max(1)),
                limit: template.limit.map_or(u64::MAX, u64::from),
                client_pool: template.client_pool,
                server_pool: template.server_pool,
                is_alone: !shares,
            }
        });
        Self { drawers: drawers.collect(), pairs: pairs.max(1) }
    }

    pub(super) fn is_alone(&self, template: usize) -> bool {
        self.drawers[template].is_alone
    }

    /// Returns the draw of a template's window. Draws and windows are numbered for each pair of
    /// generator ports.
    #[inline]
    pub(super) fn of_window(&self, template: usize, window: u64, pair: u64) -> Draw {
        let own = &self.drawers[template];
        let mut draw = Draw { client: window, server: window };
        if own.is_alone {
            return draw;
        }
        let flow = window.saturating_mul(own.window).saturating_mul(self.pairs);
        let at = own.begins(flow.saturating_add(pair));
        for (number, other) in self.drawers.iter().enumerate() {
            let (client, server) =
                (other.client_pool == own.client_pool, other.server_pool == own.server_pool);
            if number != template && (client || server) {
                let windows = self.windows_before(other, at, number < template, pair);
                let add = |number: u64, shares| {
                    if shares { number.saturating_add(windows) } else { number }
                };
                draw = Draw { client: add(draw.client, client), server: add(draw.server, server) };
            }
        }
        draw
    }

    /// Returns the number of windows that a template began on a pair of generator ports before
    /// `at`; with `precedes`, also the windows that began at `at`.
    fn windows_before(&self, drawer: &Drawer, at: f64, precedes: bool, pair: u64) -> u64 {
        let flows = drawer.flows_before(at, precedes).min(drawer.limit);
        let of_pair = flows.saturating_add(self.pairs - 1).saturating_sub(pair) / self.pairs;
        of_pair.div_ceil(drawer.window)
    }
}

impl Drawer {
    fn begins(&self, flow: u64) -> f64 {
        self.start + flow as f64 * self.interval
    }

    fn flows_before(&self, at: f64, precedes: bool) -> u64 {
        if !self.interval.is_finite() {
            return 0;
        }
        let is_before = |flow| {
            let begins = self.begins(flow);
            begins < at || (precedes && begins == at)
        };
        let mut flows = ((at - self.start) / self.interval).max(0.0) as u64;
        for _ in 0..ROUNDING {
            match is_before(flows) {
                true => flows = flows.saturating_add(1),
                false if flows > 0 && !is_before(flows - 1) => flows -= 1,
                false => break,
            }
        }
        flows
    }
}

/// Maximum number of steps that correct the quotient. The quotient is wrong by at most one, unless
/// the interval between flows is shorter than the resolution of a time.
const ROUNDING: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frequency;
    use crate::profile::Profile;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn profile(templates: &[(f64, u32, Option<u32>, usize)]) -> Profile {
        let text = "- duration : 1\n  generator :\n    distribution : seq\n    \
                    clients_start : 16.0.0.1\n    clients_end : 16.0.0.9\n    \
                    servers_start : 48.0.0.1\n    servers_end : 48.0.0.9\n  cap_info :\n   \
                    - { name : a, cps : 1, ipg : 1, rtt : 1, w : 1 }\n";
        let mut profile = Profile::parse("p.yaml", text).unwrap();
        let first = profile.templates[0].clone();
        profile.templates.clear();
        for (flows, window, limit, pool) in templates {
            let mut template = first.clone();
            template.flows = Frequency::per_second(*flows);
            (template.window, template.limit) = (*window, *limit);
            (template.client_pool, template.server_pool) = (*pool, 0);
            profile.templates.push(template);
        }
        profile
    }

    #[test]
    fn templates_draw_addresses_in_the_order_of_their_start_times() {
        let draws =
            Draws::of(&profile(&[(28.0, 4, None, 0), (20.0, 4, None, 0), (4.0, 4, None, 0)]), 1);
        let drawn = |template, window| draws.of_window(template, window, 0).client;
        assert_eq!(
            [drawn(0, 0), drawn(1, 0), drawn(2, 0), drawn(0, 1), drawn(1, 1)],
            [0, 1, 2, 3, 4]
        );
    }

    proptest! {
        #[test]
        fn templates_that_share_a_pool_draw_every_number_exactly_once(
            templates in prop::collection::vec(
                (prop::sample::select(vec![0.0, 1.0, 3.0, 7.5, 1000.0]), 1u32..5,
                 prop::option::of(1u32..40), 0usize..2),
                1..5,
            ),
            pairs in 1u64..4,
        ) {
            let profile = profile(&templates);
            let draws = Draws::of(&profile, pairs);
            for pair in 0..pairs {
                for pool in 0..2 {
                    let mut seen = HashSet::new();
                    for (number, template) in templates.iter().enumerate() {
                        let most = template.2.map_or(200, u64::from);
                        let of_pair = (most + pairs - 1).saturating_sub(pair) / pairs;
                        let windows = of_pair.div_ceil(u64::from(template.1));
                        if template.3 == pool && template.0 > 0.0 {
                            for window in 0..windows {
                                let draw = draws.of_window(number, window, pair);
                                prop_assert!(seen.insert(draw.client), "{draw:?} twice");
                            }
                        }
                    }
                    let first = seen.len().min(3) as u64;
                    prop_assert!((0..first).all(|draw| seen.contains(&draw)), "{seen:?}");
                }
            }
        }
    }
}
