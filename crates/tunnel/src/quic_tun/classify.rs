//! Recognises SPICE and VNC by the first bytes of a connection. Pure.

use serde::Serialize;

/// The protocol of a connection and its properties, as far as the bytes so far determine them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Classified {
    pub protocol: Option<Protocol>,
    /// Whether further bytes cannot change the classification.
    pub is_final: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Protocol {
    Spice(SpiceProperties),
    Vnc(VncProperties),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpiceProperties {
    pub version: String,
    pub session_id: String,
    pub channel_type: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_name: String,
    #[serde(rename = "serverUUID", skip_serializing_if = "String::is_empty")]
    pub server_uuid: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VncProperties {
    /// The version that the client chose, or the server's until then.
    pub version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub security_type: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub desktop_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<u16>,
}

impl Protocol {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Spice(_) => "spice",
            Self::Vnc(_) => "vnc",
        }
    }
}

/// Maximum number of bytes of each direction that [`classify`] needs.
pub const HEAD: usize = 2048;

/// Classifies a connection by the first bytes of each direction.
pub fn classify(client: &[u8], server: &[u8]) -> Classified {
    let is_full = client.len() >= HEAD && server.len() >= HEAD;
    // In SPICE the client sends first, in VNC the server.
    let verdict = match (begins(client, REDQ), begins(server, RFB)) {
        (Some(true), _) => spice(client, server),
        (_, Some(true)) if begins(client, RFB) != Some(false) => vnc(client, server),
        (None, _) if begins(server, RFB) != Some(false) => Classified::default(),
        _ => Classified { protocol: None, is_final: true },
    };
    Classified { is_final: verdict.is_final || is_full, ..verdict }
}

/// Whether the bytes begin with `magic`; `None` if there are too few bytes.
fn begins(bytes: &[u8], magic: &[u8]) -> Option<bool> {
    match bytes.get(..magic.len()) {
        Some(start) => Some(start == magic),
        None if magic.starts_with(bytes) => None,
        None => Some(false),
    }
}

/// Classifies a SPICE connection: <https://www.spice-space.org/spice-protocol.html>
fn spice(client: &[u8], server: &[u8]) -> Classified {
    // The first 21 bytes hold magic, major, minor, size, connection ID and channel type.
    let Some(link) = client.get(..21) else { return Classified::default() };
    let mut properties = SpiceProperties {
        version: format!("{:x}.{:x}", link[4], link[8]),
        session_id: hex(&link[16..20]),
        channel_type: channel(link[20]),
        ..SpiceProperties::default()
    };
    let is_final = link[20] != MAIN || main_channel(&mut properties, server);
    Classified { protocol: Some(Protocol::Spice(properties)), is_final }
}

/// Reads the session, name and UUID that the server sends in the main channel. Returns whether all
/// three are known.
fn main_channel(properties: &mut SpiceProperties, server: &[u8]) -> bool {
    let Some(size) = little_endian(server, 12) else { return false };
    // Read the length of the reply, then the result of the SPICE link.
    let Some(mut at) = size.checked_add(16) else { return true };
    match little_endian(server, at) {
        None => return false,
        Some(LINK_OK) => at += 4,
        Some(_) => return true,
    }
    let mut missing = [INIT, NAME, UUID].to_vec();
    while !missing.is_empty() {
        let Some(&[low, high]) = server.get(at..).and_then(|rest| rest.first_chunk()) else {
            return false;
        };
        let Some(size) = little_endian(server, at + 2) else { return false };
        let Some(end) = (at + 6).checked_add(size) else { return true };
        let Some(body) = server.get(at + 6..end) else { return end > HEAD };
        let kind = u16::from_le_bytes([low, high]);
        match kind {
            INIT => properties.session_id = hex(body.get(..4).unwrap_or(body)),
            NAME => {
                let length = little_endian(body, 0).unwrap_or(0);
                let name = body.get(4..).unwrap_or_default();
                let name = &name[..length.min(name.len())];
                let name = name.strip_suffix(&[0]).unwrap_or(name);
                properties.server_name = String::from_utf8_lossy(name).into_owned();
            }
            UUID => properties.server_uuid = body.first_chunk().map(uuid).unwrap_or_default(),
            _ => {}
        }
        missing.retain(|wanted| *wanted != kind);
        at = end;
    }
    true
}

/// Classifies a VNC connection (RFC 6143, section 7).
fn vnc(client: &[u8], server: &[u8]) -> Classified {
    let version = |bytes: &[u8]| {
        let line = bytes.get(..12)?;
        let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u16>().ok();
        Some((number(&line[4..7])?, number(&line[8..11])?))
    };
    let Some((mut major, mut minor)) = version(server) else {
        let is_final = server.len() >= 12;
        return Classified { protocol: None, is_final };
    };
    let mut properties = VncProperties::default();
    let chosen = version(client);
    if let Some(chosen) = chosen {
        (major, minor) = chosen;
    }
    properties.version = format!("{major}.{minor}");
    let is_final = chosen.is_some() && vnc_security(&mut properties, minor, client, server);
    Classified { protocol: Some(Protocol::Vnc(properties)), is_final }
}

/// Reads the security type and, if the rest is not encrypted (types `none` and `vnc`), the desktop.
/// Returns whether further bytes cannot change the result.
fn vnc_security(properties: &mut VncProperties, minor: u16, client: &[u8], server: &[u8]) -> bool {
    let number = |at: usize| {
        let bytes = server.get(at..)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes) as usize)
    };
    // Before version 3.7 the server chooses the type.
    let (security, mut at) = if minor < 7 {
        let Some(security) = number(12) else { return false };
        (security, 16)
    } else {
        let Some(&count) = server.get(12) else { return false };
        let Some(&security) = client.get(12) else { return count == 0 };
        (usize::from(security), 13 + usize::from(count))
    };
    properties.security_type = match security {
        0 => return true,
        1 => "none".to_owned(),
        2 => "vnc".to_owned(),
        16 => "tight".to_owned(),
        18 => "tls".to_owned(),
        19 => "vencrypt".to_owned(),
        20 => "sasl".to_owned(),
        other => other.to_string(),
    };
    // With VNC's own authentication, a challenge and its response precede the result.
    let has_result = match security {
        1 => minor >= 8,
        2 => {
            at += 16;
            true
        }
        _ => return true,
    };
    if has_result {
        match number(at) {
            None => return false,
            Some(0) => at += 4,
            Some(_) => return true,
        }
    }
    let Some(init) = server.get(at..at + 24) else { return false };
    properties.width = Some(u16::from_be_bytes([init[0], init[1]]));
    properties.height = Some(u16::from_be_bytes([init[2], init[3]]));
    let length = u32::from_be_bytes([init[20], init[21], init[22], init[23]]) as usize;
    let Some(end) = (at + 24).checked_add(length).filter(|end| *end <= HEAD) else { return true };
    let Some(name) = server.get(at + 24..end) else { return false };
    properties.desktop_name = String::from_utf8_lossy(name).into_owned();
    true
}

fn little_endian(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes) as usize)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Formats a UUID as text (RFC 9562).
pub(super) fn uuid(bytes: &[u8; 16]) -> String {
    let text = hex(bytes);
    let part = |from, to| &text[from..to];
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

fn channel(number: u8) -> &'static str {
    match number {
        MAIN => "main",
        2 => "display",
        3 => "inputs",
        4 => "cursor",
        5 => "playback",
        6 => "record",
        7 => "tunnel",
        8 => "smartcard",
        9 => "usbredir",
        10 => "port",
        // Keep quic-tun's spelling, because scripts may compare it.
        11 => "webdev",
        _ => "unknow",
    }
}

const REDQ: &[u8] = b"REDQ";
const RFB: &[u8] = b"RFB ";
const MAIN: u8 = 1;
const LINK_OK: usize = 0;
const INIT: u16 = 103;
const NAME: u16 = 113;
const UUID: u16 = 114;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn link(channel: u8) -> Vec<u8> {
        let mut bytes = b"REDQ".to_vec();
        bytes.extend([2, 0, 0, 0, 2, 0, 0, 0, 18, 0, 0, 0]);
        bytes.extend([0xd0, 0x30, 0x6d, 0x75, channel, 0]);
        bytes
    }

    /// Returns the bytes that a SPICE server sends in the main channel: the link's reply and
    /// result, a message that the classifier skips, the session, name and UUID.
    fn main_server() -> Vec<u8> {
        let mut bytes = b"REDQ".to_vec();
        bytes.extend([2, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0]);
        bytes.extend([9; 5]);
        bytes.extend([0; 4]);
        let mut message = |kind: u16, body: &[u8]| {
            bytes.extend(kind.to_le_bytes());
            bytes.extend((body.len() as u32).to_le_bytes());
            bytes.extend(body);
        };
        message(7, &[1, 2, 3]);
        message(INIT, &[0xaa, 0xbb, 0xcc, 0x0d, 0, 0, 0, 0]);
        message(NAME, b"\x05\x00\x00\x00guest\x00");
        message(UUID, &[0x11; 16]);
        bytes
    }

    #[test]
    fn a_spice_connection_shows_its_channel_and_in_the_main_channel_the_servers_name() {
        let usb = classify(&link(9), b"");
        let json = serde_json::to_string(usb.protocol.as_ref().unwrap()).unwrap();
        assert_eq!(json, r#"{"version":"2.2","sessionId":"d0306d75","channelType":"usbredir"}"#);
        assert!(usb.is_final);
        let (client, server) = (link(1), main_server());
        let whole = classify(&client, &server);
        assert_eq!(
            serde_json::to_value(whole.protocol.as_ref().unwrap()).unwrap(),
            serde_json::json!({
                "version": "2.2", "sessionId": "aabbcc0d", "channelType": "main",
                "serverName": "guest", "serverUUID": "11111111-1111-1111-1111-111111111111",
            })
        );
        assert!(whole.is_final);
        for cut in 0..server.len() {
            let part = classify(&client, &server[..cut]);
            assert!(!part.is_final, "{cut}");
            assert_eq!(part.protocol.as_ref().map(Protocol::name), Some("spice"));
        }
        assert_eq!(classify(&client[..20], &server), Classified::default());
    }

    #[test]
    fn a_vnc_connection_shows_version_security_type_and_desktop_name() {
        let mut server = b"RFB 003.008\n\x02\x01\x02".to_vec();
        server.extend([0; 4]);
        server.extend([4, 0, 3, 0]);
        server.extend([0; 16]);
        server.extend([0, 0, 0, 4]);
        server.extend(b"desk");
        let client = b"RFB 003.008\n\x01\x01";
        let properties = VncProperties {
            version: "3.8".to_owned(),
            security_type: "none".to_owned(),
            desktop_name: "desk".to_owned(),
            width: Some(1024),
            height: Some(768),
        };
        let whole = classify(client, &server);
        assert_eq!(whole.protocol, Some(Protocol::Vnc(properties.clone())));
        assert!(whole.is_final);
        // VNC's own authentication has a challenge before the result.
        server.splice(15..15, [7; 16]);
        let by_password = classify(b"RFB 003.008\n\x02", &server).protocol.unwrap();
        let properties = VncProperties { security_type: "vnc".to_owned(), ..properties };
        assert_eq!(by_password, Protocol::Vnc(properties));
        let early = classify(b"", b"RFB 003.008\n");
        assert_eq!(early.protocol.map(|protocol| protocol.name()), Some("vnc"));
        assert!(!early.is_final);
        let encrypted = classify(b"RFB 003.008\n\x13", b"RFB 003.008\n\x01\x13");
        assert!(encrypted.is_final);
        // In version 3.3 the server chooses the security type.
        let old = classify(b"RFB 003.003\n", b"RFB 003.008\n\x00\x00\x00\x02");
        assert!(matches!(old.protocol, Some(Protocol::Vnc(found)) if found.security_type == "vnc"));
    }

    #[test]
    fn an_unknown_protocol_is_classified_at_the_first_different_byte() {
        for (client, server, is_final) in [
            (&b"GET / HTTP/1.1"[..], &b""[..], true),
            (b"", b"SSH-2.0-x", true),
            (b"RE", b"", false),
            (b"REDX", b"", true),
            (b"", b"RFB", false),
            (b"SSH-", b"RFB 003.008\n", true),
            (b"", b"", false),
            (b"", b"RFB x03.008\n", true),
        ] {
            let expected = Classified { protocol: None, is_final };
            assert_eq!(classify(client, server), expected, "{client:?} {server:?}");
        }
    }

    proptest! {
        #[test]
        fn classifying_arbitrary_bytes_causes_no_panic(
            mut client: Vec<u8>, mut server in proptest::collection::vec(any::<u8>(), 0..300), kind in 0..3
        ) {
            match kind {
                0 => client.splice(0..0, link(1)).for_each(drop),
                1 => {
                    client.splice(0..0, *b"RFB 003.008\n").for_each(drop);
                    server.splice(0..0, *b"RFB 003.008\n").for_each(drop);
                }
                _ => {}
            }
            let _ = classify(&client, &server);
        }
    }
}
