//! The actions of megaflows: `ct(commit,nat(src=48.128.0.10)),recirc(0x6)`.

use std::fmt::Write;

use flow::port_number::PortNumber;
use flow::request::MeterMod;
use flow::step::{ControllerStep, Rewrite, Step, Track};
use flow::{Field, Key};

use super::action::write_nat;
use super::datapath::print_datapath_key;
use super::port::{PortNames, print_name};
use super::value::print_hexadecimal;

/// Prints steps as the datapath's actions. An empty list prints as `drop`. `key`: a packet of the
/// megaflow. `names`: the names of the datapath's ports.
#[must_use]
pub fn print_steps(steps: &[Step], key: &Key, names: &PortNames) -> String {
    let mut printer = Printer { out: String::new(), names, key: key.clone() };
    printer.list(steps);
    printer.out
}

struct Printer<'a> {
    out: String,
    names: &'a PortNames,
    /// The packet, with the header changes of the steps so far.
    key: Key,
}

impl Printer<'_> {
    fn list(&mut self, steps: &[Step]) {
        if steps.is_empty() {
            self.out.push_str("drop");
        }
        for (index, step) in steps.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.step(step);
        }
    }

    fn step(&mut self, step: &Step) {
        let out = &mut self.out;
        // Writing to a `String` never fails.
        let _ = match step {
            Step::Output(port) => match self.names.name(PortNumber(port.0.into())) {
                Some(name) => {
                    print_name(out, name);
                    Ok(())
                }
                None => write!(out, "{}", port.0),
            },
            Step::Rewrite(rewrite) => {
                write_rewrite(out, rewrite, &self.key);
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
            Step::PushMpls { ethertype, entry } => {
                self.key.write(Field::EthType, (*ethertype).into());
                write!(
                    out,
                    "push_mpls(label={},tc={},ttl={},bos={},eth_type=0x{ethertype:x})",
                    entry >> 12,
                    entry >> 9 & 7,
                    entry & 0xff,
                    entry >> 8 & 1
                )
            }
            Step::PopMpls { ethertype } => {
                self.key.write(Field::EthType, (*ethertype).into());
                write!(out, "pop_mpls(eth_type=0x{ethertype:x})")
            }
            Step::Track(track) => write_track(out, track),
            Step::ClearTracking => out.write_str("ct_clear"),
            Step::Hash(hash) => {
                let name = if hash.is_symmetric { "sym_l4" } else { "l4" };
                write!(out, "hash({name}({}))", hash.basis)
            }
            Step::Recirculate(id) => write!(out, "recirc({id:#x})"),
            Step::Meter(meter) => write_meter(out, meter.meter),
            Step::SetPriority(queue) => {
                out.push_str("set(skb_priority(");
                print_hexadecimal(out, (*queue).into());
                out.write_str("))")
            }
            Step::Truncate(length) => write!(out, "trunc({length})"),
            Step::Clone(steps) => {
                let former = self.key.clone();
                self.out.push_str("clone(");
                self.list(steps);
                self.key = former;
                self.out.write_char(')')
            }
            Step::Controller(controller) => match controller.meter {
                None => write_controller(out, controller),
                Some(meter) => {
                    out.push_str("sample(sample=100.0%,actions(");
                    let _ = write_meter(out, meter.meter);
                    out.push(',');
                    let _ = write_controller(out, controller);
                    out.write_str("))")
                }
            },
            Step::CheckLength(check) => {
                let _ = write!(out, "check_pkt_len(size={},gt(", check.length);
                let former = self.key.clone();
                self.list(&check.larger.steps);
                self.key = former.clone();
                self.out.push_str("),le(");
                self.list(&check.others.steps);
                self.key = former;
                self.out.write_str("))")
            }
        };
    }
}

/// Prints a meter. The datapath's meter numbers start at 0, and OpenFlow's at 1; virtual meters
/// have names.
fn write_meter(out: &mut String, meter: u32) -> std::fmt::Result {
    match meter {
        MeterMod::SLOW_PATH => out.write_str("meter(slowpath)"),
        MeterMod::CONTROLLER => out.write_str("meter(controller)"),
        meter => write!(out, "meter({})", meter.saturating_sub(1)),
    }
}

fn write_controller(out: &mut String, step: &ControllerStep) -> std::fmt::Result {
    write!(
        out,
        "userspace(pid=0,controller(reason={},dont_send=0,continuation={},recirc_id={},rule_cookie=",
        step.reason,
        u8::from(step.continuation.is_some()),
        step.continuation.unwrap_or(0),
    )?;
    print_hexadecimal(out, step.cookie.into());
    write!(out, ",controller_id={},max_len={}))", step.controller, step.max_len)
}

/// Prints a `set(…)` for each header with changed bits, in Open vSwitch's order.
fn write_rewrite(out: &mut String, rewrite: &Rewrite, packet: &Key) {
    let Rewrite { value, mask } = rewrite;
    let has = |fields: &[Field]| fields.iter().any(|field| mask.read(*field) != 0);
    let mut parts: Vec<String> = Vec::new();
    for (name, field) in [("skb_mark", Field::PktMark), ("ct_mark", Field::CtMark)] {
        if has(&[field]) {
            parts.push(format!("{name}({:#x})", value.read(field)));
        }
    }
    if has(&[Field::TunId]) {
        parts.push(format!("tunnel(tun_id={:#x})", value.read(Field::TunId)));
    }
    let mut headers = vec![("eth", ETHERNET)];
    let protocol = packet.read(Field::NwProto);
    match packet.read(Field::EthType) {
        0x0806 | 0x8035 => headers.push(("arp", ARP)),
        0x86dd => {
            headers.push(("ipv6", IPV6));
            if protocol == 58 {
                headers.push(("nd", DISCOVERY));
            }
        }
        0x8847 | 0x8848 => headers.push(("mpls", MPLS)),
        _ => headers.push(("ipv4", IPV4)),
    }
    match protocol {
        6 => headers.push(("tcp", PORTS)),
        17 => headers.push(("udp", PORTS)),
        132 => headers.push(("sctp", PORTS)),
        1 => headers.push(("icmp", ICMP)),
        58 => headers.push(("icmpv6", ICMP)),
        _ => {}
    }
    for (name, fields) in headers {
        if has(fields) {
            parts.push(header(value, mask, fields, packet, name));
        }
    }
    if has(&[Field::VlanTci]) {
        let part = |field| packet.read(field) & !mask.read(field) | value.read(field);
        let (vid, pcp) = (part(Field::DlVlan), part(Field::DlVlanPcp));
        parts.push(format!("pop_vlan,push_vlan(vid={vid},pcp={pcp})"));
    }
    parts.retain(|part| !part.is_empty());
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        if part.starts_with("pop_vlan") {
            out.push_str(part);
        } else {
            let _ = write!(out, "set({part})");
        }
    }
}

/// Prints the changes of one header, in the syntax of a megaflow.
fn header(value: &Key, mask: &Key, fields: &[Field], packet: &Key, name: &str) -> String {
    let mut bits = Key::ZERO;
    for field in fields {
        bits.write(*field, mask.read(*field));
    }
    let mut key = value.masked(&bits);
    if name == "mpls" {
        // An MPLS entry is always set completely.
        for field in fields {
            let ones = field.place().all_ones();
            let bits_set = bits.read(*field);
            key.write(*field, packet.read(*field) & !bits_set | key.read(*field));
            bits.write(*field, ones);
        }
    }
    // The values of these fields tell which headers the packet has.
    let is_arp = fields.contains(&Field::ArpOp);
    for field in [Field::EthType, Field::NwProto].into_iter().take(2 - usize::from(is_arp)) {
        key.write(field, packet.read(field));
        bits.write(field, u128::MAX);
    }
    let text = print_datapath_key(&key, &bits);
    let Some(start) = text.find(&format!(",{name}(")).map(|comma| comma + 1) else {
        return String::new();
    };
    let end = text[start..].find(')').map_or(text.len(), |end| start + end + 1);
    let text = text[start..end].replace(",frag=no", "").replace("frag=no", "");
    let protocol = format!(",proto={}", packet.read(Field::NwProto));
    text.replace(&protocol, "").replace(&format!("({},", &protocol[1..]), "(")
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
        out.push_str("mark=");
        print_hexadecimal(out, value.into());
        write!(out, "/{mask:#x},")?;
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

const ETHERNET: &[Field] = &[Field::EthSrc, Field::EthDst];
const ARP: &[Field] = &[Field::ArpSpa, Field::ArpTpa, Field::ArpOp, Field::ArpSha, Field::ArpTha];
const IPV4: &[Field] = &[Field::IpSrc, Field::IpDst, Field::NwTos, Field::NwEcn, Field::NwTtl];
const IPV6: &[Field] =
    &[Field::Ipv6Src, Field::Ipv6Dst, Field::Ipv6Label, Field::NwTos, Field::NwEcn, Field::NwTtl];
const DISCOVERY: &[Field] = &[Field::NdTarget, Field::NdSll, Field::NdTll];
const PORTS: &[Field] = &[Field::TcpSrc, Field::TcpDst];
const ICMP: &[Field] = &[Field::IcmpType, Field::IcmpCode];
const MPLS: &[Field] = &[Field::MplsLabel, Field::MplsTc, Field::MplsTtl, Field::MplsBos];
