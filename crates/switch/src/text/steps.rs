//! The actions of megaflows: `ct(commit,nat(src=48.128.0.10)),recirc(0x6)`.

use std::fmt::Write;

use super::action::write_nat;
use super::datapath::print_datapath_key;
use super::value::print_hexadecimal;
use crate::datapath::step::{Rewrite, Step, Track};
use crate::flow::{Field, Key};

/// The steps as the datapath's actions; none is `drop`.
#[must_use]
pub fn print_steps(steps: &[Step]) -> String {
    let mut out = String::new();
    if steps.is_empty() {
        out.push_str("drop");
    }
    for (index, step) in steps.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_step(&mut out, step);
    }
    out
}

fn write_step(out: &mut String, step: &Step) {
    // A `String` takes every write.
    let _ = match step {
        Step::Output(port) => write!(out, "{}", port.0),
        Step::Rewrite(rewrite) => {
            write_rewrite(out, rewrite);
            Ok(())
        }
        Step::PushVlan { tpid, tci } => {
            out.push_str("push_vlan(");
            if *tpid != 0x8100 {
                let _ = write!(out, "tpid=0x{tpid:04x},");
            }
            let _ = write!(out, "vid={},pcp={}", tci & 0xfff, tci >> 13);
            if tci & 0x1000 == 0 {
                out.push_str(",cfi=0");
            }
            out.write_char(')')
        }
        Step::PopVlan => out.write_str("pop_vlan"),
        Step::PushMpls { ethertype, entry } => write!(
            out,
            "push_mpls(label={},tc={},ttl={},bos={},eth_type=0x{ethertype:x})",
            entry >> 12,
            entry >> 9 & 7,
            entry & 0xff,
            entry >> 8 & 1
        ),
        Step::PopMpls { ethertype } => write!(out, "pop_mpls(eth_type=0x{ethertype:x})"),
        Step::Track(track) => write_track(out, track),
        Step::ClearTracking => out.write_str("ct_clear"),
        Step::Recirculate(id) => write!(out, "recirc({id:#x})"),
        Step::Meter(meter) => write!(out, "meter({meter})"),
        Step::Truncate(length) => write!(out, "trunc({length})"),
        Step::Clone(steps) => write!(out, "clone({})", print_steps(steps)),
        Step::Controller(controller) => write!(
            out,
            "userspace(pid=0,controller(reason={},dont_send=0,continuation=0,recirc_id=0,\
             rule_cookie={:#x},controller_id={},max_len={}))",
            controller.reason, controller.cookie, controller.controller, controller.max_len
        ),
    };
}

/// A `set(…)` for each header with changed bits.
fn write_rewrite(out: &mut String, rewrite: &Rewrite) {
    let Rewrite { value, mask } = rewrite;
    let ones = |field: Field| mask.read(field) != 0;
    let mut parts: Vec<String> = Vec::new();
    for (name, field) in [("skb_mark", Field::PktMark), ("ct_mark", Field::CtMark)] {
        if ones(field) {
            parts.push(format!("{name}({:#x})", value.read(field)));
        }
    }
    if ones(Field::TunId) {
        parts.push(format!("tunnel(tun_id={:#x})", value.read(Field::TunId)));
    }
    if ones(Field::EthSrc) || ones(Field::EthDst) {
        let fields = [Field::EthSrc, Field::EthDst];
        parts.push(group(value, mask, &fields, 0, "eth"));
    }
    let is_arp = matches!(value.read(Field::EthType), 0x0806 | 0x8035) || ones(Field::ArpSha);
    if is_arp {
        let fields = [Field::ArpSpa, Field::ArpTpa, Field::ArpOp, Field::ArpSha, Field::ArpTha];
        parts.push(group(value, mask, &fields, 0x0806, "arp"));
    } else {
        let four = [Field::IpSrc, Field::IpDst, Field::NwTos, Field::NwEcn, Field::NwTtl];
        let six = [
            Field::Ipv6Src,
            Field::Ipv6Dst,
            Field::Ipv6Label,
            Field::NwTos,
            Field::NwEcn,
            Field::NwTtl,
        ];
        let is_six = value.read(Field::EthType) == 0x86dd
            || ones(Field::Ipv6Src)
            || ones(Field::Ipv6Dst)
            || ones(Field::Ipv6Label);
        if is_six {
            parts.push(group(value, mask, &six, 0x86dd, "ipv6"));
        } else if four.into_iter().any(ones) {
            parts.push(group(value, mask, &four, 0x0800, "ipv4"));
        }
    }
    if ones(Field::TcpSrc) || ones(Field::TcpDst) {
        let protocol = match value.read(Field::NwProto) {
            0 => 17,
            protocol => protocol,
        };
        let mut key = value.clone();
        key.write(Field::NwProto, protocol);
        let mut bits = mask.clone();
        bits.write(Field::NwProto, u128::MAX);
        let name = match protocol {
            6 => "tcp",
            132 => "sctp",
            1 => "icmp",
            58 => "icmpv6",
            _ => "udp",
        };
        let fields = [Field::TcpSrc, Field::TcpDst, Field::NwProto];
        parts.push(group(&key, &bits, &fields, 0x0800, name));
    }
    if ones(Field::MplsLabel) || ones(Field::MplsTc) || ones(Field::MplsTtl) {
        let fields = [Field::MplsLabel, Field::MplsTc, Field::MplsTtl, Field::MplsBos];
        parts.push(group(value, mask, &fields, 0x8847, "mpls"));
    }
    parts.retain(|part| !part.is_empty());
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let _ = write!(out, "set({part})");
    }
}

/// One header of a key, as a megaflow prints it.
fn group(value: &Key, mask: &Key, fields: &[Field], kind: u128, name: &str) -> String {
    let mut bits = Key::ZERO;
    for field in fields {
        bits.write(*field, mask.read(*field));
    }
    let mut key = value.clone();
    if kind != 0 {
        key.write(Field::EthType, kind);
        bits.write(Field::EthType, u128::MAX);
    }
    key.write(Field::IpFrag, 0);
    let text = print_datapath_key(&key, &bits);
    let Some(start) = text.find(&format!(",{name}(")).map(|comma| comma + 1) else {
        return String::new();
    };
    let end = text[start..].find(')').map_or(text.len(), |end| start + end + 1);
    text[start..end].replace(",frag=no", "").replace("frag=no", "")
}

fn write_track(out: &mut String, track: &Track) -> std::fmt::Result {
    out.push_str("ct");
    let start = out.len();
    out.push('(');
    if track.commit {
        out.push_str(if track.force { "force_commit," } else { "commit," });
    }
    if track.zone != 0 {
        write!(out, "zone={},", track.zone)?;
    }
    if let Some((value, mask)) = track.mark {
        write!(out, "mark={value:#x}/{mask:#x},")?;
    }
    if let Some((value, mask)) = track.label {
        out.push_str("label=");
        print_hexadecimal(out, value);
        if mask != u128::MAX {
            write!(out, "/{mask:#x}")?;
        }
        out.push(',');
    }
    match track.alg {
        0 => {}
        21 => out.push_str("helper=ftp,"),
        69 => out.push_str("helper=tftp,"),
        port => write!(out, "helper={port},")?,
    }
    if let Some(nat) = &track.nat {
        write_nat(out, nat)?;
        out.push(',');
    }
    if out.ends_with(',') {
        out.pop();
        out.push(')');
    } else {
        out.truncate(start);
    }
    Ok(())
}
