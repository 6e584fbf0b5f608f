//! The PCI Express link of a network card has fewer lanes, or is slower, than the card supports: a
//! wrong slot, a riser, or a link that fell back.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Bus;
use crate::view::View;
use crate::words::{percent, rate};
use units::Rate;

pub(super) const RULE: Rule = Rule::new("bus", "the bus of a network card").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let mut fine = Vec::new();
    for interface in view.interfaces().filter(|one| one.is_device()) {
        let Some(bus) = &interface.facts.bus else { continue };
        let Some((now, most)) = passes(bus, false).zip(passes(bus, true)) else { continue };
        let name = interface.name;
        let (received, sent) = interface.rates();
        let carries = received.max(sent);
        let load = carries.bits_per_second() as f64 / now.bits_per_second().max(1) as f64;
        // A card saves power with a slower link while it has little to do.
        let speed = interface.facts.speed;
        let holds_back = speed.is_some_and(|speed| speed > now);
        // The part of the headers is an estimate: the observed rate is possible.
        let now = now.max(carries);
        if now >= most || load < LOADED && !holds_back {
            fine.push(format!("{name} passes {} of {}", rate(carries), rate(now)));
            continue;
        }
        let finding = Finding::new(format!(
            "the bus of {name} passes at most {}, and the card supports {}",
            rate(now),
            rate(most)
        ))
        .allows(Some(now))
        .seen("lanes and speed now", words(bus.width, bus.speed))
        .seen("lanes and speed that the card supports", words(bus.width_most, bus.speed_most))
        .seen_if("speed of its network link", speed.map(rate))
        .seen_from("load, of the bus", percent(load), percent(LOADED))
        .advise(
            Advice::new("Put the card into a slot with as many lanes, wired to the CPU, and look for a riser or a setting of the firmware that limits it")
                .run("lspci -vv   (LnkCap is what the card supports, LnkSta what it has)")
                .run("dmesg | grep -i 'available PCIe bandwidth'")
                .not("Settings of the network change nothing"),
        );
        return if load >= LOADED { finding.limits_for(load) } else { finding }.holds();
    }
    match fine.is_empty() {
        true => Outcome::not_seen("the bus of a network device"),
        false => Outcome::ruled_out(fine.join(", ")),
    }
}

/// Returns the payload rate of a direction: the rate of each lane without its line code and about a
/// tenth for headers (PCI Express Base Specification, sections 2.2 and 4.2).
fn passes(bus: &Bus, most: bool) -> Option<Rate> {
    let (speed, width) =
        if most { (bus.speed_most?, bus.width_most?) } else { (bus.speed?, bus.width?) };
    let code = if speed < 6.0 { 0.8 } else { 128.0 / 130.0 };
    let bits = speed * 1e9 * code * f64::from(width) * PAYLOAD;
    (bits.is_finite() && bits >= 1.0).then(|| Rate::from_bits_per_second(bits as u64))
}

fn words(width: Option<u32>, speed: Option<f64>) -> String {
    format!("{} lanes of {} GT/s", width.unwrap_or(0), speed.unwrap_or(0.0))
}

const PAYLOAD: f64 = 0.9;
const LOADED: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use units::Bytes;

    /// Builds a card for eight lanes of 8 GT/s that uses `lanes` of them and sends `gbit` Gbit/s.
    fn card(lanes: u32, gbit: u64) -> Sketch {
        let bus = Bus {
            speed: Some(8.0),
            speed_most: Some(8.0),
            width: Some(lanes),
            width_most: Some(8),
        };
        Sketch::new()
            .interface(|eth0| {
                (eth0.bus, eth0.speed) = (Some(bus), Some(Rate::from_mbit(10_000)));
            })
            .each(move |at, sample| {
                let eth0 = sample.interfaces.get_mut("eth0").unwrap();
                eth0.sent = Bytes::new(at * gbit * 125_000_000);
            })
    }

    #[test]
    fn one_lane_of_eight_limits_a_card() {
        assert!(card(1, 7).holds_machine(RULE).is_some_and(|share| share > 0.9));
        // The bus passes more than its estimated rate of 7.1 Gbit/s.
        let fast = card(1, 8).on_machine(RULE).finding().unwrap().allows;
        assert_eq!(fast, Some(Rate::from_mbit(8_000)));
        // A bus of one lane would limit the card, but the card sends little now.
        assert_eq!(card(1, 1).holds_machine(RULE), Some(0.0));
    }

    #[test]
    fn enough_lanes_or_unknown_lanes_are_no_limit() {
        card(8, 9).machine_holds_not(RULE);
        card(4, 9).machine_holds_not(RULE);
        assert!(matches!(Sketch::new().on_machine(RULE), Outcome::NotSeen(_)));
        let strange = card(1, 9).interface(|eth0| {
            eth0.bus = Some(Bus { speed: Some(f64::NAN), ..eth0.bus.clone().unwrap() });
        });
        strange.machine_holds_not(RULE);
    }
}
