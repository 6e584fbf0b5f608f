//! Access networks by published figures.
//!
//! Round trips: Federal Communications Commission, "Measuring Broadband America", Thirteenth Fixed
//! Broadband Report (2024, measured in September and October 2022), chart 16, median idle latency
//! by technology and tier: DSL from 20 to 61 ms, cable from 13 to 22 ms, fibre from 8 to 14 ms.
//! Rates: service tiers from 3 to 200 Mbit/s, the range of the Eighth Report (2018); tiers above
//! 100 Mbit/s are left out, because an emulator carries all paths at once. Loss: the two bounds by
//! which the reports divide households, 0.4 % and 1 %, for one household in four. The reports do
//! not state buffers: half of the paths have one bandwidth-delay product, half have 100 ms.

use super::PathDraw;

pub(super) fn paths(count: u32) -> Vec<PathDraw> {
    let all = TIERS.iter().map(|tier| {
        let Tier { rate_mbit, round_trip_ms, loss_percent, bdps } = *tier;
        // A path without a number of bandwidth-delay products has a queue of 100 ms.
        let bdps = bdps.unwrap_or(100.0 / round_trip_ms);
        PathDraw::new(rate_mbit, round_trip_ms, loss_percent / 100.0, false, bdps)
    });
    all.cycle().take(count as usize).collect()
}

struct Tier {
    rate_mbit: f64,
    round_trip_ms: f64,
    loss_percent: f64,
    bdps: Option<f64>,
}

const fn tier(rate_mbit: f64, round_trip_ms: f64, loss_percent: f64, bdps: Option<f64>) -> Tier {
    Tier { rate_mbit, round_trip_ms, loss_percent, bdps }
}

const ONE: Option<f64> = Some(1.0);
const MS_100: Option<f64> = None;

/// Tiers of service. Slower tiers have the longer round trips of their technology.
const TIERS: [Tier; 12] = [
    // Tiers of DSL.
    tier(3.0, 61.0, 1.0, ONE),
    tier(6.0, 47.0, 0.0, MS_100),
    tier(12.0, 34.0, 0.4, ONE),
    tier(24.0, 20.0, 0.0, MS_100),
    // Tiers of cable.
    tier(30.0, 22.0, 0.0, ONE),
    tier(60.0, 19.0, 0.4, MS_100),
    tier(75.0, 16.0, 0.0, ONE),
    tier(100.0, 13.0, 0.0, MS_100),
    // Tiers of fibre.
    tier(30.0, 14.0, 0.0, ONE),
    tier(50.0, 12.0, 0.0, MS_100),
    tier(75.0, 10.0, 0.0, ONE),
    tier(100.0, 8.0, 0.0, MS_100),
];
