use super::expiry::RemovalReason;
use crate::request::FlowEntry;

/// A change of a rule, for those that monitor a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleEvent {
    Added(FlowEntry),
    Modified(FlowEntry),
    Deleted(FlowEntry, RemovalReason),
}
