//! The messages of client and server for tests in rounds, on iperf3's control connection.
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
//! The bracket is a measurement. Within a session, the number of a client's measurements follows
//! from its sizes and its required confidence.

use super::Kind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A client's request for a test of this protocol; sent as `weir.test` in the parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestRequest {
    pub kind: Kind,
}

impl TestRequest {
    /// Reads the request from `weir` of a client's parameters. `None` if the client asks for none
    /// of these tests.
    pub fn within(weir: &Value) -> Option<Self> {
        serde_json::from_value(weir.get("test")?.clone()).ok()
    }

    /// Returns the value of `weir` for a client's parameters.
    pub fn to_weir(&self) -> Value {
        json!({ "version": env!("CARGO_PKG_VERSION"), "test": self })
    }
}

/// The server's reply to a request for a test that the server supports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Offer {
    pub version: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    pub kind: Kind,
    /// Size of a request or of a message, in bytes.
    pub request: u64,
    /// Size of a response, in bytes.
    #[serde(default)]
    pub response: u64,
    pub connections: u32,
    /// Number of requests in flight on each connection.
    #[serde(default = "one")]
    pub depth: u32,
    pub seconds: f64,
    /// The CPU to which the server pins this measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_affinity: Option<u64>,
    /// The first of the ports that the server opens for the measurement; `None` lets the system
    /// choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// The server's message that the server waits for the data connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ready {
    /// The opened ports: a single port for the short connections of `crr`, or a port for each
    /// connection over UDP. Empty for `rr` and `tcp-stream`, which use the server's own port.
    pub ports: Vec<u16>,
}

/// The server's message that the server refuses the order and waits for another order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refusal {
    pub reason: String,
}

/// The server's results of a measurement. A reader checks each number before use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Number of responses sent, or of messages received if the protocol preserves their
    /// boundaries.
    pub count: u64,
    /// Payload received, in bytes.
    pub bytes: u64,
    /// Seconds from the first payload to the last payload.
    pub seconds: f64,
    pub cpu: WireCpu,
}

/// CPU use of the server, in percent of a core.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WireCpu {
    /// The time that these results cover, in seconds.
    pub elapsed: f64,
    /// User time of this measurement's threads; `system` is the system time of the threads.
    pub user: f64,
    pub system: f64,
    pub cores: Vec<WireCore>,
}

/// CPU use of a core of the host, other programs included.
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
    fn an_order_without_sizes_or_with_invalid_values_is_not_read() {
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
