//! Requests that change or read a bridge. The types do not depend on the protocol or text of the
//! request.

mod bridge;
mod change;
mod connection;
mod flow;
mod flows;
mod fragments;
mod group;
mod meter;
mod packet;
mod port;
mod refusal;
mod table;

pub use bridge::Bridge;
pub use change::Change;
pub use connection::ConnectionFlush;
pub use flow::{
    Aggregate, CookieFilter, FlowCommand, FlowEntry, FlowFilter, FlowFlags, FlowMod, TableEntry,
};
pub use flows::Flows;
pub use fragments::Fragments;
pub use group::{
    Bucket, BucketStatistics, GroupCommand, GroupEntry, GroupMod, GroupStatistics, GroupType,
    Selection,
};
pub use meter::{Band, BandKind, MeterCommand, MeterEntry, MeterMod, MeterStatistics};
pub use packet::{PacketIn, PacketInReason, PacketOut, Resumption};
pub use port::{PortDescription, PortMod, PortStatistics, QueueStatistics};
pub use refusal::Refusal;
pub use table::{TABLES, TableConfig, TableLimit, TableMiss, TableMod, TableStatus, VacancyChange};
