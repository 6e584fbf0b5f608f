//! The normal form of a match: fields whose prerequisites the match lacks are removed.

use flow::{Field, Match, Prerequisite};

pub(crate) const REGISTERS: [Field; 16] = [
    Field::Reg0,
    Field::Reg1,
    Field::Reg2,
    Field::Reg3,
    Field::Reg4,
    Field::Reg5,
    Field::Reg6,
    Field::Reg7,
    Field::Reg8,
    Field::Reg9,
    Field::Reg10,
    Field::Reg11,
    Field::Reg12,
    Field::Reg13,
    Field::Reg14,
    Field::Reg15,
];

/// Fields that the normal form drops if the match lacks their prerequisites.
const DEPENDENT: [Field; 26] = [
    Field::MplsLabel,
    Field::MplsTc,
    Field::MplsBos,
    Field::MplsTtl,
    Field::IpSrc,
    Field::IpDst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::Ipv6Label,
    Field::NwProto,
    Field::NwTos,
    Field::NwEcn,
    Field::NwTtl,
    Field::IpFrag,
    Field::ArpOp,
    Field::ArpSpa,
    Field::ArpSha,
    Field::ArpTha,
    Field::TcpSrc,
    Field::TcpDst,
    Field::TcpFlags,
    Field::NdTarget,
    Field::NdSll,
    Field::NdTll,
    Field::CtTpSrc,
    Field::CtTpDst,
];

/// Drops the fields whose prerequisites the match lacks, as ovs-ofctl and a switch do.
pub fn normalize(matching: &mut Match) {
    if DEPENDENT.iter().all(|field| !matching.is_set(*field)) {
        return;
    }
    let full = matching.clone();
    let kind = full.value.read(Field::EthType) as u16;
    for field in DEPENDENT {
        matching.clear(field);
    }
    let (restored, codes): (&[Field], bool) = match kind {
        0x0800 => (&[Field::IpSrc, Field::IpDst], full.value.read(Field::NwProto) == 1),
        0x86dd => {
            let fields = &[Field::Ipv6Src, Field::Ipv6Dst, Field::Ipv6Label];
            (fields, full.value.read(Field::NwProto) == 58)
        }
        0x0806 | 0x8035 => (&[Field::ArpSpa, Field::ArpTpa, Field::ArpSha, Field::ArpTha], false),
        0x8847 | 0x8848 => {
            (&[Field::MplsLabel, Field::MplsTc, Field::MplsBos, Field::MplsTtl], false)
        }
        _ => (&[], false),
    };
    for field in restored {
        restore(matching, &full, *field);
    }
    match kind {
        0x0800 | 0x86dd => internet(matching, &full, kind, codes),
        0x0806 | 0x8035 if full.is_set(Field::NwProto) => {
            matching.set(Field::ArpOp, full.value.read(Field::NwProto));
        }
        _ => {}
    }
    if full.value.read(Field::CtNwProto) != 0 {
        restore(matching, &full, Field::CtTpSrc);
        restore(matching, &full, Field::CtTpDst);
    }
}

/// Whether every packet of a match satisfies a prerequisite.
pub(crate) fn is_satisfied(prerequisite: Prerequisite, matching: &Match) -> bool {
    let kind = matching.value.read(Field::EthType) as u16;
    let protocol = matching.value.read(Field::NwProto);
    let is_ip = matches!(kind, 0x0800 | 0x86dd);
    let is_later = matching.value.read(Field::IpFrag) & 2 != 0;
    let carries = |number: u128| is_ip && protocol == number && !is_later;
    let is_discovery = |kinds: &[u128]| {
        kind == 0x86dd
            && protocol == 58
            && kinds.contains(&matching.value.read(Field::TcpSrc))
            && matching.value.read(Field::TcpDst) == 0
    };
    match prerequisite {
        Prerequisite::Any => true,
        Prerequisite::Vlan => matching.value.read(Field::VlanTci) & 0x1000 != 0,
        Prerequisite::Mpls => matches!(kind, 0x8847 | 0x8848),
        Prerequisite::Arp => matches!(kind, 0x0806 | 0x8035),
        Prerequisite::Ipv4 => kind == 0x0800,
        Prerequisite::Ipv6 => kind == 0x86dd,
        Prerequisite::Ip => is_ip,
        Prerequisite::Tcp => carries(6),
        Prerequisite::Udp => carries(17),
        Prerequisite::Sctp => carries(132),
        Prerequisite::Icmpv4 => kind == 0x0800 && protocol == 1,
        Prerequisite::Icmpv6 => kind == 0x86dd && protocol == 58,
        Prerequisite::NeighborDiscovery => is_discovery(&[135, 136]),
        Prerequisite::NeighborSolicitation => is_discovery(&[135]),
        Prerequisite::NeighborAdvertisement => is_discovery(&[136]),
    }
}

fn internet(matching: &mut Match, full: &Match, kind: u16, codes: bool) {
    for field in [Field::NwProto, Field::NwTos, Field::NwEcn, Field::NwTtl, Field::IpFrag] {
        restore(matching, full, field);
    }
    let has_protocol = full.is_set(Field::NwProto);
    let protocol = full.value.read(Field::NwProto);
    let is_later = full.value.read(Field::IpFrag) & 2 != 0;
    if !has_protocol || is_later {
        return;
    }
    if codes {
        // Messages carry ICMP types and codes without masks.
        for (field, wide) in [(Field::IcmpType, Field::TcpSrc), (Field::IcmpCode, Field::TcpDst)] {
            if full.is_set(wide) {
                matching.set(field, full.value.read(field));
            }
        }
    } else if matches!(protocol, 6 | 17 | 132) {
        restore(matching, full, Field::TcpSrc);
        restore(matching, full, Field::TcpDst);
    }
    if protocol == 6 {
        restore(matching, full, Field::TcpFlags);
    }
    let is_discovery = is_satisfied(Prerequisite::NeighborDiscovery, full);
    if kind == 0x86dd && codes && is_discovery {
        restore(matching, full, Field::NdTarget);
        if is_satisfied(Prerequisite::NeighborSolicitation, full) {
            restore(matching, full, Field::NdSll);
        } else {
            restore(matching, full, Field::NdTll);
        }
    }
}

fn restore(matching: &mut Match, full: &Match, field: Field) {
    matching.set_masked(field, full.value.read(field), full.mask.read(field));
}
