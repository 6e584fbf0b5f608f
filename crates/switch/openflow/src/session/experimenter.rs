//! Messages of Nicira and of ONF, which share the type of experimenter messages.

use flow::request::{Bridge, Refusal};

use super::bundling::{ONF_BUNDLE_ADD, ONF_BUNDLE_CONTROL};
use super::{Role, Session};
use crate::connection_flush::{decode_flush, decode_zone_flush};
use crate::flow_mod;
use crate::forward::Request;
use crate::group::decode_group_mod;
use crate::message::{Header, Message, NICIRA, ONF, begin_nicira_message, end_message};
use crate::octets::{Put, Reader};
use crate::packet::{PacketInFormat, decode_resume};
use crate::version::Version;

impl Session {
    pub(super) fn experimenter(
        &mut self,
        message: &Message<'_>,
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let mut body = message.body();
        let experimenter = body.u32()?;
        let subtype = body.u32()?;
        match experimenter {
            NICIRA => self.nicira(subtype, message, body, bridge, out),
            ONF if message.header.version == Version::V13 => match subtype {
                ONF_BUNDLE_CONTROL => self.bundle_control(message, body, bridge, out),
                ONF_BUNDLE_ADD => self.bundle_add(message, body),
                ONF_MONITOR_CANCEL => self.monitors.cancel(body.u32()?),
                _ => Err(Refusal::BadType),
            },
            _ => Err(Refusal::BadExperimenter),
        }
    }

    fn nicira(
        &mut self,
        subtype: u32,
        message: &Message<'_>,
        mut body: Reader<'_>,
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let Header { version, xid, .. } = message.header;
        match subtype {
            10 => {
                let role = body.u32()?;
                self.role = match role {
                    0 => Role::Equal,
                    1 => Role::Master,
                    2 => Role::Slave,
                    _ => return Err(Refusal::BadRole),
                };
                self.has_claimed |= self.role == Role::Master;
                let start = begin_nicira_message(version, xid, 11, out);
                out.put_u32(role);
                end_message(start, out);
            }
            12 => {
                self.takes_nicira_match = match body.u32()? {
                    0 => false,
                    2 => true,
                    _ => return Err(Refusal::NotPermitted),
                };
            }
            13 => {
                if self.role == Role::Slave {
                    return Err(Refusal::IsSlave);
                }
                let change = flow_mod::decode_nicira(body, version, self.flow_mod_has_table)?;
                bridge.flow_mod(change)?;
            }
            15 => self.flow_mod_has_table = body.u8()? != 0,
            16 => {
                self.packet_in_format = match body.u32()? {
                    0 => PacketInFormat::Standard,
                    1 => PacketInFormat::Nicira,
                    2 => PacketInFormat::Nicira2,
                    _ => return Err(Refusal::NotPermitted),
                };
            }
            // This message asks for ages in replies. Nicira's replies always have ages, so nothing
            // changes.
            18 => {}
            19 => {
                self.ask_for_events();
                self.masks.decode(body, version)?;
            }
            20 => {
                body.skip(6)?;
                self.controller = body.u16()?;
            }
            21 => self.monitors.cancel(body.u32()?)?,
            25 => {
                // The reply has no mappings of tunnel options.
                let start = begin_nicira_message(version, xid, 26, out);
                out.put_zeros(16);
                end_message(start, out);
            }
            27 => {
                self.ask_for_events();
                self.masks.decode_properties(body, version)?;
            }
            28 => bridge.resume(decode_resume(body, version)?)?,
            29 => bridge.flush_connections(&decode_zone_flush(body)?),
            32 => bridge.flush_connections(&decode_flush(body)?),
            31 if version == Version::V10 => {
                if self.role == Role::Slave {
                    return Err(Refusal::IsSlave);
                }
                let change = decode_group_mod(body, version)?;
                bridge.group_mod(change.clone())?;
                self.note(xid, Request::Group(change));
            }
            _ => return Err(Refusal::BadType),
        }
        Ok(())
    }
}

const ONF_MONITOR_CANCEL: u32 = 1870;
