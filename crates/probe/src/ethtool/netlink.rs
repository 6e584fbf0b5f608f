use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use units::Rate;

use super::Link;
use super::modes::fastest;
use crate::ProbeError;

/// Reads the link by ETHTOOL_MSG_LINKMODES_GET (Documentation/networking/ethtool-netlink.rst).
pub(super) fn link(interface: &str) -> Result<Link, ProbeError> {
    let family = family()?;
    let mut header = attribute(HEADER_NAME, &with_zero(interface));
    header.extend(attribute(HEADER_FLAGS, &COMPACT_BITSETS.to_ne_bytes()));
    let request = attribute(LINKMODES_HEADER | NESTED, &header);
    let answer = exchange(family, LINKMODES_GET, &request)?;
    Ok(parse(&answer))
}

fn parse(attributes: &[u8]) -> Link {
    let mut link = Link::default();
    for (kind, value) in Attributes(attributes) {
        match kind {
            LINKMODES_AUTONEG => link.negotiates = value.first().map(|value| *value == 1),
            LINKMODES_OURS => {
                let set = bitset(value);
                // The mask holds the supported modes, the value the advertised modes.
                link.supported_most = fastest(&set.mask);
                link.advertised_most = fastest(&set.value);
            }
            LINKMODES_PEER => link.peer_most = fastest(&bitset(value).value),
            LINKMODES_SPEED => {
                let speed = word(value).filter(|speed| *speed != 0 && *speed != u32::MAX);
                link.speed = speed.map(|speed| Rate::from_mbit(speed.into()));
            }
            LINKMODES_DUPLEX => {
                link.full_duplex = match value.first() {
                    Some(0) => Some(false),
                    Some(1) => Some(true),
                    _ => None,
                };
            }
            _ => {}
        }
    }
    // Virtual devices report "off" and have no modes.
    link.negotiates = link.negotiates.filter(|_| link.supported_most.is_some());
    link
}

#[derive(Debug, Default)]
struct Bitset {
    value: Vec<u32>,
    mask: Vec<u32>,
}

fn bitset(attributes: &[u8]) -> Bitset {
    let words = |bytes: &[u8]| bytes.chunks_exact(4).filter_map(word).collect();
    let mut set = Bitset::default();
    for (kind, value) in Attributes(attributes) {
        match kind {
            BITSET_VALUE => set.value = words(value),
            BITSET_MASK => set.mask = words(value),
            _ => {}
        }
    }
    set
}

/// Returns the number of the generic netlink family "ethtool", which the kernel assigns.
fn family() -> Result<u16, ProbeError> {
    let request = attribute(CONTROL_FAMILY_NAME, &with_zero("ethtool"));
    let answer = exchange(GENERIC_CONTROL, CONTROL_GETFAMILY, &request)?;
    Attributes(&answer)
        .find(|(kind, _)| *kind == CONTROL_FAMILY_ID)
        .and_then(|(_, value)| Some(u16::from_ne_bytes(value.get(..2)?.try_into().ok()?)))
        .ok_or_else(|| ProbeError::malformed(WHAT, "no family number"))
}

/// Sends a request of generic netlink, and returns the attributes of the reply.
fn exchange(family: u16, command: u8, attributes: &[u8]) -> Result<Vec<u8>, ProbeError> {
    let failed = |source| ProbeError::Kernel { what: WHAT, source };
    let socket = Socket::new(NETLINK_GENERIC).map_err(failed)?;
    socket.connect(&SocketAddr::new(0, 0)).map_err(failed)?;
    let length = (HEADERS + attributes.len()) as u32;
    let mut message = Vec::with_capacity(length as usize);
    message.extend(length.to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    socket.send(&message, 0).map_err(failed)?;
    let mut answer = Vec::with_capacity(LONGEST);
    loop {
        answer.clear();
        match socket.recv(&mut answer, 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => {
                received.map_err(failed)?;
                break;
            }
        }
    }
    payload(&answer)
}

fn payload(answer: &[u8]) -> Result<Vec<u8>, ProbeError> {
    let short = || ProbeError::malformed(WHAT, "a short answer");
    let length = answer.get(..4).and_then(word).ok_or_else(short)? as usize;
    let message = answer.get(..length).ok_or_else(short)?;
    let kind = message.get(4..6).and_then(|two| Some(u16::from_ne_bytes(two.try_into().ok()?)));
    if kind == Some(NLMSG_ERROR) {
        let code = message.get(16..20).and_then(word).ok_or_else(short)? as i32;
        let source = io::Error::from_raw_os_error(code.saturating_neg());
        return Err(match source.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP) => ProbeError::NotSupported {
                feature: WHAT,
                hint: "Linux 5.6 has it, if built with CONFIG_ETHTOOL_NETLINK",
            },
            _ => ProbeError::Kernel { what: WHAT, source },
        });
    }
    Ok(message.get(HEADERS..).ok_or_else(short)?.to_vec())
}

/// Iterates over the type and value of each attribute, up to the first malformed attribute.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let half = |at: usize| Some(u16::from_ne_bytes(self.0.get(at..at + 2)?.try_into().ok()?));
        let (length, kind) = (half(0)? as usize, half(2)? & !(NESTED | 1 << 14));
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn with_zero(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.truncate(libc::IFNAMSIZ * 2);
    bytes.push(0);
    bytes
}

fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

const WHAT: &str = "link modes by netlink";
const HEADERS: usize = 16 + 4;
const LONGEST: usize = 32 * 1024;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NESTED: u16 = 1 << 15;
/// include/uapi/linux/genetlink.h: GENL_ID_CTRL, CTRL_CMD_GETFAMILY.
const GENERIC_CONTROL: u16 = 16;
const CONTROL_GETFAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
/// include/uapi/linux/ethtool_netlink.h.
const LINKMODES_GET: u8 = 4;
const HEADER_NAME: u16 = 2;
const HEADER_FLAGS: u16 = 3;
const COMPACT_BITSETS: u32 = 1;
const LINKMODES_HEADER: u16 = 1;
const LINKMODES_AUTONEG: u16 = 2;
const LINKMODES_OURS: u16 = 3;
const LINKMODES_PEER: u16 = 4;
const LINKMODES_SPEED: u16 = 5;
const LINKMODES_DUPLEX: u16 = 6;
const BITSET_VALUE: u16 = 4;
const BITSET_MASK: u16 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn link_modes_of_a_netlink_reply_are_parsed() {
        let ours = [
            attribute(BITSET_VALUE, &(1u32 << 3).to_ne_bytes()),
            attribute(BITSET_MASK, &(1u32 << 5 | 1 << 3).to_ne_bytes()),
        ];
        let answer = [
            attribute(LINKMODES_AUTONEG, &[1]),
            attribute(LINKMODES_OURS | NESTED, &ours.concat()),
            attribute(LINKMODES_SPEED, &100u32.to_ne_bytes()),
            attribute(LINKMODES_DUPLEX, &[0]),
        ];
        let expected = Link {
            speed: Some(Rate::from_mbit(100)),
            full_duplex: Some(false),
            negotiates: Some(true),
            supported_most: Some(Rate::from_mbit(1_000)),
            advertised_most: Some(Rate::from_mbit(100)),
            peer_most: None,
        };
        assert_eq!(parse(&answer.concat()), expected);
    }

    #[test]
    fn the_kernel_replies_to_a_link_mode_request_for_loopback() {
        match link("lo") {
            Ok(link) => assert_eq!(link.supported_most, None),
            Err(error) => assert!(!error.to_string().contains("unexpected form"), "{error}"),
        }
    }

    proptest! {
        #[test]
        fn the_parser_of_netlink_replies_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (parse(&bytes), payload(&bytes));
        }
    }
}
