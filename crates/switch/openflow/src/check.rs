use flow::action::{Action, Subfield, Tags};
use flow::request::Refusal;
use flow::{Field, Match, Prerequisite};

use super::Version;
use super::match_entry::has_prerequisite;

/// Checks that the packets of a match have the fields that actions use, and that goto_table leads
/// to a later table.
pub(super) fn check_actions(
    actions: &[Action],
    matching: &Match,
    table: Option<u8>,
    version: Version,
) -> Result<(), Refusal> {
    if !actions.iter().any(needs_check) {
        return Ok(());
    }
    let mut packet = matching.clone();
    check(actions, &mut packet, table, version)
}

fn check(
    actions: &[Action],
    packet: &mut Match,
    table: Option<u8>,
    version: Version,
) -> Result<(), Refusal> {
    // OpenFlow 1.0 accepts standard actions that have no effect on the packets of the rule.
    let is_strict = version > Version::V10;
    for action in actions {
        match action {
            Action::SetField { field, .. } => {
                require(packet, *field)?;
                if matches!(field, Field::VlanVid | Field::VlanTci) {
                    packet.set(Field::VlanTci, 0x1000);
                }
            }
            Action::Load { destination, .. } => require(packet, destination.field)?,
            Action::Move { source, destination } => {
                require(packet, source.field)?;
                require(packet, destination.field)?;
            }
            Action::StackPush(part) | Action::StackPop(part) => require(packet, part.field)?,
            Action::OutputRegister { source, .. } => require(packet, source.field)?,
            Action::GotoTable(next) => {
                let is_back = table.is_some_and(|table| *next <= table);
                if *next == 0xff || (is_back && is_strict) {
                    return Err(Refusal::BadInstructionTable);
                }
            }
            _ => {
                let row = action.row();
                // ovs-ofctl checks the other required protocols, so the switch does not.
                if let Some(field) = row.writes.filter(|_| row.requires.is_empty())
                    && (is_strict || field.prerequisite() == Prerequisite::Mpls)
                {
                    require(packet, field)?;
                }
                match row.tags {
                    Tags::Kept => {}
                    Tags::VlanAdded => packet.set(Field::VlanTci, 0x1000),
                    Tags::VlanRemoved => packet.clear(Field::VlanTci),
                    Tags::EthTypeChanged => {
                        packet.set(Field::EthType, action.numbers()[0].into());
                        packet.clear(Field::NwProto);
                    }
                }
                if !action.nested().is_empty() {
                    check(action.nested(), &mut packet.clone(), table, version)?;
                }
            }
        }
    }
    Ok(())
}

fn require(packet: &Match, field: Field) -> Result<(), Refusal> {
    let is_present = match field {
        // A write to one of these fields adds a tag to an untagged packet.
        Field::VlanTci | Field::DlVlan | Field::DlVlanPcp => true,
        Field::VlanVid => has_prerequisite(packet, Field::VlanPcp),
        field => has_prerequisite(packet, field),
    };
    if is_present { Ok(()) } else { Err(Refusal::InconsistentMatch) }
}

fn needs_check(action: &Action) -> bool {
    let is_any = |part: &Subfield| part.field.prerequisite() == Prerequisite::Any;
    match action {
        Action::Output { .. } | Action::Resubmit { .. } | Action::Group(_) => false,
        Action::Ct(track) => !track.exec.is_empty(),
        Action::Load { destination, .. } => !is_any(destination),
        Action::Move { source, destination } => !is_any(source) || !is_any(destination),
        _ => action.row().writes.is_none_or(|field| field.prerequisite() != Prerequisite::Any),
    }
}
