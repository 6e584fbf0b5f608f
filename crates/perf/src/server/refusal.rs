//! The requests that a server refuses, and the error numbers for which a stock iperf3 client prints
//! the right text (the enum in iperf_api.h).

use crate::PerfError;
use crate::control::{Parameters, ParametersError, State};
use crate::options::{Amount, Direction, Limits, Protocol, TestOptions};
use rustix::io::Errno;
use std::io;
use units::Span;

/// The early end of a session: the server's own error, and the reply to the client.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) error: PerfError,
    pub(super) reply: Reply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// iperf3's error number and errno.
    Error(i32, i32),
    Busy,
    /// The server is shutting down.
    Terminated,
    /// The client is gone, or already has the reason.
    Nothing,
}

impl Refusal {
    pub(super) fn new(code: i32, error: PerfError) -> Self {
        let errno = errno_of(&error);
        Self { error, reply: Reply::Error(code, errno) }
    }

    pub(super) fn busy(error: PerfError) -> Self {
        Self { error, reply: Reply::Busy }
    }

    /// Makes a refusal from the failure of a protocol step; `code` is iperf3's number for that
    /// step.
    pub(super) fn during(code: i32) -> impl FnOnce(PerfError) -> Self {
        move |error| match error {
            PerfError::Silent { .. } | PerfError::NotIperf { .. } | PerfError::System { .. } => {
                Self::new(code, error)
            }
            _ => error.into(),
        }
    }
}

impl From<PerfError> for Refusal {
    fn from(error: PerfError) -> Self {
        let reply = match &error {
            PerfError::Interrupted => Reply::Terminated,
            PerfError::Gone { .. } | PerfError::EndedByPeer { .. } => Reply::Nothing,
            PerfError::Silent { .. } => Reply::Error(RECEIVE_MESSAGE, 0),
            PerfError::NotIperf { .. } => Reply::Error(MESSAGE, 0),
            PerfError::Broken { .. } => Reply::Error(WRITE_STREAM, errno_of(&error)),
            _ => Reply::Error(INIT_TEST, errno_of(&error)),
        };
        Self { error, reply }
    }
}

/// Encodes `State::ServerError` and its numbers, for a client that has sent only its cookie.
pub(super) fn no_room(shortage: Errno) -> [u8; 9] {
    let mut bytes = [State::ServerError.byte(); 9];
    bytes[1..5].copy_from_slice(&INIT_TEST.to_be_bytes());
    bytes[5..].copy_from_slice(&shortage.raw_os_error().to_be_bytes());
    bytes
}

/// Returns the client's test options if they are valid and within the server's limits.
pub(super) fn accepted(
    parameters: &Parameters,
    limits: &Limits,
    peer: &str,
) -> Result<TestOptions, Refusal> {
    let denied = |code, reason: String| {
        // This error is for the server's own log.
        Refusal::new(code, PerfError::Usage(format!("{peer} was refused: {reason}")))
    };
    let options = parameters
        .options()
        .map_err(|error| denied(code_of(&error, parameters), error.to_string()))?;
    if options.protocol == Protocol::Udp {
        crate::udp::check_block(&options).map_err(|error| denied(UDP_BLOCK, error.to_string()))?;
    }
    if options.streams > limits.streams {
        let reason = format!("{} streams, and {} are served", options.streams, limits.streams);
        return Err(denied(STREAMS, reason));
    }
    if let Some(cpu) = options.server_affinity
        && !probe::cpu::affinity().is_ok_and(|cpus| cpus.contains(&cpu))
    {
        return Err(denied(AFFINITY, format!("this server may not run on CPU {cpu}")));
    }
    if let Some(most) = limits.duration
        && let Some(asked) = longer(&options, most)
    {
        let version = parameters.client_version.as_deref();
        let code = if is_since(version, (3, 20)) { LONGEST_DURATION } else { DURATION };
        return Err(denied(code, format!("{asked} was asked for, and {most} is served")));
    }
    if let (Some(most), Some(asked)) = (limits.rate, total_rate(&options))
        && asked > most.bits_per_second()
    {
        let asked = units::Rate::from_bits_per_second(asked);
        return Err(denied(TOTAL_RATE, format!("{asked} was asked for, and {most} is served")));
    }
    Ok(options)
}

/// Returns the requested time as text if it exceeds `most`. Omitted time counts, as in iperf3.
fn longer(options: &TestOptions, most: Span) -> Option<String> {
    let time = match options.amount {
        Amount::Time(Span::ZERO) => return Some("no end".to_owned()),
        Amount::Time(time) => time.saturating_add(options.omit),
        // The session enforces the time limit of these tests.
        Amount::Bytes(_) | Amount::Blocks(_) => options.omit,
    };
    (time > most).then(|| time.to_string())
}

/// Returns the total rate of all streams in both directions; `None` without a target rate.
fn total_rate(options: &TestOptions) -> Option<u64> {
    let directions = if options.direction == Direction::Both { 2 } else { 1 };
    let streams = u64::from(options.streams) * directions;
    options.rate.map(|rate| rate.bits_per_second().saturating_mul(streams))
}

fn code_of(error: &ParametersError, parameters: &Parameters) -> i32 {
    match error {
        ParametersError::Sctp => NO_SCTP,
        ParametersError::Authentication => AUTHORIZATION,
        ParametersError::TwoDirections => TWO_DIRECTIONS,
        ParametersError::OutOfRange { key, .. } => match *key {
            "time" => DURATION,
            "omit" => OMIT,
            "parallel" => STREAMS,
            "len" if parameters.udp => UDP_BLOCK,
            "len" => BLOCK,
            "window" => BUFFER,
            "MSS" => MSS,
            "burst" => BURST,
            "TOS" => TYPE_OF_SERVICE,
            _ => RECEIVE_PARAMETERS,
        },
    }
}

/// Returns the error number for a test that exceeded the server's time limit.
pub(super) fn expired(version: Option<&str>, is_weir: bool) -> i32 {
    if is_weir || is_since(version, (3, 21)) { EXPIRED } else { SERVER_TERMINATED }
}

/// True if a client's iperf3 has the version `since` or a later version. An iperf3 prints only the
/// number of an error that was defined after its version.
fn is_since(version: Option<&str>, since: (u32, u32)) -> bool {
    let version = version.unwrap_or_default();
    let digits = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse::<u32>().ok()
    };
    let (major, minor) = version.split_once('.').unwrap_or_default();
    digits(major).zip(digits(minor)).is_some_and(|version| version >= since)
}

fn errno_of(error: &PerfError) -> i32 {
    match error {
        PerfError::System { source, .. } => io::Error::raw_os_error(source).unwrap_or(0),
        PerfError::Broken { failure, .. } => failure.ending.errno(),
        _ => 0,
    }
}

/// Returns iperf3's error number for a stream that cannot be opened.
pub(super) fn stream_code(protocol: Protocol) -> i32 {
    match protocol {
        Protocol::Tcp => ACCEPT_STREAM,
        Protocol::Udp => READ_STREAM,
    }
}

const DURATION: i32 = 5;
const STREAMS: i32 = 6;
const BLOCK: i32 = 7;
const BUFFER: i32 = 8;
const MSS: i32 = 10;
const OMIT: i32 = 12;
const BURST: i32 = 15;
const NO_SCTP: i32 = 18;
const UDP_BLOCK: i32 = 20;
const TYPE_OF_SERVICE: i32 = 21;
const TWO_DIRECTIONS: i32 = 25;
pub(super) const TOTAL_RATE: i32 = 27;
const LONGEST_DURATION: i32 = 37;
const INIT_TEST: i32 = 101;
const MESSAGE: i32 = 110;
const RECEIVE_MESSAGE: i32 = 112;
pub(super) const RECEIVE_PARAMETERS: i32 = 114;
pub(super) const RECEIVE_RESULTS: i32 = 117;
/// "The server has terminated": of the errors that iperf3 3.12 knows, the closest to an exceeded
/// time limit.
pub(super) const SERVER_TERMINATED: i32 = 120;
const AFFINITY: i32 = 132;
pub(super) const CONGESTION: i32 = 134;
pub(super) const WINDOW: i32 = 141;
pub(super) const AUTHORIZATION: i32 = 142;
pub(super) const NO_DATA: i32 = 144;
const EXPIRED: i32 = 160;
pub(super) const INIT_STREAM: i32 = 201;
const ACCEPT_STREAM: i32 = 204;
const WRITE_STREAM: i32 = 205;
const READ_STREAM: i32 = 206;

#[cfg(test)]
mod tests {
    use super::*;
    use units::Rate;

    fn refused(json: &str, limits: &Limits) -> (i32, String) {
        let parameters: Parameters = serde_json::from_str(json).unwrap();
        let refusal = accepted(&parameters, limits, "10.0.0.9").unwrap_err();
        let Reply::Error(code, _) = refusal.reply else { panic!("{:?}", refusal.reply) };
        (code, refusal.error.to_string())
    }

    #[test]
    fn a_stock_client_gets_error_numbers_that_its_version_knows() {
        let limits = Limits::default();
        let code = |json| refused(json, &limits).0;
        assert_eq!(code(r#"{"sctp":true}"#), 18);
        assert_eq!(code(r#"{"tcp":true,"authtoken":"x"}"#), 142);
        assert_eq!(code(r#"{"tcp":true,"parallel":500}"#), 6);
        assert_eq!(code(r#"{"udp":true,"len":65535}"#), 20);
        assert_eq!(code(r#"{"tcp":true,"pacing_timer":-1}"#), 114);
    }

    #[test]
    fn the_refusal_at_a_limit_names_the_limit() {
        let limits = Limits {
            streams: 4,
            rate: Some(Rate::from_bits_per_second(10_000_000)),
            duration: Some(Span::from_secs(60)),
            ..Limits::default()
        };
        let (code, received) = refused(r#"{"tcp":true,"parallel":5,"time":1}"#, &limits);
        assert_eq!(code, 6);
        assert!(received.contains("5 streams, and 4 are served"), "{received}");
        let (code, received) = refused(
            r#"{"udp":true,"bidirectional":true,"parallel":2,"bandwidth":4000000,"time":1}"#,
            &limits,
        );
        assert_eq!(code, 27);
        assert!(received.contains("16Mbit/s") || received.contains("16mbit"), "{received}");
        assert_eq!(refused(r#"{"tcp":true,"time":61}"#, &limits).0, 5);
        let newer = r#"{"tcp":true,"time":61,"client_version":"3.21+"}"#;
        assert_eq!(refused(newer, &limits).0, 37);
        // Omitted time counts, also in a test of an amount of bytes.
        assert_eq!(refused(r#"{"tcp":true,"time":60,"omit":1}"#, &limits).0, 5);
        assert_eq!(refused(r#"{"tcp":true,"num":1,"omit":61}"#, &limits).0, 5);
        assert_eq!(expired(Some("3.12"), false), 120);
        assert_eq!(expired(Some("3.21"), false), 160);
        assert_eq!(expired(Some("3.12 (weir 0.1.0)"), true), 160);
    }
}
