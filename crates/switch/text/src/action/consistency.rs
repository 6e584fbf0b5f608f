//! Checks that a rule's match allows its actions.

use flow::action::{
    Action, CtZone, LearnDestination, LearnSource, NatAddresses, Row, Subfield, Tags,
};
use flow::port_number::PortNumber;
use flow::{Field, Match, Prerequisite};

use crate::normal::is_satisfied;

const INCONSISTENT: &str = "OFPBAC_MATCH_INCONSISTENT";
/// The bits of ct_state that only packets with a connection have: `new`, `est`, `rel`, `rpl`,
/// `snat` and `dnat`.
const VALID: u128 = 0xcf;
const INVALID: u128 = 0x10;
const TRACKED: u128 = 0x20;
const BAD_PORT: &str = "OFPBAC_BAD_OUT_PORT";
const BAD_ARGUMENT: &str = "OFPBAC_BAD_ARGUMENT";

/// Checks that actions fit a match. Otherwise returns the name of OpenFlow's error.
/// `needs_openflow_11`: the rule has an action that OpenFlow 1.0 lacks, so the less strict checks
/// of OpenFlow 1.0 do not apply.
pub(crate) fn check(
    actions: &[Action],
    matching: &Match,
    table: u8,
    needs_openflow_11: bool,
) -> Result<(), &'static str> {
    let mut packet = matching.clone();
    let mut is_strange = false;
    for action in actions {
        one(action, &mut packet, table, &mut is_strange)?;
    }
    if is_strange && needs_openflow_11 { Err(INCONSISTENT) } else { Ok(()) }
}

fn one(
    action: &Action,
    packet: &mut Match,
    table: u8,
    is_strange: &mut bool,
) -> Result<(), &'static str> {
    match action {
        Action::Output { port, .. } | Action::OutputTruncated { port, .. } => output(*port),
        Action::Enqueue { port, .. } => {
            let allowed = [PortNumber::IN_PORT, PortNumber::LOCAL];
            if port.is_reserved() && !allowed.contains(port) { Err(BAD_PORT) } else { Ok(()) }
        }
        Action::OutputRegister { source, .. } | Action::StackPush(source) => reads(*source, packet),
        Action::StackPop(destination) => writes(*destination, packet),
        Action::SetField { field, .. } => {
            let is_untagged = packet.value.read(Field::VlanTci) & 0x1000 == 0;
            if !is_satisfied(field.prerequisite(), packet)
                || *field == Field::VlanVid && is_untagged
            {
                return Err(INCONSISTENT);
            }
            // The new value of vlan_tci decides whether the packet has a tag.
            if *field == Field::VlanTci {
                packet.value.write(Field::VlanTci, 0x1000);
            } else if matches!(field, Field::DlVlan | Field::DlVlanPcp) {
                tag(packet, true);
            }
            Ok(())
        }
        // The switch itself checks whether actions may set the field.
        Action::Load { destination, .. } => reads(*destination, packet),
        Action::Move { source, destination } => {
            reads(*source, packet)?;
            writes(*destination, packet)
        }
        Action::Resubmit { with_ct: true, .. } => {
            // The match must require a flag that only packets with a connection have, or exclude
            // `inv`.
            let (state, mask) =
                (packet.value.read(Field::CtState), packet.mask.read(Field::CtState));
            let is_known =
                state & VALID != 0 || state & TRACKED != 0 && mask & !state & INVALID != 0;
            if is_known { Ok(()) } else { Err(INCONSISTENT) }
        }
        Action::Learn(learn) => {
            for spec in &learn.specs {
                if let LearnSource::Field(source) = &spec.source {
                    reads(*source, packet)?;
                }
                if let LearnDestination::Load(destination) = &spec.destination
                    && !destination.field.is_writable()
                {
                    return Err(BAD_ARGUMENT);
                }
            }
            Ok(())
        }
        Action::Multipath(multipath) => writes(multipath.destination, packet),
        Action::Bundle(bundle) => match bundle.destination {
            Some(destination) => writes(destination, packet),
            None => Ok(()),
        },
        Action::CheckPacketLarger { destination, .. } => writes(*destination, packet),
        Action::Sample(sample) if sample.probability == 0 => Err(BAD_ARGUMENT),
        Action::Ct(ct) => {
            let protocol = packet.value.read(Field::NwProto);
            let is_invalid = packet.value.read(Field::CtState) & INVALID != 0;
            if !is_satisfied(Prerequisite::Ip, packet)
                || is_invalid && ct.commit
                || ct.alg == 21 && protocol != 6
                || ct.alg == 69 && protocol != 17
            {
                return Err(INCONSISTENT);
            }
            if let CtZone::From(source) = ct.zone {
                return reads(source, packet);
            }
            let family = match ct.nat.as_ref().and_then(|nat| nat.addresses.as_ref()) {
                None => Prerequisite::Ip,
                Some(NatAddresses::V4(_)) => Prerequisite::Ipv4,
                Some(NatAddresses::V6(_)) => Prerequisite::Ipv6,
            };
            if !is_satisfied(family, packet) {
                return Err(INCONSISTENT);
            }
            nested(&ct.exec, packet, table, is_strange)
        }
        Action::Clone(actions) | Action::WriteActions(actions) => {
            nested(actions, packet, table, is_strange)
        }
        Action::GotoTable(next) if table != 255 && *next <= table => Err("OFPBIC_BAD_TABLE_ID"),
        _ => {
            *is_strange |= !has_protocol(action.row(), packet);
            change_tags(action, packet);
            Ok(())
        }
    }
}

/// Whether the packet has a protocol that the action requires.
fn has_protocol(row: &Row, packet: &Match) -> bool {
    let has = |protocol| is_satisfied(protocol, packet);
    match row.requires {
        [] => row.writes.is_none_or(|field| has(field.prerequisite())),
        protocols => protocols.iter().copied().any(has),
    }
}

fn change_tags(action: &Action, packet: &mut Match) {
    match action.row().tags {
        Tags::Kept => {}
        Tags::VlanAdded => tag(packet, true),
        Tags::VlanRemoved => tag(packet, false),
        Tags::EthTypeChanged => carry(packet, action.numbers()[0]),
    }
}

fn nested(
    actions: &[Action],
    packet: &Match,
    table: u8,
    is_strange: &mut bool,
) -> Result<(), &'static str> {
    let mut packet = packet.clone();
    actions.iter().try_for_each(|action| one(action, &mut packet, table, is_strange))
}

fn output(port: PortNumber) -> Result<(), &'static str> {
    if port == PortNumber::NONE || port == PortNumber::UNSET { Err(BAD_PORT) } else { Ok(()) }
}

fn reads(part: Subfield, packet: &Match) -> Result<(), &'static str> {
    if is_satisfied(part.field.prerequisite(), packet) { Ok(()) } else { Err(INCONSISTENT) }
}

fn writes(part: Subfield, packet: &Match) -> Result<(), &'static str> {
    reads(part, packet)?;
    if part.field.is_writable() { Ok(()) } else { Err("OFPBAC_BAD_SET_ARGUMENT") }
}

fn tag(packet: &mut Match, is_tagged: bool) {
    let tci = packet.value.read(Field::VlanTci);
    packet.value.write(Field::VlanTci, if is_tagged { tci | 0x1000 } else { 0 });
}

fn carry(packet: &mut Match, ethertype: u64) {
    packet.value.write(Field::EthType, ethertype.into());
    packet.value.write(Field::NwProto, 0);
}
