use flow::action::Action;
use flow::request::FlowEntry;

use super::expiry::RemovalReason;

/// A change of a rule, and what made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEvent {
    pub event: RuleEvent,
    /// A controller's request made the change. Otherwise a packet, a timeout or a command did.
    pub is_requested: bool,
}

/// A change of a rule, for those that monitor a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleEvent {
    /// Also a rule that came in place of another one, whose actions are `former`.
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
