use flow::request::Refusal;

use super::Version;
use super::octets::{Put, Reader};

/// The header of a message, without its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: Version,
    pub(super) kind: u8,
    pub(super) xid: u32,
}

/// A complete message from the peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) header: Header,
    /// The bytes of the whole message, including its header.
    pub(super) bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// Returns a reader of the bytes after the header.
    pub(super) fn body(&self) -> Reader<'a> {
        Reader::new(self.bytes.get(8..).unwrap_or_default(), Refusal::BadLength)
    }

    /// Returns the header of a reply.
    pub(super) fn reply(&self, kind: u8) -> Header {
        Header { kind, ..self.header }
    }
}

/// Writes a header; [`end_message`] sets the message's length.
pub(super) fn begin_message(header: Header, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.put_u8(header.version.number());
    out.put_u8(header.kind);
    out.put_u16(0);
    out.put_u32(header.xid);
    start
}

pub(super) fn end_message(start: usize, out: &mut Vec<u8>) {
    out.set_u16(start + 2, (out.len() - start) as u16);
}

/// Writes the header of a Nicira message.
pub(super) fn begin_nicira_message(
    version: Version,
    xid: u32,
    subtype: u32,
    out: &mut Vec<u8>,
) -> usize {
    begin_experimenter(version, xid, NICIRA, subtype, out)
}

pub(super) fn begin_experimenter(
    version: Version,
    xid: u32,
    experimenter: u32,
    subtype: u32,
    out: &mut Vec<u8>,
) -> usize {
    let start = begin_message(Header { version, kind: EXPERIMENTER, xid }, out);
    out.put_u32(experimenter);
    out.put_u32(subtype);
    start
}

pub(super) const EXPERIMENTER: u8 = 4;
pub(super) const NICIRA: u32 = 0x0000_2320;
pub(super) const ONF: u32 = 0x4f4e_4600;
