//! Controllers' roles.

use flow::request::{Bridge, Refusal};

use super::Session;
use crate::message::{Header, Message, ONF, begin_experimenter, begin_message, end_message};
use crate::octets::Put;
use crate::version::Version;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Equal,
    Master,
    Slave,
}

impl Session {
    /// Returns whether the peer has become master since the last call. If so, the caller must
    /// demote all other masters.
    pub fn take_claim(&mut self) -> bool {
        std::mem::take(&mut self.has_claimed)
    }

    /// Makes a master a slave because another peer has become master, and tells the former master.
    pub fn demote(&mut self, generation: Option<u64>, out: &mut Vec<u8>) {
        if self.role != Role::Master {
            return;
        }
        self.role = Role::Slave;
        let start = match self.version {
            Some(version) if version >= Version::V14 => {
                begin_message(Header { version, kind: ROLE_STATUS, xid: 0 }, out)
            }
            Some(version @ Version::V13) => {
                begin_experimenter(version, 0, ONF, ONF_ROLE_STATUS, out)
            }
            _ => return,
        };
        out.put_u32(SLAVE);
        // The reason code means: another peer asked to be master.
        out.put_u8(0);
        out.put_zeros(3);
        out.put_u64(generation.unwrap_or(u64::MAX));
        end_message(start, out);
    }

    /// Returns the rank by which a snooping peer's controller is chosen: the highest for a master,
    /// the lowest for a slave.
    #[must_use]
    pub fn preference(&self) -> u8 {
        match self.role {
            Role::Master => 3,
            Role::Equal => 2,
            Role::Slave => 1,
        }
    }

    /// Returns the peer's role, in the words of the column `role` of Open vSwitch's `Controller`.
    #[must_use]
    pub fn role_name(&self) -> &'static str {
        match self.role {
            Role::Equal => "other",
            Role::Master => "master",
            Role::Slave => "slave",
        }
    }

    pub(super) fn change_role(
        &mut self,
        message: &Message<'_>,
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let mut body = message.body();
        let role = body.u32()?;
        body.skip(4)?;
        let generation = body.u64()?;
        if matches!(role, 2 | 3) {
            let last = bridge.generation();
            if last.is_some_and(|last| (generation.wrapping_sub(last) as i64) < 0) {
                return Err(Refusal::StaleRole);
            }
            *last = Some(generation);
        }
        self.role = match role {
            0 => self.role,
            1 => Role::Equal,
            2 => Role::Master,
            3 => Role::Slave,
            _ => return Err(Refusal::BadRole),
        };
        self.has_claimed |= role == MASTER;
        let start = begin_message(message.reply(25), out);
        out.put_u32(match self.role {
            Role::Equal => 1,
            Role::Master => MASTER,
            Role::Slave => SLAVE,
        });
        out.put_zeros(4);
        out.put_u64(bridge.generation().unwrap_or(u64::MAX));
        end_message(start, out);
        Ok(())
    }
}

const ROLE_STATUS: u8 = 30;
const ONF_ROLE_STATUS: u32 = 1911;
const MASTER: u32 = 2;
const SLAVE: u32 = 3;
