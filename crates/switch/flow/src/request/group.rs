use std::time::Duration;

use crate::action::Action;
use crate::port_number::PortNumber;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupCommand {
    Add,
    Modify,
    /// Adds the group, or changes it if it exists.
    AddOrModify,
    Delete,
    /// OpenFlow 1.5: adds buckets to a group; `at` as in [`GroupMod::bucket`].
    InsertBucket,
    RemoveBucket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupType {
    All,
    Select,
    Indirect,
    FastFailover,
}

/// `selection_method`: its name, its parameter, and the fields that it hashes, with masks.
pub type Selection = (String, u64, Vec<(crate::Field, u128)>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMod {
    pub command: GroupCommand,
    /// [`GroupMod::ALL`] deletes all groups.
    pub group: u32,
    pub kind: GroupType,
    pub buckets: Vec<Bucket>,
    /// The bucket that an OpenFlow 1.5 command names: a bucket number, or [`GroupMod::FIRST`],
    /// [`GroupMod::LAST`] or [`GroupMod::EVERY`]. The command inserts buckets before or after this
    /// bucket, or removes this bucket.
    pub bucket: u32,
    pub selection: Option<Selection>,
}

impl GroupMod {
    pub const ALL: u32 = 0xffff_fffc;
    pub const FIRST: u32 = 0xffff_fffd;
    pub const LAST: u32 = 0xffff_fffe;
    pub const EVERY: u32 = 0xffff_ffff;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    pub id: u32,
    pub weight: u16,
    pub watch_port: PortNumber,
    pub watch_group: u32,
    pub actions: Vec<Action>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupEntry {
    pub group: u32,
    pub kind: GroupType,
    pub buckets: Vec<Bucket>,
    pub selection: Option<Selection>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatistics {
    pub group: u32,
    pub references: u32,
    pub packets: u64,
    pub bytes: u64,
    pub duration: Duration,
    pub buckets: Vec<BucketStatistics>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BucketStatistics {
    pub packets: u64,
    pub bytes: u64,
}
