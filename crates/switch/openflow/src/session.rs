mod bundling;
mod events;
mod experimenter;
mod requests;
mod role;

use std::sync::Arc;

use flow::request::{Bridge, Refusal};
use thiserror::Error;

use self::role::Role;
use super::Version;
use super::bundle::{BundleMemory, Bundles};
use super::event_masks::Masks;
use super::forward::Forward;
use super::hello::{encode_hello, negotiate};
use super::message::{EXPERIMENTER, Header, Message, NICIRA, begin_message, end_message};
use super::monitor::Monitors;
use super::packet::PacketInFormat;
use super::parts::Parts;
use super::refusal_code::{Code, Subject, encode_error};
use super::reply::Reply;

/// Why a connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolError {
    #[error("the peer offers no OpenFlow version that this switch speaks; try -O OpenFlow13")]
    NoCommonVersion,
    #[error("the peer's first message is not a hello; close the connection")]
    NoHello,
    #[error("the peer sent a message of {0} bytes; a header alone has 8")]
    ShortMessage(u16),
}

/// Which side made a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A tool connected to the switch. The tool gets packets and events only after a request for
    /// them.
    Service,
    /// The switch connected to a controller. The controller gets packets and events at once.
    Controller,
}

/// The state of a connection: the version, an incomplete message, and the peer's settings.
#[derive(Debug)]
pub struct Session {
    kind: Kind,
    versions: Vec<Version>,
    version: Option<Version>,
    /// The start of an incomplete message: at most 64 KiB.
    partial: Vec<u8>,
    flow_mod_has_table: bool,
    packet_in_format: PacketInFormat,
    takes_nicira_match: bool,
    controller: u16,
    config_flags: u16,
    miss_send_len: u16,
    role: Role,
    /// Whether the peer has become master since the last call of [`Session::take_claim`].
    has_claimed: bool,
    masks: Masks,
    bundles: Bundles,
    monitors: Monitors,
    parts: Parts,
    /// The reply that is being written. The session answers no other request before this reply is
    /// complete.
    reply: Option<Reply>,
    /// The peer's changes of groups and meters since the last call of [`Session::take_forwards`].
    forwards: Vec<Forward>,
}

impl Session {
    /// Creates a session that supports all versions.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self::with_versions(kind, &Version::ALL)
    }

    /// Creates a session that supports `versions`. Its bundles share memory with the bundles of
    /// other sessions.
    #[must_use]
    pub fn sharing(kind: Kind, versions: &[Version], memory: Arc<BundleMemory>) -> Self {
        Self { bundles: Bundles::new(memory), ..Self::with_versions(kind, versions) }
    }

    #[must_use]
    pub fn with_versions(kind: Kind, versions: &[Version]) -> Self {
        Self {
            kind,
            versions: versions.to_vec(),
            version: None,
            partial: Vec::new(),
            flow_mod_has_table: false,
            packet_in_format: PacketInFormat::Standard,
            takes_nicira_match: false,
            controller: 0,
            config_flags: 0,
            miss_send_len: if kind == Kind::Controller { USUAL_MISS_SEND_LEN } else { 0 },
            role: Role::Equal,
            has_claimed: false,
            masks: Masks::usual(Version::V10),
            forwards: Vec::new(),
            bundles: Bundles::new(Arc::default()),
            monitors: Monitors::default(),
            parts: Parts::default(),
            reply: None,
        }
    }

    /// Writes the hello with which a connection begins.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        encode_hello(&self.versions, out);
    }

    /// Returns the negotiated version, once the peer's hello has arrived.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Whether the peer monitors the bridge's rules.
    #[must_use]
    pub fn is_monitoring(&self) -> bool {
        !self.monitors.is_empty()
    }

    /// Whether the peer gets packets that match no rule. Only OpenFlow 1.0 peers that ask for
    /// packet-ins get such packets; in later versions, such packets are dropped.
    #[must_use]
    pub fn takes_misses(&self) -> bool {
        self.version == Some(Version::V10) && self.miss_send_len > 0 && self.controller == 0
    }

    /// Takes bytes from the peer, passes the requests in them to the bridge, and writes whole
    /// replies. After an error, the caller sends `out` and then closes the connection.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        let mut rest = bytes;
        if !self.partial.is_empty() {
            rest = self.complete_partial(rest, bridge, out)?;
        }
        while let Some(length) = message_length(rest)? {
            let Some((message, behind)) = rest.split_at_checked(length) else { break };
            self.handle_whole(message, bridge, out)?;
            rest = behind;
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }

    /// Like [`Session::receive`], for one whole message when no incomplete message is pending. The
    /// session only begins a long reply; the caller must then call [`Session::go_on`] until
    /// [`Session::is_replying`] is false.
    pub fn begin(
        &mut self,
        message: &[u8],
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        match message_length(message)? {
            Some(_) => self.handle(message, bridge, out),
            None => Ok(()),
        }
    }

    /// Whether a reply is incomplete.
    #[must_use]
    pub fn is_replying(&self) -> bool {
        self.reply.is_some()
    }

    /// Writes the next piece of the reply, and returns the number of rules in the piece.
    pub fn go_on(&mut self, bridge: &dyn Bridge, out: &mut Vec<u8>) -> usize {
        let Some(reply) = &mut self.reply else { return 0 };
        let (count, is_over) = reply.write_some(&self.monitors, bridge, out);
        if is_over {
            self.monitors.replied(reply.is_of_changes(), reply.version(), out);
            self.reply = None;
        }
        count
    }

    /// Writes an echo request, which a live peer answers with an echo reply.
    pub fn echo(&mut self, out: &mut Vec<u8>) {
        let version = self.version.unwrap_or(Version::V10);
        // Open vSwitch's echo requests also have the number 0.
        let header = Header { version, kind: ECHO_REQUEST, xid: 0 };
        let start = begin_message(header, out);
        end_message(start, out);
    }

    /// Completes the incomplete message with the first bytes of `bytes`. Returns the remaining
    /// bytes.
    fn complete_partial<'a>(
        &mut self,
        bytes: &'a [u8],
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<&'a [u8], ProtocolError> {
        let mut rest = bytes;
        let wanted = |partial: &[u8]| message_length(partial).map(|length| length.unwrap_or(8));
        for _ in ["header", "body"] {
            let missing = wanted(&self.partial)?.saturating_sub(self.partial.len());
            let (taken, behind) = rest.split_at(missing.min(rest.len()));
            self.partial.extend_from_slice(taken);
            rest = behind;
        }
        if message_length(&self.partial)?.is_some_and(|length| length == self.partial.len()) {
            let message = std::mem::take(&mut self.partial);
            self.handle_whole(&message, bridge, out)?;
            self.partial = message;
            self.partial.clear();
        }
        Ok(rest)
    }

    fn handle_whole(
        &mut self,
        message: &[u8],
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        self.handle(message, bridge, out)?;
        while self.is_replying() {
            self.go_on(bridge, out);
        }
        Ok(())
    }

    fn handle(
        &mut self,
        bytes: &[u8],
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        let kind = bytes[1];
        let xid = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let Some(version) = self.version else {
            return self.greet(kind, xid, bytes, out);
        };
        let message = Message { header: Header { version, kind, xid }, bytes };
        if bytes[0] != version.number() && kind != HELLO {
            // The error message uses the version of the refused request, if the switch knows that
            // version.
            let version = Version::from_number(bytes[0]).unwrap_or(version);
            let code = Code::of(Refusal::BadVersion, Subject::Other, version);
            encode_error(version, xid, code, bytes, out);
            return Ok(());
        }
        if let Err(refusal) = self.dispatch(&message, bridge, out) {
            let code = Code::of(refusal, subject(kind, bytes, version), version);
            encode_error(version, xid, code, bytes, out);
        }
        Ok(())
    }

    fn greet(
        &mut self,
        kind: u8,
        xid: u32,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        if kind != HELLO {
            return Err(ProtocolError::NoHello);
        }
        self.version = negotiate(&self.versions, bytes);
        if let Some(version) = self.version {
            self.masks = Masks::usual(version);
        } else {
            let version = self.versions.iter().max().copied().unwrap_or(Version::V10);
            encode_error(version, xid, Code::Standard(0, 0), bytes, out);
            return Err(ProtocolError::NoCommonVersion);
        }
        Ok(())
    }
}

/// Returns the length in a message's header, or `None` if the length has not arrived yet.
fn message_length(bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
    let Some(header) = bytes.first_chunk::<8>() else { return Ok(None) };
    let length = u16::from_be_bytes([header[2], header[3]]);
    if length < 8 {
        return Err(ProtocolError::ShortMessage(length));
    }
    Ok(Some(length.into()))
}

fn subject(kind: u8, bytes: &[u8], version: Version) -> Subject {
    let nicira = bytes.get(8..16).is_some_and(|head| head[..4] == NICIRA.to_be_bytes());
    match (kind, version) {
        (14, _) => Subject::Flow,
        (15, Version::V10) => Subject::Port,
        (15, _) => Subject::Group,
        (16, version) if version > Version::V10 => Subject::Port,
        (17, version) if version > Version::V10 => Subject::Table,
        (29, _) => Subject::Meter,
        (EXPERIMENTER, _) if nicira && bytes[15] == 13 => Subject::Flow,
        (EXPERIMENTER, _) if nicira && bytes[15] == 31 => Subject::Group,
        _ => Subject::Other,
    }
}

/// The default number of bytes of a packet that a controller gets.
const USUAL_MISS_SEND_LEN: u16 = 128;

const HELLO: u8 = 0;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
