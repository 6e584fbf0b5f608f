use flow::request::Refusal;

use super::Version;
use super::message::{Header, begin_message, end_message};
use super::octets::{Put, Reader};

/// Writes a hello that offers `versions`.
pub(super) fn encode_hello(versions: &[Version], out: &mut Vec<u8>) {
    let highest = versions.iter().max().copied().unwrap_or(Version::V10);
    let start = begin_message(Header { version: highest, kind: 0, xid: 1 }, out);
    out.put_u16(VERSIONS);
    out.put_u16(8);
    out.put_u32(versions.iter().fold(0, |bits, version| bits | 1 << version.number()));
    end_message(start, out);
}

/// Returns the highest common version. A hello without a bitmap offers its header's version and all
/// lower versions.
pub(super) fn negotiate(ours: &[Version], hello: &[u8]) -> Option<Version> {
    let offered = bitmap(hello).unwrap_or_else(|| {
        let highest = hello.first().copied().unwrap_or_default().min(30);
        (1 << (u32::from(highest) + 1)) - 1
    });
    ours.iter().copied().filter(|version| offered & 1 << version.number() != 0).max()
}

fn bitmap(hello: &[u8]) -> Option<u32> {
    let mut reader = Reader::new(hello.get(8..)?, Refusal::BadLength);
    while !reader.is_empty() {
        let mut header = reader;
        let kind = header.u16().ok()?;
        let length = usize::from(header.u16().ok()?);
        if length < 4 {
            return None;
        }
        reader.skip(length.next_multiple_of(8).min(reader.len())).ok()?;
        if kind == VERSIONS && length >= 8 {
            return header.u32().ok().filter(|bits| *bits != 0);
        }
    }
    None
}

const VERSIONS: u16 = 1;
