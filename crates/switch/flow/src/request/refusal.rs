use thiserror::Error;

/// Why a switch refuses a request, as in OpenFlow's error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("unknown command")]
    BadCommand,
    #[error("there is no such table")]
    BadTable,
    #[error("the table is the switch's own")]
    ReservedTable,
    #[error("there is no such table to describe")]
    BadTableFeature,
    #[error("the settings of the switch name the table")]
    FixedTableName,
    #[error("the table is full")]
    TableFull,
    #[error("the rule overlaps a rule of the same priority")]
    Overlap,
    #[error("not permitted")]
    NotPermitted,
    #[error("unknown flag")]
    BadFlags,
    #[error("bad timeout")]
    BadTimeout,
    #[error("unknown buffer")]
    UnknownBuffer,
    #[error("the match lacks a prerequisite")]
    BadPrerequisite,
    #[error("bad field in a match")]
    BadMatchField,
    #[error("bad mask in a match")]
    BadMatchMask,
    #[error("bad value in a match")]
    BadMatchValue,
    #[error("bad length of a match")]
    BadMatchLength,
    #[error("a field appears twice in a match")]
    DuplicateField,
    #[error("unknown action")]
    BadActionType,
    #[error("bad length of an action")]
    BadActionLength,
    #[error("bad argument of an action")]
    BadActionArgument,
    #[error("the rule's match does not allow an action")]
    InconsistentMatch,
    #[error("an action has a field that cannot be set")]
    BadSetField,
    #[error("bad output port")]
    BadOutPort,
    #[error("bad output group")]
    BadOutGroup,
    #[error("unknown instruction")]
    BadInstruction,
    #[error("bad table in an instruction")]
    BadInstructionTable,
    #[error("the group exists")]
    GroupExists,
    #[error("unknown group")]
    UnknownGroup,
    #[error("bad group")]
    BadGroup,
    #[error("a group leads to itself")]
    GroupLoop,
    #[error("the meter exists")]
    MeterExists,
    #[error("unknown meter")]
    UnknownMeter,
    #[error("bad meter")]
    BadMeter,
    #[error("bad port")]
    BadPort,
    #[error("bad hardware address")]
    BadHardwareAddress,
    #[error("bad port of a queue")]
    BadQueuePort,
    #[error("the port has no such queue")]
    BadQueue,
    #[error("bad length of a request")]
    BadLength,
    #[error("a request in more parts than the switch keeps")]
    TooManyParts,
    #[error("unknown type of a request")]
    BadType,
    #[error("unknown statistics")]
    BadStatistics,
    #[error("unknown experimenter")]
    BadExperimenter,
    #[error("unknown version")]
    BadVersion,
    #[error("unknown bundle")]
    BadBundle,
    #[error("the bundle is closed")]
    BundleClosed,
    #[error("the connection has as many bundles as the switch keeps")]
    TooManyBundles,
    #[error("the bundle has more messages, or longer ones, than the switch keeps")]
    BundleTooLarge,
    #[error("the flags of the bundle differ, or are unknown")]
    BadBundleFlags,
    #[error("unknown kind of a bundle's control message")]
    BadBundleType,
    #[error("a message in a bundle has another number than the bundle's message")]
    BadBundleNumber,
    #[error("a message of this type cannot be in a bundle")]
    BadBundleMessage,
    #[error("the role does not allow changes")]
    IsSlave,
    #[error("the generation of the role is older than the last one")]
    StaleRole,
    #[error("unknown role")]
    BadRole,
    #[error("there is a monitor of this number")]
    MonitorExists,
    #[error("there is no monitor of this number")]
    UnknownMonitor,
    #[error("unknown flag of a monitor, or a monitor of no changes")]
    BadMonitorFlags,
    #[error("unknown command about a monitor")]
    BadMonitorCommand,
    #[error("unknown kind of events")]
    UnknownEvent,
    #[error("a mask of events has reasons that the version does not have")]
    BadEventMask,
    #[error("bad length of a property")]
    BadPropertyLength,
    #[error("bad value of a property")]
    BadPropertyValue,
    #[error("the group has no such bucket")]
    UnknownBucket,
    #[error("the group has such a bucket already")]
    BucketExists,
}
