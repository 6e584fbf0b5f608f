use crate::control::PERIODS_WISH;
use crate::observe::EchoOffer;
use crate::rounds::Kind;
use serde_json::{Value, json};

/// Returns the features beyond iperf3 that this server offers to a weir client
/// (`State::WeirOffer`). `in_periods`: the server samples in the periods that the client asked for.
pub(super) fn offer(echo: EchoOffer, in_periods: bool) -> Value {
    let tests = [Kind::Rr, Kind::Crr, Kind::UdpRr, Kind::TcpStream, Kind::UdpStream];
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        // Port of the echo, and the token that its datagrams must carry.
        "echo": {"port": echo.port, "token": echo.token},
        PERIODS_WISH: in_periods,
        "tests": tests.map(|test| test.to_string()),
    })
}
