//! The messages of bundles.

use flow::request::{Bridge, Refusal};

use super::{Session, message_length, subject};
use crate::bundle::{Committed, Control, Waiting, is_allowed};
use crate::forward::Request;
use crate::message::{Header, Message, ONF, begin_experimenter, begin_message, end_message};
use crate::octets::Reader;
use crate::refusal_code::{Code, encode_error};
use crate::version::Version;

impl Session {
    pub(super) fn bundle_control(
        &mut self,
        message: &Message<'_>,
        mut body: Reader<'_>,
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let Header { version, xid, .. } = message.header;
        let mut control = Control::decode(&mut body)?;
        match control.kind {
            0 => {
                let start = message.bytes.to_vec();
                self.bundles.open(control, (xid, start))?;
            }
            2 => self.bundles.close(control)?,
            4 => match self.bundles.commit(control, bridge)? {
                Committed::Done(groups) => {
                    groups.into_iter().for_each(|(xid, group)| {
                        self.note(xid, Request::Group(group));
                    });
                }
                Committed::Refused(number, refused, refusal) => {
                    let kind = refused.get(1).copied().unwrap_or_default();
                    let code = Code::of(refusal, subject(kind, &refused, version), version);
                    encode_error(version, number, code, &refused, out);
                    let code = Code::bundle(MESSAGE_FAILED, version);
                    encode_error(version, xid, code, message.bytes, out);
                    return Ok(());
                }
            },
            6 => self.bundles.discard(control)?,
            _ => return Err(Refusal::BadBundleType),
        }
        control.kind += 1;
        control.flags = 0;
        let start = if version == Version::V13 {
            begin_experimenter(version, xid, ONF, ONF_BUNDLE_CONTROL, out)
        } else {
            begin_message(message.reply(33), out)
        };
        control.encode(out);
        end_message(start, out);
        Ok(())
    }

    pub(super) fn bundle_add(
        &mut self,
        message: &Message<'_>,
        mut body: Reader<'_>,
    ) -> Result<(), Refusal> {
        let version = message.header.version;
        let control = Control::decode(&mut body)?;
        let bytes = body.rest();
        let length = message_length(bytes).ok().flatten().ok_or(Refusal::BadLength)?;
        let bytes = bytes.get(..length).ok_or(Refusal::BadLength)?;
        let xid = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let header = Header { version, kind: bytes[1], xid };
        if bytes[0] != version.number() {
            return Err(Refusal::BadBundleMessage);
        }
        if xid != message.header.xid {
            return Err(Refusal::BadBundleNumber);
        }
        if !is_allowed(header.kind, version) {
            return Err(Refusal::BadBundleMessage);
        }
        let change = self.decode_change(&Message { header, bytes })?;
        let start = bytes.to_vec();
        self.bundles.add(control, Waiting { change, xid, start })
    }

    /// Removes bundles that have been idle for too long, and tells the peer.
    pub fn expire_bundles(&mut self, now_ms: u64, out: &mut Vec<u8>) {
        let Some(version) = self.version else { return };
        for (xid, message) in self.bundles.expire(now_ms) {
            encode_error(version, xid, Code::bundle(TIMED_OUT, version), &message, out);
        }
    }
}

/// OpenFlow's error code: a message of a bundle was refused.
const MESSAGE_FAILED: u16 = 13;
/// OpenFlow's error code: a bundle was idle for too long.
const TIMED_OUT: u16 = 14;

pub(super) const ONF_BUNDLE_CONTROL: u32 = 2300;
pub(super) const ONF_BUNDLE_ADD: u32 = 2301;
