//! Prints the CAQM tags on an interface, or in a capture: one line for each tagged packet.

use crate::{EmuError, Endpoint, EndpointKind};
use host::Namespace;
use port::{Frame, PacketOptions, PacketPort, Port};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use units::Time;
use wire::caqm::{Info, Meaning, offer};
use wire::headers::{MAC_HEADER, TAG, word};
use wire::pcap::{PcapError, Records};
use wire::{Layout, Network, Transport};

/// Captures the frames of one interface in both directions. Super-packets are cut into segments.
#[derive(Debug)]
pub struct TagCapture {
    port: PacketPort,
    batch: Vec<Frame>,
}

impl TagCapture {
    pub fn open(end: &Endpoint) -> Result<Self, EmuError> {
        let refused = |problem: &str| EmuError::Refused(format!("{end} {problem}"));
        if end.kind == EndpointKind::Tap {
            return Err(refused("is a TAP device: name an interface that exists"));
        }
        let failed = |source| EmuError::Host { end: end.to_string(), source };
        let namespace = match &end.namespace {
            Some(name) => Namespace::named(name),
            None => Namespace::current(),
        };
        let options =
            PacketOptions { outgoing: true, promiscuous: false, ..PacketOptions::default() };
        let opened = namespace
            .and_then(|inside| inside.run(|| Ok(PacketPort::open_with(&end.interface, options))))
            .map_err(failed)?;
        let port = opened.map_err(|source| EmuError::Attach { end: end.to_string(), source })?;
        Ok(Self { port, batch: Vec::new() })
    }

    /// Returns the frames captured since the last call, with their times.
    pub fn take(&mut self) -> Result<impl Iterator<Item = (Time, Vec<u8>)> + '_, EmuError> {
        let name = self.port.interface().name.clone();
        self.port
            .receive(&mut self.batch, MOST_AT_ONCE)
            .map_err(|source| EmuError::Attach { end: name, source })?;
        Ok(self.batch.drain(..).map(|frame| (frame.arrival(), frame.bytes().to_vec())))
    }
}

/// Parses the frames of a capture in libpcap's format.
pub fn of_capture(bytes: &[u8]) -> Result<Vec<(Time, Vec<u8>)>, EmuError> {
    let refuse = |error: PcapError| EmuError::Refused(format!("the capture {error}"));
    let frames = Records::of(bytes).map_err(refuse)?.map(|record| -> Result<_, EmuError> {
        let record = record.map_err(refuse)?;
        Ok((Time::from_nanos(record.time_ns), record.frame.to_vec()))
    });
    frames.collect()
}

/// Formats the line of a frame; `None` for a frame without a CAQM tag.
///
/// ```text
/// 0.001204 10.0.0.1:33740 > 10.0.0.2:5803 data 1448 seq 1:1449, tag 0x88a8 0x0580: cc_type 0 en 1
/// C 0 I 1 hint 128, asks for 1024 bytes
/// ```
pub fn line(when: Time, frame: &[u8], tpid: u16, units: (u64, u64)) -> Option<String> {
    let info = wire::caqm::read(frame, tpid)?;
    let at = place(frame, tpid)?;
    let mut plain = frame.to_vec();
    plain.drain(at..at + TAG);
    let mut text = format!("{} ", seconds(when));
    text.push_str(&packet(&plain).unwrap_or_else(|| format!("{} bytes", plain.len())));
    let mut vlans = (MAC_HEADER - 2..at).step_by(TAG);
    while let Some((ether_type, tci)) =
        vlans.next().and_then(|at| Some((word(frame, at)?, word(frame, at + 2)?)))
    {
        let _ = write!(text, ", vlan {ether_type:#06x} {}", tci & 0x0fff);
    }
    let _ = write!(text, ", tag {tpid:#06x} {}", describe(info, units));
    Some(text)
}

/// A SYN or SYN-ACK, with its reserved bits and its offer of CAQM.
#[derive(Debug)]
struct Handshake {
    from: SocketAddr,
    to: SocketAddr,
    is_answer: bool,
    /// The four reserved bits of the TCP header. Bit 0 is also a bit of accurate ECN.
    reserved: u8,
    has_ecn: bool,
    option: Option<Info>,
}

impl Handshake {
    /// Parses a frame; `None` if the frame is neither SYN nor SYN-ACK.
    fn of(frame: &[u8], tpid: u16) -> Option<Self> {
        let layout = Layout::parse(frame)?;
        let Transport::Tcp { .. } = layout.transport else { return None };
        let tcp = layout.transport_offset;
        let (length, flags) = (*frame.get(tcp + 12)?, *frame.get(tcp + 13)?);
        let (from, to) = ends(frame, &layout)?;
        let of_syn = Self {
            from,
            to,
            is_answer: flags & ACK != 0,
            reserved: length & 0x0f,
            has_ecn: flags & ECN != 0,
            option: offer::read(frame, tpid),
        };
        (flags & (SYN | RST) == SYN).then_some(of_syn)
    }

    fn kind(&self) -> &'static str {
        if self.is_answer { "SYN-ACK" } else { "SYN" }
    }

    fn meaning(&self) -> &'static str {
        let bits = match self.is_answer {
            true => self.reserved == SERVER_AGREES,
            false => self.reserved == CLIENT_OFFERS && !self.has_ecn,
        };
        match (self.is_answer, self.option.is_some(), bits) {
            (_, false, false) => "no CAQM",
            (false, true, true) => "offers CAQM by option and bits",
            (false, true, false) => "offers CAQM by option",
            (false, false, true) => "offers CAQM by bits",
            // An end that received both the option and the bits agrees by the option.
            (true, true, _) => "agrees to CAQM by option",
            (true, false, true) => "agrees to CAQM by bits",
        }
    }
}

/// Formats the line of a SYN or SYN-ACK; `None` for other frames.
///
/// ```text
/// 0.000000 10.0.0.1:33740 > 10.0.0.2:5803 SYN, reserved bits 0001, no option: offers CAQM by bits
/// ```
pub fn handshake(when: Time, frame: &[u8], tpid: u16) -> Option<String> {
    let shake = Handshake::of(frame, tpid)?;
    let option = match shake.option {
        Some(info) => format!("option {:#06x}", info.bits()),
        None => "no option".to_owned(),
    };
    Some(format!(
        "{} {} > {} {}, reserved bits {:04b}, {option}: {}",
        seconds(when),
        shake.from,
        shake.to,
        shake.kind(),
        shake.reserved,
        shake.meaning()
    ))
}

/// Returns a SYN or SYN-ACK as JSON; `None` for other frames.
pub fn handshake_document(when: Time, frame: &[u8], tpid: u16) -> Option<Value> {
    let shake = Handshake::of(frame, tpid)?;
    Some(json!({
        "time_s": when.nanos() as f64 / 1e9,
        "packet": format!("{} > {} {}", shake.from, shake.to, shake.kind()),
        "reserved_bits": shake.reserved,
        "option": shake.option.map(Info::bits),
        "meaning": shake.meaning(),
    }))
}

fn seconds(when: Time) -> String {
    let nanos = when.nanos();
    format!("{}.{:06}", nanos / 1_000_000_000, nanos % 1_000_000_000 / 1000)
}

/// Formats the bytes up to the end of the transport header as a hex dump.
pub fn dump(frame: &[u8]) -> String {
    let mut text = String::new();
    for (line, bytes) in frame[..frame.len().min(SHOWN)].chunks(16).enumerate() {
        let _ = write!(text, "    {:04x} ", line * 16);
        bytes.iter().for_each(|byte| {
            let _ = write!(text, " {byte:02x}");
        });
        text.push('\n');
    }
    text
}

/// Returns the tag of a frame as JSON; `None` for a frame without a CAQM tag.
pub fn document(when: Time, frame: &[u8], tpid: u16, units: (u64, u64)) -> Option<Value> {
    let info = wire::caqm::read(frame, tpid)?;
    let at = place(frame, tpid)?;
    let mut plain = frame.to_vec();
    plain.drain(at..at + TAG);
    let bits = info.bits();
    let bit = |number: u32| bits >> number & 1;
    Some(json!({
        "time_s": when.nanos() as f64 / 1e9,
        "packet": packet(&plain),
        "bytes": plain.len(),
        "tpid": format!("{tpid:#06x}"),
        "bits": bits,
        "cc_type": info.kind(),
        "last_hop": bit(12),
        "en": bit(10),
        "c": bit(9),
        "i": bit(8),
        "hint": bits & 0xff,
        "meaning": meaning(info, units),
    }))
}

/// Describes the tag: the names of its bits, and its meaning.
fn describe(info: Info, units: (u64, u64)) -> String {
    let bits = info.bits();
    let bit = |number: u32| bits >> number & 1;
    format!(
        "{bits:#06x}: cc_type {} last_hop {} en {} C {} I {} hint {}, {}",
        info.kind(),
        bit(12),
        bit(10),
        bit(9),
        bit(8),
        bits & 0xff,
        meaning(info, units),
    )
}

fn meaning(info: Info, (data_hint_unit, ack_hint_unit): (u64, u64)) -> String {
    match (info.is_request(), info.meaning()) {
        _ if info.is_go_ahead() => "reports a CAQM port on the return path".to_owned(),
        (true, Meaning::More(hint)) => {
            format!("asks for {} bytes", u64::from(hint) * data_hint_unit)
        }
        (true, Meaning::Fewer(_)) => "refused".to_owned(),
        (true, Meaning::Nothing) => "asks for nothing more".to_owned(),
        (false, Meaning::More(hint)) => format!("grants {} bytes", u64::from(hint) * ack_hint_unit),
        (false, Meaning::Fewer(hint)) => format!("takes {} bytes", u64::from(hint) * ack_hint_unit),
        (false, Meaning::Nothing) => "grants nothing".to_owned(),
    }
}

fn place(frame: &[u8], tpid: u16) -> Option<usize> {
    let mut at = MAC_HEADER - 2;
    while word(frame, at)? != tpid {
        at += TAG;
    }
    Some(at)
}

fn packet(frame: &[u8]) -> Option<String> {
    let layout = Layout::parse(frame)?;
    if let Network::Other(kind) = layout.network {
        return Some(format!("EtherType {kind:#06x}"));
    }
    let Transport::Tcp { header_len } = layout.transport else {
        let (from, to) = hosts(frame, &layout)?;
        return Some(format!("{from} > {to} {:?}", layout.transport));
    };
    let tcp = layout.transport_offset;
    let long = |at: usize| Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let (from, to) = ends(frame, &layout)?;
    let payload = layout.end.saturating_sub(tcp + header_len);
    let (seq, ack) = (long(tcp + 4)?, long(tcp + 8)?);
    Some(match payload {
        0 => format!("{from} > {to} ack {ack}"),
        _ => format!("{from} > {to} data {payload} seq {seq}:{}", seq.wrapping_add(payload as u32)),
    })
}

/// Returns the IP addresses of source and destination.
fn hosts(frame: &[u8], layout: &Layout) -> Option<(IpAddr, IpAddr)> {
    let ip = layout.network_offset;
    let four = |at: usize| Some(Ipv4Addr::from(*frame.get(at..)?.first_chunk::<4>()?).into());
    let six = |at: usize| Some(Ipv6Addr::from(*frame.get(at..)?.first_chunk::<16>()?).into());
    match layout.network {
        Network::Ipv4 => Some((four(ip + 12)?, four(ip + 16)?)),
        Network::Ipv6 => Some((six(ip + 8)?, six(ip + 24)?)),
        Network::Other(_) => None,
    }
}

/// Returns the addresses and TCP ports of source and destination.
fn ends(frame: &[u8], layout: &Layout) -> Option<(SocketAddr, SocketAddr)> {
    let ((from, to), tcp) = (hosts(frame, layout)?, layout.transport_offset);
    let port = |at: usize| word(frame, tcp + at);
    Some((SocketAddr::new(from, port(0)?), SocketAddr::new(to, port(2)?)))
}

const MOST_AT_ONCE: usize = 256;
/// The reserved bits with which the client's SYN offers CAQM, and the reserved bits with which the
/// server's SYN-ACK agrees.
const CLIENT_OFFERS: u8 = 1;
const SERVER_AGREES: u8 = 2;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// ECE and CWR. Together with these bits, reserved bit 0 belongs to accurate ECN (RFC 9768).
const ECN: u8 = 0xc0;
/// Maximum number of bytes in a dump: the headers of Ethernet, a tag, IPv6 and TCP with options.
const SHOWN: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a frame: addresses, these tags, then TCP over IPv4 with a payload of this size.
    fn frame(tags: &[u16], payload: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(tags.iter().flat_map(|word| word.to_be_bytes()));
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((40 + payload as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame
            .extend([0x16, 0xa9, 0x00, 0x50, 0, 0, 0, 1, 0, 0, 0, 7, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        frame.resize(frame.len() + payload, 0);
        frame
    }

    #[test]
    fn caqm_tags_of_data_and_acknowledgements_are_decoded_bit_by_bit() {
        let described = |tags: &[u16], payload| {
            line(Time::from_nanos(1_500_000), &frame(tags, payload), 0x88a8, (8, 64))
        };
        assert_eq!(
            described(&[0x88a8, 0x0580], 1448).unwrap(),
            "0.001500 10.0.0.1:5801 > 10.0.0.2:80 data 1448 seq 1:1449, tag 0x88a8 0x0580: cc_type 0 last_hop 0 \
             en 1 C 0 I 1 hint 128, asks for 1024 bytes"
        );
        let answer = described(&[0x8100, 5, 0x88a8, 0x1203], 0).unwrap();
        assert!(answer.contains("ack 7, vlan 0x8100 5, tag"), "{answer}");
        assert!(answer.ends_with("last_hop 1 en 0 C 1 I 0 hint 3, takes 192 bytes"), "{answer}");
        for (bits, meaning) in [
            (0x0700, "reports a CAQM port on the return path"),
            (0x0608, "refused"),
            (0x0400, "asks for nothing more"),
            (0x0300, "reports a CAQM port on the return path"),
            (0x0000, "grants nothing"),
            (0x0102, "grants 128 bytes"),
        ] {
            assert!(described(&[0x88a8, bits], 1).unwrap().ends_with(meaning), "{bits:#06x}");
        }
        assert_eq!(described(&[], 100), None);
        let tagged = frame(&[0x88a8, 0x0580], 1448);
        let document = document(Time::from_nanos(1_500_000), &tagged, 0x88a8, (8, 64)).unwrap();
        assert_eq!(document["packet"], "10.0.0.1:5801 > 10.0.0.2:80 data 1448 seq 1:1449");
        assert_eq!((&document["hint"], &document["i"]), (&json!(128), &json!(1)));
        assert_eq!(document["meaning"], "asks for 1024 bytes");
    }

    /// Changes a frame of [`frame`] without tags to a segment with these flags and reserved bits,
    /// and appends these options.
    fn syn(flags: u8, reserved: u8, options: &[u8]) -> Vec<u8> {
        let mut frame = frame(&[], 0);
        frame[17] += options.len() as u8;
        frame[14 + 20 + 12] = (5 + options.len() as u8 / 4) << 4 | reserved;
        frame[14 + 20 + 13] = flags;
        frame.extend(options);
        frame
    }

    #[test]
    fn handshakes_show_their_reserved_bits_and_options() {
        let option = [254, 10, b'C', b'A', b'Q', b'M', 0x88, 0xa8, 0x04, 0, 1, 1];
        let told = |frame: &[u8]| handshake(Time::from_nanos(1_500_000), frame, 0x88a8);
        assert_eq!(
            told(&syn(SYN, 1, &[])).unwrap(),
            "0.001500 10.0.0.1:5801 > 10.0.0.2:80 SYN, reserved bits 0001, no option: offers CAQM by bits"
        );
        for (frame, expected) in [
            (syn(SYN, 0, &[]), "SYN, reserved bits 0000, no option: no CAQM"),
            (syn(SYN | ECN, 1, &[]), "SYN, reserved bits 0001, no option: no CAQM"),
            (syn(SYN, 0, &option), "SYN, reserved bits 0000, option 0x0400: offers CAQM by option"),
            (syn(SYN, 1, &option), "option 0x0400: offers CAQM by option and bits"),
            (
                syn(SYN | ACK, 2, &[]),
                "SYN-ACK, reserved bits 0010, no option: agrees to CAQM by bits",
            ),
            (syn(SYN | ACK, 1, &[]), "SYN-ACK, reserved bits 0001, no option: no CAQM"),
            (syn(SYN | ACK, 0, &option), "agrees to CAQM by option"),
        ] {
            let told = told(&frame).unwrap();
            assert!(told.ends_with(expected), "{told}");
            for length in 0..frame.len() {
                let _ = told_of_cut(&frame[..length]);
            }
        }
        for flags in [ACK, RST, SYN | RST] {
            assert_eq!(told(&syn(flags, 1, &[])), None);
        }
        let document = handshake_document(Time::from_nanos(0), &syn(SYN | ACK, 2, &[]), 0x88a8);
        let document = document.unwrap();
        assert_eq!((&document["reserved_bits"], &document["option"]), (&json!(2), &Value::Null));
        assert_eq!(document["packet"], "10.0.0.1:5801 > 10.0.0.2:80 SYN-ACK");
    }

    fn told_of_cut(frame: &[u8]) -> Option<String> {
        handshake(Time::from_nanos(0), frame, 0x88a8)
    }

    #[test]
    fn a_capture_is_read_completely_or_reported_as_broken() {
        let frame = frame(&[0x88a8, 0x0580], 10);
        let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([0, 0, 1, 0, 1, 0, 0, 0]);
        bytes.extend([3, 0, 0, 0, 5, 0, 0, 0]);
        bytes.extend((frame.len() as u32).to_le_bytes());
        bytes.extend((frame.len() as u32).to_le_bytes());
        bytes.extend(&frame);
        let read = of_capture(&bytes).unwrap();
        assert_eq!(read, [(Time::from_nanos(3_000_005_000), frame)]);
        for length in 0..bytes.len() {
            // A file header of 24 bytes without packets is an empty capture.
            assert_eq!(of_capture(&bytes[..length]).is_ok(), length == 24, "{length}");
        }
        assert!(of_capture(&[0x0a, 0x0d, 0x0d, 0x0a]).unwrap_err().to_string().contains("editcap"));
    }
}
