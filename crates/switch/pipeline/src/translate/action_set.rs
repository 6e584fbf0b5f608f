//! OpenFlow's action set, which runs in its own order after the last table.

use flow::Field;
use flow::action::Action;
use flow::port_number::PortNumber;

use super::Way;

impl Way<'_> {
    /// Runs an action set: the last action of each type, in OpenFlow's order. A set without an
    /// output or group does nothing.
    pub(super) fn run_set(&mut self, set: &[Action]) {
        let is_final = |kind: fn(&Action) -> bool| set.iter().rev().find(|action| kind(action));
        let finals: [fn(&Action) -> bool; 4] = [
            |action| matches!(action, Action::Group(_)),
            |action| matches!(action, Action::Output { .. } | Action::Controller(_)),
            |action| matches!(action, Action::Resubmit { .. }),
            |action| matches!(action, Action::Ct(_)),
        ];
        let Some(last) = finals.into_iter().find_map(is_final) else { return };
        let mut actions = Vec::new();
        let single: [fn(&Action) -> bool; 6] = [
            |action| matches!(action, Action::StripVlan),
            |action| matches!(action, Action::PopMpls(_)),
            |action| matches!(action, Action::PushMpls(_)),
            |action| matches!(action, Action::PushVlan(_)),
            |action| matches!(action, Action::DecTtl(_)),
            |action| matches!(action, Action::DecMplsTtl),
        ];
        actions.extend(single.into_iter().filter_map(is_final).cloned());
        actions.extend(set.iter().filter(|action| is_change(action)).cloned());
        actions.extend(is_final(|action| matches!(action, Action::SetQueue(_))).cloned());
        actions.push(last.clone());
        self.run(&actions);
    }

    /// Updates the field `actset_output`: the set's last output, unless the set has a group.
    pub(super) fn update_actset_output(&mut self) {
        let has_group = self.action_set.iter().any(|action| matches!(action, Action::Group(_)));
        let output = self.action_set.iter().rev().find_map(|action| match action {
            Action::Output { port, .. } => Some(*port),
            Action::Controller(_) => Some(PortNumber::CONTROLLER),
            _ => None,
        });
        let output = output.filter(|_| !has_group).unwrap_or(PortNumber::UNSET);
        self.flow.write(Field::ActsetOutput, output.0.into());
    }
}

fn is_change(action: &Action) -> bool {
    matches!(
        action,
        Action::SetField { .. }
            | Action::Load { .. }
            | Action::Move { .. }
            | Action::SetVlanVid(_)
            | Action::SetVlanPcp(_)
            | Action::SetMplsLabel(_)
            | Action::SetMplsTc(_)
            | Action::SetMplsTtl(_)
            | Action::SetEthSrc(_)
            | Action::SetEthDst(_)
            | Action::SetIpv4Src(_)
            | Action::SetIpv4Dst(_)
            | Action::SetIpTos(_)
            | Action::SetIpEcn(_)
            | Action::SetIpTtl(_)
            | Action::SetTpSrc(_)
            | Action::SetTpDst(_)
            | Action::SetTunnel(_)
    )
}
