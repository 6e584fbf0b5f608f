use units::{Bytes, Span};

use super::Capture;
use super::conversation::{Conversation, End};

/// Returns the built-in capture with this name: the name of a capture of TRex, without the folder.
/// The built-in capture has the protocol, the directions and about the sizes of TRex's capture, but
/// other bytes.
pub(super) fn capture(name: &str) -> Option<Capture> {
    let base = name.strip_suffix(".pcap").unwrap_or(name);
    CAPTURES.iter().find(|(known, _)| *known == base).map(|(_, make)| make())
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CAPTURES.iter().map(|(name, _)| *name)
}

/// Returns a capture of one UDP packet. `size`: the size of the packet's frame on the wire,
/// including the FCS.
pub(crate) fn udp_frame(size: Bytes) -> Capture {
    let payload = (size.count() as usize).saturating_sub(4 + 14 + 20 + 8);
    Conversation::udp(UDP_PORT).sends(End::Client, "", payload).capture()
}

pub(crate) fn tcp_conversation(bytes: usize) -> Capture {
    Conversation::tcp(80).sends(End::Client, "", bytes).capture()
}

type Make = fn() -> Capture;

const CAPTURES: &[(&str, Make)] = &[
    ("udp_64B", || udp_frame(Bytes::new(64))),
    ("udp_594B", || udp_frame(Bytes::new(594))),
    ("udp_1518B", || udp_frame(Bytes::new(1518))),
    ("udp_64B_no_crc", || udp_frame(Bytes::new(64))),
    ("udp_594B_no_crc", || udp_frame(Bytes::new(594))),
    ("udp_1518B_no_crc", || udp_frame(Bytes::new(1518))),
    ("ipv4_udp_9k", || udp_frame(Bytes::new(9018))),
    ("jumbo", || udp_frame(Bytes::new(9018))),
    ("ipv4_udp_9k_burst_10", || packets(10, 9018)),
    ("udp_10_pkts", || packets(10, 64)),
    ("190_packet", || packets(190, 64)),
    ("ipv6", || udp_frame(Bytes::new(64))),
    ("wrong_ip", || udp_frame(Bytes::new(64))),
    ("syn_packet", syn),
    ("asa_exploit", || exchange(161, 120, 120)),
    ("dns", dns),
    ("dns_0", dns),
    ("delay_10_dns_0", dns),
    ("delay_dns_0", dns),
    ("dhcp_req_ack", || exchange(67, 300, 300)),
    ("http_get", http_get),
    ("http_post", http_post),
    ("http_browsing", http_browsing),
    ("https", https),
    ("smtp", smtp),
    ("mail_pop", mail_pop),
    ("exchange", || session(135, 10, 250, 600)),
    ("citrix", || session(1494, 25, 90, 220)),
    ("Oracle", || session(1521, 30, 120, 450)),
    ("oracle", || session(1521, 30, 120, 450)),
    ("citrix_0", || session(1494, 25, 90, 220)),
    ("sip_0", sip),
    ("rtsp_0", rtsp),
    ("rtsp_short", rtsp),
    ("Video_Calls", video),
    ("rtp_160k", || stream(60, 218)),
    ("rtp_250k_rtp_only", || stream(60, 1400)),
    ("rtp_250k_rtp_only_1", || stream(60, 1400)),
    ("rtp_250k_rtp_only_2", || stream(60, 1400)),
    ("Voice_calls_rtp_only", || stream(60, 214)),
    ("delay_10_rtp_250k_short", || stream(20, 1400)),
    ("delay_10_http_get_0", http_get),
    ("delay_10_http_post_0", http_post),
    ("delay_10_http_browsing_0", http_browsing),
    ("delay_10_https_0", https),
    ("delay_10_exchange_0", || session(135, 10, 250, 600)),
    ("delay_10_citrix_0", || session(1494, 25, 90, 220)),
    ("delay_10_oracle_0", || session(1521, 30, 120, 450)),
    ("delay_10_mail_pop_0", mail_pop),
    ("delay_10_mail_pop_1", mail_pop),
    ("delay_10_mail_pop_2", mail_pop),
    ("delay_10_smtp_0", smtp),
    ("delay_10_smtp_1", smtp),
    ("delay_10_smtp_2", smtp),
    ("delay_10_rtp_160k_0", || stream(60, 218)),
    ("delay_10_rtp_160k_1", || stream(60, 218)),
    ("delay_10_rtp_160k_full", || stream(120, 218)),
    ("delay_10_rtp_250k_0_0", || stream(60, 1400)),
    ("delay_10_rtp_250k_1_0", || stream(60, 1400)),
    ("delay_10_rtp_250k_full", || stream(120, 1400)),
    ("delay_10_rtsp_0", rtsp),
    ("delay_10_sip_0", sip),
    ("delay_10_sip_video_call_full", video),
    ("delay_10_sip_video_call_short", sip),
    ("delay_10_video_call_0", video),
    ("delay_10_video_call_rtp_0", || stream(60, 1200)),
    ("_tun_http_get_0_fixed", http_get),
    ("_tun_http_post_0_fixed", http_post),
    ("_tun_http_browsing_0_fixed", http_browsing),
    ("_tun_https_0_fixed", https),
    ("_tun_exchange_0_fixed", || session(135, 10, 250, 600)),
    ("_tun_citrix_0_fixed", || session(1494, 25, 90, 220)),
    ("_tun_oracle_0_fixed", || session(1521, 30, 120, 450)),
    ("_tun_mail_pop_0_fixed", mail_pop),
    ("_tun_mail_pop_1_fixed", mail_pop),
    ("_tun_mail_pop_2_fixed", mail_pop),
    ("_tun_smtp_0_fixed", smtp),
    ("_tun_smtp_1_fixed", smtp),
    ("_tun_smtp_2_fixed", smtp),
    ("_tun_rtsp_0_fixed", rtsp),
];

fn packets(count: usize, size: usize) -> Capture {
    (0..count)
        .fold(Conversation::udp(UDP_PORT), |conversation, _| {
            conversation.sends(End::Client, "", size - 46)
        })
        .capture()
}

fn stream(count: usize, payload: usize) -> Capture {
    (0..count)
        .fold(Conversation::udp(5004), |conversation, _| {
            conversation.sends(End::Client, "\u{7f}", payload).pause(Span::from_millis(10))
        })
        .capture()
}

fn exchange(port: u16, request: usize, response: usize) -> Capture {
    Conversation::udp(port)
        .sends(End::Client, "", request)
        .sends(End::Server, "", response)
        .capture()
}

fn syn() -> Capture {
    let mut capture = Conversation::tcp(80).capture();
    capture.packets.truncate(1);
    capture
}

/// Returns a DNS query for an A record and its response (RFC 1035).
fn dns() -> Capture {
    let mut query = vec![0x12, 0x34, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in ["www", "example", "com"] {
        query.push(label.len() as u8);
        query.extend(label.bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    let mut answer = query.clone();
    answer[2..8].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1]);
    answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0x0e, 0x10, 0, 4, 192, 0, 2, 1]);
    Conversation::udp(53).says(End::Client, &query).says(End::Server, &answer).capture()
}

fn http_get() -> Capture {
    Conversation::tcp(80)
        .sends(End::Client, "GET / HTTP/1.1\r\nHost: www.example.com\r\nAccept: */*\r\n\r\n", 0)
        .sends(
            End::Server,
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 32000\r\n\r\n",
            32_070,
        )
        .capture()
}

fn http_post() -> Capture {
    Conversation::tcp(80)
        .sends(
            End::Client,
            "POST /form HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 32000\r\n\r\n",
            32_075,
        )
        .sends(End::Server, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", 0)
        .capture()
}

fn http_browsing() -> Capture {
    (0..5)
        .fold(Conversation::tcp(80), |conversation, _| {
            conversation
                .sends(End::Client, "GET /page HTTP/1.1\r\nHost: www.example.com\r\n\r\n", 300)
                .sends(End::Server, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", 9_000)
        })
        .capture()
}

/// Returns a conversation with the packet sizes of a TLS session. The bytes are not TLS.
fn https() -> Capture {
    Conversation::tcp(443)
        .sends(End::Client, "\u{16}\u{3}\u{1}", 220)
        .sends(End::Server, "\u{16}\u{3}\u{3}", 3_800)
        .sends(End::Client, "\u{16}\u{3}\u{3}", 340)
        .sends(End::Server, "\u{17}\u{3}\u{3}", 58_000)
        .capture()
}

fn smtp() -> Capture {
    Conversation::tcp(25)
        .sends(End::Server, "220 mail.example.com ESMTP\r\n", 0)
        .sends(End::Client, "EHLO client.example.com\r\n", 0)
        .sends(End::Server, "250 mail.example.com\r\n", 0)
        .sends(End::Client, "MAIL FROM:<a@example.com>\r\n", 0)
        .sends(End::Server, "250 OK\r\n", 0)
        .sends(End::Client, "DATA\r\n", 6_000)
        .sends(End::Server, "250 OK\r\n", 0)
        .capture()
}

fn mail_pop() -> Capture {
    Conversation::tcp(110)
        .sends(End::Server, "+OK ready\r\n", 0)
        .sends(End::Client, "USER a\r\n", 0)
        .sends(End::Server, "+OK\r\n", 0)
        .sends(End::Client, "RETR 1\r\n", 0)
        .sends(End::Server, "+OK\r\n", 8_000)
        .capture()
}

fn session(port: u16, turns: usize, request: usize, response: usize) -> Capture {
    (0..turns)
        .fold(Conversation::tcp(port), |conversation, _| {
            conversation.sends(End::Client, "", request).sends(End::Server, "", response)
        })
        .capture()
}

fn sip() -> Capture {
    Conversation::udp(5060)
        .sends(End::Client, "INVITE sip:b@example.com SIP/2.0\r\n", 700)
        .sends(End::Server, "SIP/2.0 180 Ringing\r\n", 400)
        .sends(End::Server, "SIP/2.0 200 OK\r\n", 700)
        .sends(End::Client, "ACK sip:b@example.com SIP/2.0\r\n", 350)
        .sends(End::Client, "BYE sip:b@example.com SIP/2.0\r\n", 350)
        .sends(End::Server, "SIP/2.0 200 OK\r\n", 350)
        .capture()
}

fn rtsp() -> Capture {
    Conversation::tcp(554)
        .sends(End::Client, "DESCRIBE rtsp://example.com/a RTSP/1.0\r\nCSeq: 1\r\n\r\n", 0)
        .sends(End::Server, "RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n", 600)
        .sends(End::Client, "SETUP rtsp://example.com/a RTSP/1.0\r\nCSeq: 2\r\n\r\n", 0)
        .sends(End::Server, "RTSP/1.0 200 OK\r\nCSeq: 2\r\n\r\n", 0)
        .sends(End::Client, "PLAY rtsp://example.com/a RTSP/1.0\r\nCSeq: 3\r\n\r\n", 0)
        .sends(End::Server, "RTSP/1.0 200 OK\r\nCSeq: 3\r\n\r\n", 0)
        .capture()
}

fn video() -> Capture {
    (0..60)
        .fold(Conversation::udp(5004), |conversation, _| {
            conversation.sends(End::Client, "", 1_100).sends(End::Server, "", 1_100)
        })
        .capture()
}

const UDP_PORT: u16 = 80;

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Layout, Network, Transport};

    #[test]
    fn every_built_in_capture_has_valid_ip_packets_and_checksums() {
        for name in names() {
            let capture = capture(name).unwrap();
            for packet in &capture.packets {
                let layout = Layout::parse(&packet.bytes).unwrap();
                assert_eq!(layout.network, Network::Ipv4, "{name}");
                assert!(matches!(layout.transport, Transport::Udp | Transport::Tcp { .. }));
                let sliced = etherparse::PacketHeaders::from_ethernet_slice(&packet.bytes).unwrap();
                let Some(etherparse::NetHeaders::Ipv4(ip, _)) = &sliced.net else { panic!() };
                assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "{name}");
                let bytes = sliced.payload.slice();
                let (found, right) = match &sliced.transport {
                    Some(etherparse::TransportHeader::Udp(udp)) => {
                        (udp.checksum, udp.calc_checksum_ipv4(ip, bytes).unwrap())
                    }
                    Some(etherparse::TransportHeader::Tcp(tcp)) => {
                        (tcp.checksum, tcp.calc_checksum_ipv4(ip, bytes).unwrap())
                    }
                    _ => panic!("{name}"),
                };
                assert_eq!(found, right, "{name}");
            }
        }
    }

    #[test]
    fn built_in_frames_have_the_length_in_their_name_without_the_fcs() {
        let len = |name: &str| capture(name).unwrap().packets[0].bytes.len();
        assert_eq!([len("udp_64B"), len("udp_594B.pcap"), len("udp_1518B")], [60, 590, 1514]);
        assert_eq!(capture("udp_64B").unwrap().packets.len(), 1);
        assert_eq!(capture("dns").unwrap().packets.len(), 2);
    }
}
