use crate::control::TURNS_WISH;
use crate::observe::EchoOffer;
use crate::rounds::Kind;
use serde_json::{Value, json};

/// The features beyond iperf3 that this server offers to a weir client (`State::WeirOffer`). With
/// `in_turns` it samples in the turns that the client asked for.
pub(super) fn offer(echo: EchoOffer, in_turns: bool) -> Value {
    let tests = [Kind::Rr, Kind::Crr, Kind::UdpRr, Kind::TcpStream, Kind::UdpStream];
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        // Port of the echo, and the token that its datagrams must carry.
        "echo": {"port": echo.port, "token": echo.token},
        TURNS_WISH: in_turns,
        "tests": tests.map(|test| test.to_string()),
    })
}
