use flow::action::Action;
use flow::request::FlowEntry;

use super::expiry::RemovalReason;

/// A change of a rule, with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEvent {
    pub event: RuleEvent,
    /// Whether a controller requested the change. Otherwise, a packet, a timeout or a command
    /// caused the change.
    pub is_requested: bool,
}

/// A change of a rule, for monitors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleEvent {
    /// A rule was added. With `former`, the rule replaced a rule with these actions.
    Added {
        flow: FlowEntry,
        former: Vec<Action>,
    },
    Modified {
        flow: FlowEntry,
        former: Vec<Action>,
    },
    Deleted {
        flow: FlowEntry,
        reason: RemovalReason,
    },
}
