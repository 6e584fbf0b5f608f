//! Packets as text: a key in OpenFlow's or the datapath's syntax, or a frame in hexadecimal.

use flow::port_number::PortNumber;
use flow::{Field, Key};

use super::address::{parse_ethernet, parse_ipv4, parse_ipv6};
use super::error::{TextError, refuse};
use super::flags::{CT_STATE, TCP_FLAGS};
use super::matching::parse_match;
use super::number::integer;
use super::port::PortNames;
use super::token::KeyValues;

/// Parses the packet of `ovs-appctl ofproto/trace br0 in_port=1,tcp,nw_dst=10.0.0.1`. Without
/// `in_port`, the packet has no port.
pub fn parse_packet(text: &str, names: &PortNames) -> Result<Key, TextError> {
    let (mut rest, mut priority) = (String::new(), 0);
    // ovs-appctl accepts keys that matches do not have.
    for (key, value) in KeyValues::new(text) {
        match (key, value) {
            ("table" | "priority" | "cookie", _) => {}
            ("skb_priority", value) => priority = number(value)?,
            (_, "") => rest.extend([key, ","]),
            _ => rest.extend([key, "=", value, ","]),
        }
    }
    let matching = parse_match(&rest, names).map_err(|error| {
        let unknown = error.0.strip_prefix("unknown keyword ");
        unknown.map_or(error.clone(), |key| refuse!("{text}: unknown field {key}"))
    })?;
    let mut key = matching.value;
    key.write_at(Key::PRIORITY, priority);
    if matching.mask.read(Field::InPort) == 0 {
        key.write(Field::InPort, PortNumber::NONE.0.into());
    }
    Ok(key)
}

/// Parses the packet of `ovs-appctl netdev-dummy/receive p1
/// 'in_port(1),eth(…),eth_type(0x0800),ipv4(…)'`.
pub fn parse_datapath_key(text: &str) -> Result<Key, TextError> {
    parse_datapath_key_with(text, &PortNames::none())
}

/// Like [`parse_datapath_key`], for a text that may have port names and a megaflow's number, as
/// printed by `dpctl/dump-flows -m`.
pub fn parse_datapath_key_with(text: &str, names: &PortNames) -> Result<Key, TextError> {
    let mut key = Key::ZERO;
    let text = match text.trim_start().strip_prefix("ufid:") {
        Some(rest) => rest.split_once(',').map_or("", |(_, rest)| rest),
        None => text,
    };
    // A line may be broken after an equals sign, so such line breaks are removed.
    let mut unbroken = String::with_capacity(text.len());
    for character in text.chars() {
        if !(character.is_whitespace() && unbroken.ends_with('=')) {
            unbroken.push(character);
        }
    }
    parse_groups(&mut key, &unbroken, names, 0)?;
    Ok(key)
}

/// Reads a hexadecimal frame, with optional spaces between the bytes.
pub fn parse_hex_frame(text: &str) -> Option<Vec<u8>> {
    let digits: String = text.chars().filter(|character| !character.is_whitespace()).collect();
    if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| byte(&digits[at..at + 2])).collect()
}

fn byte(digits: &str) -> Option<u8> {
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_plain.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// The deepest nesting of `encap(…)`.
const MAX_DEPTH: u8 = 4;

fn parse_groups(key: &mut Key, text: &str, names: &PortNames, depth: u8) -> Result<(), TextError> {
    if depth >= MAX_DEPTH {
        return Err(refuse!("{text}: too many levels of encap"));
    }
    for (name, value) in KeyValues::new(text) {
        let single = match name {
            "recirc_id" => Some(Field::RecircId),
            "in_port" => Some(Field::InPort),
            "dp_hash" => Some(Field::DpHash),
            "skb_mark" => Some(Field::PktMark),
            "ct_zone" => Some(Field::CtZone),
            "ct_mark" => Some(Field::CtMark),
            "ct_label" => Some(Field::CtLabel),
            _ => None,
        };
        if let Some(field) = single {
            let named = names.number(value).filter(|_| field == Field::InPort);
            let value = match named {
                Some(port) => port.0.into(),
                None => number(value)?,
            };
            key.write(field, value);
            continue;
        }
        match name {
            "packet_type" => {}
            "skb_priority" => key.write_at(Key::PRIORITY, number(value)?),
            "ct_state" => key.write(Field::CtState, CT_STATE.parse(value)?.0),
            "tcp_flags" => key.write(Field::TcpFlags, TCP_FLAGS.parse(value)?.0),
            // As in Open vSwitch by default, the headers under a second tag are payload.
            "encap" if depth > 0 => parse_groups(&mut key.clone(), value, names, depth + 1)?,
            "encap" => parse_groups(key, value, names, depth + 1)?,
            "vlan" if depth > 0 => {
                let mut inner = Key::ZERO;
                parse_group(&mut inner, name, value)?;
                key.write_at(Key::INNER_TCI, inner.read(Field::VlanTci));
            }
            "eth_type" => {
                let kind = number(value)?;
                // This Ethernet type belongs to a VLAN tag. The packet's own type follows in
                // `encap(…)`.
                let is_outer = depth == 0 && text.contains("encap(");
                if matches!(kind, 0x8100 | 0x88a8) && is_outer {
                    let word = &mut key.words[flow::word::VLAN_TPID];
                    *word = *word >> 32 << 32 | kind as u64;
                } else {
                    key.write(Field::EthType, kind);
                }
            }
            _ => parse_group(key, name, value)?,
        }
    }
    Ok(())
}

fn parse_group(key: &mut Key, group: &str, text: &str) -> Result<(), TextError> {
    let protocol = match group {
        "icmp" => Some(1),
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmpv6" => Some(58),
        "sctp" => Some(132),
        _ => None,
    };
    if let Some(protocol) = protocol
        && key.read(Field::NwProto) == 0
    {
        key.write(Field::NwProto, protocol);
    }
    // Each header in the text implies the packet's Ethernet type.
    let kind = match group {
        "ipv4" => Some(0x0800),
        "ipv6" => Some(0x86dd),
        "arp" => Some(0x0806),
        "mpls" => Some(0x8847),
        _ => None,
    };
    if let Some(kind) = kind
        && key.read(Field::EthType) == 0
    {
        key.write(Field::EthType, kind);
    }
    if group == "vlan" {
        let tci = key.read(Field::VlanTci);
        key.write(Field::VlanTci, tci | 0x1000);
    }
    for (name, value) in KeyValues::new(text) {
        let field = match (group, name) {
            ("eth", "src") => Field::EthSrc,
            ("eth", "dst") => Field::EthDst,
            ("vlan", "vid") => Field::DlVlan,
            ("vlan", "pcp") => Field::DlVlanPcp,
            ("vlan", "tci") => Field::VlanTci,
            ("vlan", "cfi") => continue,
            ("mpls", "label") => Field::MplsLabel,
            ("mpls", "tc") => Field::MplsTc,
            ("mpls", "ttl") => Field::MplsTtl,
            ("mpls", "bos") => Field::MplsBos,
            ("ipv4", "src") => Field::IpSrc,
            ("ipv4", "dst") => Field::IpDst,
            ("ipv6", "src") => Field::Ipv6Src,
            ("ipv6", "dst") => Field::Ipv6Dst,
            ("ipv6", "label") => Field::Ipv6Label,
            ("ipv4" | "ipv6", "proto") => Field::NwProto,
            ("ipv4", "ttl") | ("ipv6", "hlimit") => Field::NwTtl,
            ("ipv4", "tos") | ("ipv6", "tclass") => {
                let service = number(value)?;
                key.write(Field::NwTos, service >> 2);
                key.write(Field::NwEcn, service);
                continue;
            }
            ("ipv4" | "ipv6", "frag") => {
                let fragment = match value.split('/').next() {
                    Some("no") => 0,
                    Some("first") => 1,
                    Some("later") => 3,
                    _ => return Err(refuse!("{value}: unknown kind of fragment")),
                };
                key.write(Field::IpFrag, fragment);
                continue;
            }
            ("arp", "sip") => Field::ArpSpa,
            ("arp", "tip") => Field::ArpTpa,
            ("arp", "op") => Field::ArpOp,
            ("arp", "sha") => Field::ArpSha,
            ("arp", "tha") => Field::ArpTha,
            ("tcp" | "udp" | "sctp", "src") => Field::TcpSrc,
            ("tcp" | "udp" | "sctp", "dst") => Field::TcpDst,
            ("icmp" | "icmpv6", "type") => Field::IcmpType,
            ("icmp" | "icmpv6", "code") => Field::IcmpCode,
            ("nd", "target") => Field::NdTarget,
            ("nd", "sll") => Field::NdSll,
            ("nd", "tll") => Field::NdTll,
            ("ct_tuple4", "src") => Field::CtNwSrc,
            ("ct_tuple4", "dst") => Field::CtNwDst,
            ("ct_tuple6", "src") => Field::CtIpv6Src,
            ("ct_tuple6", "dst") => Field::CtIpv6Dst,
            ("ct_tuple4" | "ct_tuple6", "proto") => Field::CtNwProto,
            ("ct_tuple4" | "ct_tuple6", "tp_src") => Field::CtTpSrc,
            ("ct_tuple4" | "ct_tuple6", "tp_dst") => Field::CtTpDst,
            _ => return Err(refuse!("{group}({name}): unknown field of a packet")),
        };
        use flow::Format;
        let value = match field.format() {
            Format::Ethernet => parse_ethernet(value)?.0,
            Format::Ipv4 => parse_ipv4(value)?.0,
            Format::Ipv6 => parse_ipv6(value)?.0,
            _ => number(value)?,
        };
        key.write(field, value);
    }
    Ok(())
}

/// Reads a number. A mask after the number is ignored, because a packet has no mask.
fn number(text: &str) -> Result<u128, TextError> {
    match integer(text, 16) {
        Ok((value, rest)) if rest.is_empty() || rest.starts_with('/') => Ok(value),
        _ => Err(refuse!("{text}: not a number")),
    }
}
