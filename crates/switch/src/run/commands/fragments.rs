//! Commands for IP fragment reassembly.

use std::fmt::Write;
use std::sync::Arc;

use datapath::conntrack::IncompletePacket;

use super::{Command, Outcome};
use crate::run::switch::Switch;

pub(super) const COMMANDS: &[Command] = &[
    Command { name: "dpctl/ipf-get-status", usage: "[-m] [dp]", fewest: 0, most: 2, run: status },
    Command {
        name: "dpctl/ipf-set-disabled",
        usage: "[dp] v4|v6",
        fewest: 1,
        most: 2,
        run: |switch, arguments| set_enabled(switch, arguments, false),
    },
    Command {
        name: "dpctl/ipf-set-enabled",
        usage: "[dp] v4|v6",
        fewest: 1,
        most: 2,
        run: |switch, arguments| set_enabled(switch, arguments, true),
    },
    Command {
        name: "dpctl/ipf-set-max-nfrags",
        usage: "[dp] maxfrags",
        fewest: 1,
        most: 2,
        run: set_most,
    },
    Command {
        name: "dpctl/ipf-set-min-frag",
        usage: "[dp] v4|v6 minfragment",
        fewest: 2,
        most: 3,
        run: set_smallest,
    },
];

fn set_enabled(switch: &Arc<Switch>, arguments: &[String], is_enabled: bool) -> Outcome {
    let version = version(arguments.last())?;
    switch.conntrack().change_fragment_limits(|limits| limits.is_enabled[version] = is_enabled);
    let doing = if is_enabled { "enabling" } else { "disabling" };
    Ok(format!("{doing} fragmentation reassembly successful"))
}

fn set_smallest(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let [.., word, size] = arguments else { return Err(NO_SIZE.to_owned()) };
    let version = version(Some(word))?;
    let size: u32 = size.parse().map_err(|_| NO_SIZE.to_owned())?;
    if size < SMALLEST {
        let text = "requested minimum fragment size too small; see documentation";
        return Err(text.to_owned());
    }
    switch.conntrack().change_fragment_limits(|limits| limits.smallest[version] = size);
    Ok("setting minimum fragment size successful".to_owned())
}

fn set_most(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let most = arguments.last().and_then(|text| text.parse::<u32>().ok());
    let most = most.ok_or("parameter missing for maximum fragments (Invalid argument)")?;
    if most > MOST {
        return Err("setting maximum fragments failed".to_owned());
    }
    switch.conntrack().change_fragment_limits(|limits| limits.most = most);
    Ok("setting maximum fragments successful".to_owned())
}

fn version(word: Option<&String>) -> Result<usize, String> {
    match word.map(String::as_str) {
        Some("v4") => Ok(0),
        Some("v6") => Ok(1),
        _ => Err("parameter missing: 'v4' for IPv4 or 'v6' for IPv6 (Invalid argument)".to_owned()),
    }
}

fn status(switch: &Arc<Switch>, arguments: &[String]) -> Outcome {
    let status = switch.conntrack().fragment_status();
    let limits = &status.limits;
    let mut lines = vec![
        "Fragmentation Module Status".to_owned(),
        "---------------------------".to_owned(),
        format!("v4 enabled: {}", u8::from(limits.is_enabled[0])),
        format!("v6 enabled: {}", u8::from(limits.is_enabled[1])),
        format!("max num frags (v4/v6): {}", limits.most),
        format!("num frag: {}", status.waiting),
    ];
    for (version, (counts, smallest)) in status.counts.iter().zip(limits.smallest).enumerate() {
        let name = ["v4", "v6"][version];
        lines.push(format!("min {name} frag size: {smallest}"));
        for (what, count) in [
            ("accepted", counts.accepted),
            ("completed", counts.completed),
            ("expired", counts.expired),
            ("too small", counts.too_small),
            ("overlapped", counts.overlapped),
            ("purged", counts.purged),
        ] {
            lines.push(format!("{name} frags {what}: {count}"));
        }
    }
    let mut text = String::new();
    lines.iter().for_each(|line| {
        let _ = writeln!(text, "        {line}");
    });
    if arguments.iter().any(|argument| matches!(argument.as_str(), "-m" | "--more")) {
        text.push_str("\n        Fragment Lists:\n\n");
        status.packets.iter().for_each(|packet| list(&mut text, packet));
    }
    Ok(text)
}

fn list(out: &mut String, packet: &IncompletePacket) {
    let kind = if packet.source.is_ipv4() { 0x800 } else { 0x86dd };
    let state = match (packet.has_first, packet.has_last) {
        (false, false) => "other frag",
        (true, false) => "first frag",
        (false, true) => "last frag",
        (true, true) => "first/last frag",
    };
    let IncompletePacket { source, destination, recirculation, identification, zone, .. } = packet;
    let _ = writeln!(
        out,
        "(src={source},dst={destination},recirc_id={recirculation},ip_id={identification},\
         dl_type={kind:#x},zone={zone},nw_proto={},num_fragments={},state={state})",
        packet.protocol, packet.fragments,
    );
}

const NO_SIZE: &str = "parameter missing for minimum fragment size (Invalid argument)";
/// Open vSwitch's bounds: the smallest allowed minimum fragment size, and the largest allowed
/// number of fragments.
const SMALLEST: u32 = 400;
const MOST: u32 = 5000;
