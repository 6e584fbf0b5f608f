use crate::control::TURNS_WISH;
use crate::observe::EchoOffer;
use crate::rounds::Kind;
use serde_json::{Value, json};

/// What this server tells a client of ours that it can do beyond iperf3 (`State::WeirOffer`).
/// `in_turns`: it will look in the turns that the client wished.
pub(super) fn offer(echo: EchoOffer, in_turns: bool) -> Value {
    let tests = [Kind::Rr, Kind::Crr, Kind::UdpRr, Kind::TcpStream, Kind::UdpStream];
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        // Where datagrams come back from, and what they must carry.
        "echo": {"port": echo.port, "token": echo.token},
        TURNS_WISH: in_turns,
        "tests": tests.map(|test| test.to_string()),
    })
}
