//! The order of instructions, and the actions that may be nested in others.

use flow::Field;
use flow::action::Action;

use super::parse::changed_field;
use crate::error::{TextError, refuse};

/// The text that contains a list of actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// A rule, which may also have instructions.
    Rule,
    /// A list without instructions: of a group's bucket or of a packet-out.
    Plain,
    Clone,
    WriteActions,
    Ct,
}

impl Context {
    fn name(self) -> &'static str {
        match self {
            Context::Rule | Context::Plain => "",
            Context::Clone => "clone",
            Context::WriteActions => "write_actions",
            Context::Ct => "ct",
        }
    }
}

const INSTRUCTIONS: [&str; 6] =
    ["meter", "apply_actions", "clear_actions", "write_actions", "write_metadata", "goto_table"];
const METER: usize = 0;
const APPLY: usize = 1;

pub(crate) fn verify(actions: &[Action], context: Context) -> Result<(), TextError> {
    let mut last = METER;
    for (index, action) in actions.iter().enumerate() {
        if matches!(action, Action::Conjunction { .. }) {
            return alone_with_notes(actions);
        }
        nested(action, context)?;
        let next = instruction(action);
        let is_ordered = if last == APPLY { next >= last } else { next > last };
        if index > 0 && !is_ordered {
            let (next, last) = (INSTRUCTIONS[next], INSTRUCTIONS[last]);
            return Err(if next == last {
                refuse!("duplicate {last} instruction not allowed, for OpenFlow 1.1+ compatibility")
            } else {
                refuse!(
                    "invalid instruction ordering: {next} must appear before {last}, for \
                     OpenFlow 1.1+ compatibility"
                )
            });
        }
        if context != Context::Rule && next > APPLY {
            return Err(refuse!("{} instruction not allowed here", INSTRUCTIONS[next]));
        }
        last = next;
    }
    Ok(())
}

fn alone_with_notes(actions: &[Action]) -> Result<(), TextError> {
    let other = actions
        .iter()
        .find(|action| !matches!(action, Action::Conjunction { .. } | Action::Note(_)));
    match other {
        None => Ok(()),
        Some(action) => Err(refuse!(
            "\"conjunction\" actions may be used along with \"note\" but not any other kind of \
             action (such as the \"{}\" action used here)",
            name(action)
        )),
    }
}

fn nested(action: &Action, context: Context) -> Result<(), TextError> {
    let field = changed_field(action);
    let is_tracking = matches!(field, Some(Field::CtMark | Field::CtLabel));
    if is_tracking && context != Context::Ct {
        return Err(refuse!("cannot set CT fields outside of ct action"));
    }
    let unsupported =
        || Err(refuse!("{} action doesn't support nested action {}", context.name(), name(action)));
    match (context, field) {
        (Context::Ct, None) => unsupported(),
        (Context::Ct, Some(field)) if !is_tracking => {
            Err(refuse!("ct action doesn't support nested modification of {}", field.name()))
        }
        (Context::Clone | Context::WriteActions, _) if matches!(action, Action::Meter(_)) => {
            unsupported()
        }
        _ => Ok(()),
    }
}

fn instruction(action: &Action) -> usize {
    match action {
        Action::Meter(_) => METER,
        Action::ClearActions => 2,
        Action::WriteActions(_) => 3,
        Action::WriteMetadata { .. } => 4,
        Action::GotoTable(_) => 5,
        _ => APPLY,
    }
}

/// Returns the name of an action in error texts.
fn name(action: &Action) -> &'static str {
    match action {
        Action::Output { .. } => "output",
        Action::OutputRegister { .. } => "output_reg",
        Action::OutputTruncated { .. } => "output_trunc",
        Action::Controller(_) => "controller",
        Action::Enqueue { .. } => "enqueue",
        Action::Group(_) => "group",
        Action::SetField { .. } | Action::Load { .. } => "set_field",
        Action::Move { .. } => "move",
        Action::StackPush(_) => "push",
        Action::StackPop(_) => "pop",
        Action::SetVlanVid(_) => "set_vlan_vid",
        Action::SetVlanPcp(_) => "set_vlan_pcp",
        Action::StripVlan => "strip_vlan",
        Action::PushVlan(_) => "push_vlan",
        Action::PushMpls(_) => "push_mpls",
        Action::PopMpls(_) => "pop_mpls",
        Action::SetMplsLabel(_) => "set_mpls_label",
        Action::SetMplsTc(_) => "set_mpls_tc",
        Action::SetMplsTtl(_) => "set_mpls_ttl",
        Action::DecMplsTtl => "dec_mpls_ttl",
        Action::SetEthSrc(_) => "mod_dl_src",
        Action::SetEthDst(_) => "mod_dl_dst",
        Action::SetIpv4Src(_) => "mod_nw_src",
        Action::SetIpv4Dst(_) => "mod_nw_dst",
        Action::SetIpTos(_) => "mod_nw_tos",
        Action::SetIpEcn(_) => "mod_nw_ecn",
        Action::SetIpTtl(_) => "mod_nw_ttl",
        Action::SetTpSrc(_) => "mod_tp_src",
        Action::SetTpDst(_) => "mod_tp_dst",
        Action::DecTtl(_) => "dec_ttl",
        Action::SetTunnel(_) => "set_tunnel",
        Action::SetQueue(_) => "set_queue",
        Action::PopQueue => "pop_queue",
        Action::FinTimeout { .. } => "fin_timeout",
        Action::Resubmit { .. } => "resubmit",
        Action::Learn(_) => "learn",
        Action::Conjunction { .. } => "conjunction",
        Action::Multipath(_) => "multipath",
        Action::Bundle(_) => "bundle",
        Action::Note(_) => "note",
        Action::Exit => "exit",
        Action::Sample(_) => "sample",
        Action::Ct(_) => "ct",
        Action::CtClear => "ct_clear",
        Action::DebugRecirculate => "debug_recirc",
        Action::DebugSlow => "debug_slow",
        Action::CheckPacketLarger { .. } => "check_pkt_larger",
        Action::Clone(_) => "clone",
        Action::Meter(_) => "meter",
        Action::ClearActions => "clear_actions",
        Action::WriteActions(_) => "write_actions",
        Action::WriteMetadata { .. } => "write_metadata",
        Action::GotoTable(_) => "goto_table",
    }
}
