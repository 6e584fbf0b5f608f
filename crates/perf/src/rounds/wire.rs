//! The messages of client and server for these tests, on iperf3's control connection.
//!
//! ```text
//! client                                            server
//! cookie, as iperf3                              →
//!                                                ←  ExchangeParameters
//! Parameters with {"weir": {"test": TestRequest}}        →
//!                                                ←  WeirOffer, Offer    a stock server: CreateStreams
//! ┌ TestStart, Order                             →
//! │                                              ←  CreateStreams, Ready   or AccessDenied, Refusal
//! │ data connections that open with the cookie   →
//! │                                              ←  TestRunning
//! │ … the measurement …
//! │ TestEnd                                      →
//! └                                              ←  ExchangeResults, Report
//! Done                                           →
//! ```
//!
//! The bracket is one measurement; a client makes as many as its sizes and its required
//! confidence need, within one session.

use super::Kind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Asks a server for one of these tests: `weir.test` of the parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestRequest {
    pub kind: Kind,
}

impl TestRequest {
    /// Reads `weir` of a client's parameters. `None` if the client asks for none of these tests.
    pub fn within(weir: &Value) -> Option<Self> {
        serde_json::from_value(weir.get("test")?.clone()).ok()
    }

    /// The value of `weir` in a client's parameters.
    pub fn to_weir(&self) -> Value {
        json!({ "version": env!("CARGO_PKG_VERSION"), "test": self })
    }
}

/// The server supports the test.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Offer {
    pub version: String,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    pub kind: Kind,
    /// Bytes of a request, or of a message.
    pub request: u64,
    /// Bytes of a response.
    #[serde(default)]
    pub response: u64,
    pub connections: u32,
    /// Requests in flight on each connection.
    #[serde(default = "one")]
    pub depth: u32,
    pub seconds: f64,
    /// The CPU that the server pins this measurement to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_affinity: Option<u64>,
    /// The first of the ports that the server opens for the measurement; `None` lets the system
    /// choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// The server waits for the data connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ready {
    /// The opened ports: one for all short connections of `crr`, one for each connection over UDP.
    /// Empty for `rr` and `tcp-stream`, whose connections go to the server's own port.
    pub ports: Vec<u16>,
}

/// The server refuses the order, and waits for another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refusal {
    pub reason: String,
}

/// The server's results of one measurement. A reader checks each number before use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Responses sent, or messages received where the protocol preserves their boundaries.
    pub count: u64,
    /// Payload received.
    pub bytes: u64,
    /// Seconds from the first payload to the last.
    pub seconds: f64,
    pub cpu: WireCpu,
}

/// CPU use, in percent of a core.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WireCpu {
    /// The seconds that these results cover.
    pub elapsed: f64,
    /// User CPU of the threads of this measurement.
    pub user: f64,
    pub system: f64,
    pub cores: Vec<WireCore>,
}

/// CPU of a core of the host, including other programs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WireCore {
    pub core: u64,
    pub busy: f64,
    pub softirq: f64,
}

fn one() -> u32 {
    1
}

/// Maximum length of a message of this protocol.
pub(super) const LONGEST: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_request_is_found_among_other_parameters() {
        let request = TestRequest { kind: Kind::UdpRr };
        assert_eq!(TestRequest::within(&request.to_weir()), Some(request));
        for other in ["{}", "7", r#"{"test":{"kind":"web"}}"#, r#"{"test":1}"#, r#"{"echo":true}"#]
        {
            assert_eq!(TestRequest::within(&serde_json::from_str(other).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn an_order_needs_its_sizes_and_sane_values() {
        let order: Order = serde_json::from_str(
            r#"{"kind":"rr","request":1,"response":1,"connections":1,"seconds":0.5}"#,
        )
        .unwrap();
        assert_eq!((order.depth, order.port), (1, None));
        for bad in [
            r#"{"kind":"rr","connections":1,"seconds":1}"#,
            r#"{"kind":"rr","request":-1,"connections":1,"seconds":1}"#,
            r#"{"kind":"rr","request":1e99,"connections":1,"seconds":1}"#,
        ] {
            assert!(serde_json::from_str::<Order>(bad).is_err(), "{bad}");
        }
    }
}
