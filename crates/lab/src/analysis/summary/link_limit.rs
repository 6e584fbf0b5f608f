//! Marks goodput above the rate of the emulated link.

use super::GOODPUT;
use crate::bench::LabFile;
use crate::model::file::{LinkSettings, Shape};
use link::Capacity;
use results::{Axes, Cell};
use units::Bytes;
use units::shown::significant;

/// Marks the cell if its goodput exceeds the payload that the link carries. When a missing segment
/// arrives within the window, the receiver delivers all data behind the gap at once. Some of these
/// data crossed the link before the window began.
pub(super) fn mark(lab: &LabFile, cell: &mut Cell) {
    let Some(goodput) = cell.metrics.get(GOODPUT).map(|metric| metric.median) else { return };
    let payload = payload_mbit_s(lab, &cell.axes);
    let Some(payload) = payload.filter(|most| goodput > most * (1.0 + SLACK)) else { return };
    cell.above_link_mbit_s = Some(payload);
    cell.warnings.push(format!(
        "Goodput {} Mbit/s is above the {} Mbit/s of payload that the link carries: data sent before \
         the measured window arrived in it; a longer `duration` dilutes that data",
        significant(goodput),
        significant(payload),
    ));
}

/// Computes the payload of full TCP segments with timestamps. `None` if the flows may take several
/// paths, or if the rate changes or has no limit.
fn payload_mbit_s(lab: &LabFile, axes: &Axes) -> Option<f64> {
    let has_one_bottleneck = lab.topology_at(axes).is_ok_and(|all| all.shape == Shape::Dumbbell);
    let links = lab.links_at(axes).ok()?;
    let [link] = links.as_slice() else { return None };
    let ends = lab.kind().ends(lab, axes).ok()?;
    // A workload over the loopback does not cross the link.
    let crosses = has_one_bottleneck && ends.from != ends.to && link.joins(&ends.from, &ends.to);
    crosses.then(|| payload_from(link, &ends.from)).flatten()
}

fn payload_from(link: &LinkSettings, from: &str) -> Option<f64> {
    let way = link.direction_from(from)?;
    let Capacity::Fixed(rate) = &way.config.rate else { return None };
    if !way.steps.is_empty() {
        return None;
    }
    let frame = Bytes::new(u64::from(link.mtu) + ETHERNET);
    let on_the_medium = way.config.overhead.on_the_medium(frame).count() as f64;
    let payload = (f64::from(link.mtu) - HEADERS) / on_the_medium;
    Some(rate.bits_per_second() as f64 / 1e6 * payload)
}

/// Size of the IPv4 and TCP headers with timestamps, in bytes.
const HEADERS: f64 = 52.0;
/// Size of the MAC addresses and the EtherType, in bytes.
const ETHERNET: u64 = 14;
/// Tolerance: the emulated link is held to 0.5 % of its rate, and segments without timestamps carry
/// 0.8 % more.
const SLACK: f64 = 0.015;
