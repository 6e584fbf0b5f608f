//! Output formats, each an [`Audience`](crate::event::Audience): text for people, iperf3's JSON,
//! and a line of JSON per event.

mod figures;
mod json;
mod json_stream;
pub mod limits;
pub mod outcome;
mod sink;
mod text;

pub use figures::RateUnit;
pub use json::{Document, Json};
pub use json_stream::JsonStream;
pub use text::{Text, TextFormat};

use crate::event::Started;
use units::foreign;

/// Remark on round-trip times of a connection that does not leave this machine, such as the
/// connection to a tunnel's local port.
pub const LOOPBACK: &str = "These round trips are those of a loopback connection: behind a tunnel or a proxy, the path \
                            takes longer.";

/// Returns the program that the peer reported: "iperf3", "iperf3 3.17" or "weir 0.1.0".
pub fn peer_program(started: &Started) -> String {
    let version = started.peer_version.as_ref();
    let version = version.map(|version| foreign(version).to_string()).unwrap_or_default();
    let name = match started.peer_is_weir || version.contains("weir") {
        true => "weir",
        false => "iperf3",
    };
    // The version that weir sends to iperf3 names both programs: "3.12 (weir 0.1.0)".
    let own = version.split_once("(weir ").map(|(_, own)| own.trim_end_matches(')').to_owned());
    let version = own.unwrap_or(version);
    if version.is_empty() || version.starts_with(name) {
        return if version.is_empty() { name.to_owned() } else { version };
    }
    format!("{name} {version}")
}
