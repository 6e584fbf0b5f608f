//! The order of instructions, and the actions that may be nested in other actions.

use flow::Field;
use flow::action::{Action, Instruction};

use crate::error::{TextError, refuse};

/// The text that contains a list of actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// A rule, which may also have instructions.
    Rule,
    /// A list without instructions: the actions of a group's bucket or of a packet-out.
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

fn name_of(instruction: Instruction) -> &'static str {
    match instruction {
        Instruction::Meter => "meter",
        Instruction::ApplyActions => "apply_actions",
        Instruction::ClearActions => "clear_actions",
        Instruction::WriteActions => "write_actions",
        Instruction::WriteMetadata => "write_metadata",
        Instruction::GotoTable => "goto_table",
    }
}

pub(crate) fn verify(actions: &[Action], context: Context) -> Result<(), TextError> {
    let mut last = Instruction::Meter;
    for (index, action) in actions.iter().enumerate() {
        if matches!(action, Action::Conjunction { .. }) {
            return alone_with_notes(actions);
        }
        nested(action, context)?;
        let next = action.row().instruction;
        let is_repeated = last == Instruction::ApplyActions && next == last;
        let is_ordered = is_repeated || next > last;
        if index > 0 && !is_ordered {
            let (next, last) = (name_of(next), name_of(last));
            return Err(if next == last {
                refuse!("duplicate {last} instruction not allowed, for OpenFlow 1.1+ compatibility")
            } else {
                refuse!(
                    "invalid instruction ordering: {next} must appear before {last}, for \
                     OpenFlow 1.1+ compatibility"
                )
            });
        }
        if context != Context::Rule && next > Instruction::ApplyActions {
            return Err(refuse!("{} instruction not allowed here", name_of(next)));
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
            action.row().name
        )),
    }
}

fn nested(action: &Action, context: Context) -> Result<(), TextError> {
    let field = action.named_destination();
    let is_tracking = matches!(field, Some(Field::CtMark | Field::CtLabel));
    if is_tracking && context != Context::Ct {
        return Err(refuse!("cannot set CT fields outside of ct action"));
    }
    let unsupported = || {
        let (outer, inner) = (context.name(), action.row().name);
        Err(refuse!("{outer} action doesn't support nested action {inner}"))
    };
    match (context, field) {
        (Context::Ct, None) => unsupported(),
        (Context::Ct, Some(field)) if !is_tracking => {
            Err(refuse!("ct action doesn't support nested modification of {}", field.name()))
        }
        (Context::Clone | Context::WriteActions, _)
            if action.row().instruction == Instruction::Meter =>
        {
            unsupported()
        }
        _ => Ok(()),
    }
}
