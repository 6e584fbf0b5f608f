//! OpenFlow's action set, which runs in its own order after the last table.

use flow::Field;
use flow::action::{Action, ActionSetPlace};
use flow::port_number::PortNumber;

use super::Way;

impl Way<'_> {
    /// Runs an action set: the last action of each type, in OpenFlow's order. Runs nothing if the
    /// set has no output and no group.
    pub(super) fn run_set(&mut self, set: &[Action]) {
        let mut ordered: Vec<_> = set.iter().map(|action| (action.row().place, action)).collect();
        ordered.retain(|(place, _)| *place != ActionSetPlace::None);
        ordered.sort_by_key(|(place, _)| *place);
        if ordered.last().is_none_or(|(place, _)| !place.is_final()) {
            return;
        }
        let mut actions = Vec::new();
        for (index, (place, action)) in ordered.iter().enumerate() {
            let is_last = match ordered.get(index + 1) {
                Some((next, _)) => next != place && !place.is_final(),
                None => true,
            };
            if is_last || *place == ActionSetPlace::Changes {
                actions.push((*action).clone());
            }
        }
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
