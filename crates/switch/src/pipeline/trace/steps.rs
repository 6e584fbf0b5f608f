use std::net::{Ipv4Addr, Ipv6Addr};

use crate::action::{Nat, NatAddresses, NatDirection};
use crate::datapath::step::{Rewrite, Step, Track};
use crate::flow::{Field, Key};

/// Steps as OVS prints the actions of its datapath.
pub(super) fn print_steps(steps: &[Step], key: &Key) -> String {
    if steps.is_empty() {
        return "drop".to_owned();
    }
    let texts: Vec<_> =
        steps.iter().map(|step| print_step(step, key)).filter(|text| !text.is_empty()).collect();
    texts.join(",")
}

fn print_step(step: &Step, key: &Key) -> String {
    match step {
        Step::Output(port) => port.0.to_string(),
        Step::Rewrite(rewrite) => print_rewrite(rewrite, key),
        Step::PushVlan { tpid, tci } => {
            let (vid, pcp) = (tci & 0xfff, tci >> 13);
            match tpid {
                0x8100 => format!("push_vlan(vid={vid},pcp={pcp})"),
                tpid => format!("push_vlan(tpid={tpid:#06x},vid={vid},pcp={pcp})"),
            }
        }
        Step::PopVlan => "pop_vlan".to_owned(),
        Step::PushMpls { ethertype, entry } => format!(
            "push_mpls(label={},tc={},ttl={},bos={},eth_type={ethertype:#x})",
            entry >> 12,
            entry >> 9 & 7,
            entry & 0xff,
            entry >> 8 & 1
        ),
        Step::PopMpls { ethertype } => format!("pop_mpls(eth_type={ethertype:#x})"),
        Step::Track(track) => print_track(track),
        Step::ClearTracking => "ct_clear".to_owned(),
        Step::Recirculate(id) => format!("recirc({id:#x})"),
        // The datapath's meters start at 0, OpenFlow's at 1.
        Step::Meter(meter) => format!("meter({})", meter.saturating_sub(1)),
        Step::Truncate(length) => format!("trunc({length})"),
        Step::Clone(nested) => format!("clone({})", print_steps(nested, key)),
        Step::Controller(step) => format!(
            "userspace(pid=0,controller(reason={},dont_send=0,continuation=0,recirc_id=0,\
             rule_cookie={:#x},controller_id={},max_len={}))",
            step.reason, step.cookie, step.controller, step.max_len
        ),
    }
}

fn print_rewrite(rewrite: &Rewrite, key: &Key) -> String {
    let mut texts = Vec::new();
    let ethernet = parts(rewrite, &[(Field::EthSrc, "src"), (Field::EthDst, "dst")]);
    if !ethernet.is_empty() {
        texts.push(format!("set(eth({}))", ethernet.join(",")));
    }
    let is_arp = rewrite.mask.read(Field::ArpSha) | rewrite.mask.read(Field::ArpTha) != 0
        || rewrite.mask.read(Field::ArpOp) & 0xff != 0;
    let ipv4 = if is_arp {
        let fields = [
            (Field::ArpSpa, "sip"),
            (Field::ArpTpa, "tip"),
            (Field::ArpOp, "op"),
            (Field::ArpSha, "sha"),
            (Field::ArpTha, "tha"),
        ];
        parts(rewrite, &fields)
    } else {
        let mut ipv4 = parts(rewrite, &[(Field::IpSrc, "src"), (Field::IpDst, "dst")]);
        if rewrite.mask.read(Field::Ipv6Src) | rewrite.mask.read(Field::Ipv6Dst) == 0 {
            ipv4.extend(class_and_ttl(rewrite, "tos", "ttl"));
        }
        ipv4
    };
    if !ipv4.is_empty() {
        texts.push(format!("set({}({}))", if is_arp { "arp" } else { "ipv4" }, ipv4.join(",")));
    }
    let ipv6 = [(Field::Ipv6Src, "src"), (Field::Ipv6Dst, "dst"), (Field::Ipv6Label, "label")];
    let mut ipv6 = parts(rewrite, &ipv6);
    if !ipv6.is_empty() {
        ipv6.extend(class_and_ttl(rewrite, "tclass", "hlimit"));
        texts.push(format!("set(ipv6({}))", ipv6.join(",")));
    }
    let transport = parts(rewrite, &[(Field::TcpSrc, "src"), (Field::TcpDst, "dst")]);
    if !transport.is_empty() {
        let protocol = match key.read(Field::NwProto) {
            6 => "tcp",
            17 => "udp",
            132 => "sctp",
            1 => "icmp",
            _ => "icmpv6",
        };
        texts.push(format!("set({protocol}({}))", transport.join(",")));
    }
    let mpls = [(Field::MplsLabel, "label"), (Field::MplsTc, "tc"), (Field::MplsTtl, "ttl")];
    let mpls = parts(rewrite, &mpls);
    if !mpls.is_empty() {
        texts.push(format!("set(mpls({}))", mpls.join(",")));
    }
    if rewrite.mask.read(Field::VlanTci) != 0 {
        let vid = rewrite.value.read(Field::DlVlan);
        let pcp = rewrite.value.read(Field::DlVlanPcp);
        texts.push(format!("pop_vlan,push_vlan(vid={vid},pcp={pcp})"));
    }
    texts.join(",")
}

fn class_and_ttl(rewrite: &Rewrite, class: &str, ttl: &str) -> Vec<String> {
    let tos = |key: &Key| key.read(Field::NwTos) << 2 | key.read(Field::NwEcn);
    let mut texts = Vec::new();
    match tos(&rewrite.mask) {
        0 => {}
        0xff => texts.push(format!("{class}={:#x}", tos(&rewrite.value))),
        mask => texts.push(format!("{class}={:#x}/{mask:#x}", tos(&rewrite.value))),
    }
    if rewrite.mask.read(Field::NwTtl) != 0 {
        texts.push(format!("{ttl}={}", rewrite.value.read(Field::NwTtl)));
    }
    texts
}

fn parts(rewrite: &Rewrite, fields: &[(Field, &str)]) -> Vec<String> {
    let set = fields.iter().filter(|(field, _)| rewrite.mask.read(*field) != 0);
    set.map(|(field, name)| {
        let value = rewrite.value.read(*field);
        let mask = rewrite.mask.read(*field);
        if mask == field.place().all_ones() {
            format!("{name}={}", print_value(*field, value))
        } else {
            format!("{name}={}/{}", print_value(*field, value), print_value(*field, mask))
        }
    })
    .collect()
}

fn print_value(field: Field, value: u128) -> String {
    match field.place().width {
        48 => {
            let bytes = (value as u64).to_be_bytes();
            let bytes: Vec<_> = bytes[2..].iter().map(|byte| format!("{byte:02x}")).collect();
            bytes.join(":")
        }
        32 => Ipv4Addr::from_bits(value as u32).to_string(),
        128 => Ipv6Addr::from_bits(value).to_string(),
        20 if field == Field::Ipv6Label => format!("{value:#x}"),
        _ => value.to_string(),
    }
}

fn print_track(track: &Track) -> String {
    let mut texts = Vec::new();
    if track.commit {
        texts.push(if track.force { "force_commit" } else { "commit" }.to_owned());
    }
    if track.zone != 0 {
        texts.push(format!("zone={}", track.zone));
    }
    if let Some((value, mask)) = track.mark {
        texts.push(format!("mark={value:#x}/{mask:#x}"));
    }
    if let Some((value, mask)) = track.label {
        texts.push(format!("label={value:#x}/{mask:#x}"));
    }
    match track.alg {
        21 => texts.push("helper=ftp".to_owned()),
        69 => texts.push("helper=tftp".to_owned()),
        _ => {}
    }
    texts.extend(track.nat.as_ref().map(print_nat));
    if texts.is_empty() { "ct".to_owned() } else { format!("ct({})", texts.join(",")) }
}

fn print_nat(nat: &Nat) -> String {
    let Some(direction) = nat.direction else { return "nat".to_owned() };
    let mut text = match direction {
        NatDirection::Source => "src",
        NatDirection::Destination => "dst",
    }
    .to_owned();
    let addresses = match &nat.addresses {
        None => String::new(),
        Some(NatAddresses::V4(range)) if range.start() == range.end() => range.start().to_string(),
        Some(NatAddresses::V4(range)) => format!("{}-{}", range.start(), range.end()),
        Some(NatAddresses::V6(range)) => {
            let brackets = |address: &Ipv6Addr| {
                if nat.ports.is_some() { format!("[{address}]") } else { address.to_string() }
            };
            if range.start() == range.end() {
                brackets(range.start())
            } else {
                format!("{}-{}", brackets(range.start()), brackets(range.end()))
            }
        }
    };
    let ports = match &nat.ports {
        None => String::new(),
        Some(range) if range.start() == range.end() => format!(":{}", range.start()),
        Some(range) => format!(":{}-{}", range.start(), range.end()),
    };
    if !addresses.is_empty() || !ports.is_empty() {
        text.push_str(&format!("={addresses}{ports}"));
    }
    for (is_set, name) in
        [(nat.persistent, "persistent"), (nat.hash, "hash"), (nat.random, "random")]
    {
        if is_set {
            text.push(',');
            text.push_str(name);
        }
    }
    format!("nat({text})")
}
