use flow::Match;
use flow::request::Refusal;

use super::Version;
use super::action::{decode_actions, decode_instructions, encode_actions, encode_instructions};
use super::flow_mod;
use super::flow_statistics::{decode_filter, decode_nicira_filter, decode_v10_filter};
use super::group::decode_group_mod;
use super::meter::decode_meter_mod;
use super::octets::Reader;
use super::oxm_match::{read_entries, write_entries};
use super::packet::decode_packet_out;
use super::port::decode_port_mod;

/// Decodes `bytes` as each type of message part in each version, and encodes the valid results
/// again. Fuzzing calls this function, which must not panic.
pub fn decode_any(bytes: &[u8]) {
    let body = Reader::new(bytes, Refusal::BadLength);
    let mut out = Vec::new();
    let _ = decode_v10_filter(body);
    let _ = decode_nicira_filter(body);
    let _ = decode_meter_mod(body);
    for version in Version::ALL {
        if let Ok((matching, _)) = read_entries(bytes, version) {
            write_entries(&matching, version, &mut out);
        }
        if let Ok(actions) = decode_actions(bytes, version) {
            encode_actions(&actions, version, &Match::any(), &mut out);
        }
        if let Ok(actions) = decode_instructions(bytes, version) {
            encode_instructions(&actions, version, &Match::any(), &mut out);
        }
        let _ = flow_mod::decode_v10(body, true);
        let _ = flow_mod::decode_nicira(body, version, false);
        let _ = flow_mod::decode_later(body, version);
        let _ = decode_filter(body, version);
        let _ = decode_group_mod(body, version);
        let _ = decode_packet_out(body, version);
        let _ = decode_port_mod(body, version);
    }
}
