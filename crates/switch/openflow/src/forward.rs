use flow::request::{GroupCommand, GroupMod, MeterMod};

use super::Version;
use super::group::encode_group_mod;
use super::message::{
    Header, ONF, begin_experimenter, begin_message, begin_nicira_message, end_message,
};
use super::meter::encode_meter_mod;

/// A controller's change of groups or meters, to be forwarded to other controllers that ask for
/// such changes.
#[derive(Debug)]
pub struct Forward {
    pub(super) xid: u32,
    pub(super) request: Request,
}

#[derive(Debug)]
pub(super) enum Request {
    Group(GroupMod),
    Meter(MeterMod),
}

impl Forward {
    /// Returns the reason number for a forwarded request of this type.
    pub(super) fn reason(&self) -> u8 {
        match self.request {
            Request::Group(_) => 0,
            Request::Meter(_) => 1,
        }
    }

    /// Whether the version can express the request.
    pub(super) fn is_in(&self, version: Version) -> bool {
        match &self.request {
            Request::Group(change) => match change.command {
                GroupCommand::InsertBucket | GroupCommand::RemoveBucket => {
                    matches!(version, Version::V10 | Version::V15)
                }
                _ => true,
            },
            Request::Meter(_) => version >= Version::V13,
        }
    }

    /// Writes the request in the receiver's version, as a part of the forwarding message.
    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) {
        let start = match version {
            Version::V10 | Version::V11 | Version::V12 => {
                begin_nicira_message(version, 0, NICIRA_FORWARD, out)
            }
            Version::V13 => begin_experimenter(version, 0, ONF, ONF_FORWARD, out),
            _ => begin_message(Header { version, kind: FORWARD, xid: 0 }, out),
        };
        let header = |kind| Header { version, kind, xid: self.xid };
        let inside = match &self.request {
            Request::Group(_) if version == Version::V10 => {
                begin_nicira_message(version, self.xid, NICIRA_GROUP_MOD, out)
            }
            Request::Group(_) => begin_message(header(GROUP_MOD), out),
            Request::Meter(_) => begin_message(header(METER_MOD), out),
        };
        match &self.request {
            Request::Group(change) => encode_group_mod(change, version, out),
            Request::Meter(change) => encode_meter_mod(change, out),
        }
        end_message(inside, out);
        end_message(start, out);
    }
}

const FORWARD: u8 = 32;
const GROUP_MOD: u8 = 15;
const METER_MOD: u8 = 29;
const NICIRA_FORWARD: u32 = 132;
const NICIRA_GROUP_MOD: u32 = 31;
const ONF_FORWARD: u32 = 2350;
