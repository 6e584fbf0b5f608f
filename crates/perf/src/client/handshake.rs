use super::dial::POLL_INTERVAL;
use super::server_error;
use crate::PerfError;
use crate::accounts::Credentials;
use crate::control::{Control, Cookie, LONGEST, LONGEST_PARAMETERS, Parameters, State, ready};
use crate::event::Stop;
use crate::options::TestOptions;
use rustix::event::PollFlags;
use serde_json::{Map, Value, json};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};
use units::Span;

#[derive(Debug)]
pub(super) struct Agreed {
    /// The test as it will run: a stock iperf3 omits whole seconds only.
    pub(super) test: TestOptions,
    /// The offer of a weir server beyond iperf3; `None` from a stock server.
    pub(super) offer: Option<Value>,
    pub(super) warnings: Vec<String>,
}

/// Sends the cookie and waits until the server asks for the parameters.
pub(super) fn introduce(
    control: &mut Control,
    cookie: &Cookie,
    patience: Duration,
    stop: &Stop,
) -> Result<(), PerfError> {
    control.send_cookie(cookie)?;
    greeted(control, patience, stop)?;
    expect(control, State::ExchangeParameters, OPENING)
}

/// Sends the parameters and waits until the server asks for the streams. `wishes` go to a weir
/// server.
pub(super) fn agree(
    control: &mut Control,
    test: &TestOptions,
    credentials: Option<&Credentials>,
    wishes: Map<String, Value>,
) -> Result<Agreed, PerfError> {
    let mut ours = wishes;
    ours.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
    let weir = Some(Value::Object(ours));
    let parameters = Parameters { weir, authtoken: token(credentials)?, ..Parameters::of(test) };
    fits(&parameters)?;
    control.send_json(&parameters)?;
    match next(control, AGREEING)? {
        State::CreateStreams => Ok(at_stock(test)),
        State::WeirOffer => {
            let offer = control.receive_json(LONGEST, AGREEING)?;
            expect(control, State::CreateStreams, AGREEING)?;
            Ok(Agreed { test: test.clone(), offer: Some(offer), warnings: Vec::new() })
        }
        other => Err(unexpected(control, other)),
    }
}

/// Makes a token. Call this function just before sending, because the server compares the token's
/// time with its own clock.
pub(crate) fn token(credentials: Option<&Credentials>) -> Result<Option<String>, PerfError> {
    credentials.map(|credentials| credentials.token(SystemTime::now())).transpose()
}

/// Checks the length here, since a server would only report that it does not understand the
/// parameters.
fn fits(parameters: &Parameters) -> Result<(), PerfError> {
    let length = serde_json::to_string(parameters).map_or(0, |text| text.len());
    if length <= LONGEST_PARAMETERS {
        return Ok(());
    }
    Err(PerfError::Usage(format!(
        "the test's parameters take {length} bytes, and a server reads {LONGEST_PARAMETERS}: shorten --title \
         or --extra-data"
    )))
}

pub(crate) fn expect(
    control: &mut Control,
    wanted: State,
    doing: &'static str,
) -> Result<(), PerfError> {
    match next(control, doing)? {
        state if state == wanted => Ok(()),
        other => Err(unexpected(control, other)),
    }
}

/// Receives the next state; a state by which the server refuses or ends the test is an error.
pub(crate) fn next(control: &mut Control, doing: &'static str) -> Result<State, PerfError> {
    let state = control.receive_state(doing)?;
    refusal(control, state).map_or(Ok(state), Err)
}

pub(crate) fn refusal(control: &mut Control, state: State) -> Option<PerfError> {
    let peer = || control.peer().to_owned();
    match state {
        State::AccessDenied => Some(PerfError::Busy { peer: peer() }),
        State::ServerTerminate => Some(PerfError::EndedByPeer { peer: peer() }),
        State::ServerError => {
            let peer = peer();
            Some(match control.receive_server_error() {
                Ok((code, errno)) => server_error::reported(&peer, code, errno),
                Err(error) => error,
            })
        }
        _ => None,
    }
}

pub(crate) fn unexpected(control: &Control, state: State) -> PerfError {
    PerfError::NotIperf {
        peer: control.peer().to_owned(),
        saw: format!("it went on to {state:?} out of turn"),
    }
}

/// Waits for first bytes from the server and peeks at them: servers of other protocols send a
/// greeting.
pub(crate) fn greeted(control: &Control, patience: Duration, stop: &Stop) -> Result<(), PerfError> {
    let deadline = Instant::now() + patience;
    while !ready(control.socket().as_fd(), PollFlags::IN, POLL_INTERVAL)? {
        if stop.is_called() {
            return Err(PerfError::Interrupted);
        }
        if Instant::now() >= deadline {
            let peer = control.peer().to_owned();
            return Err(PerfError::Silent { peer, within: patience, doing: OPENING });
        }
    }
    let mut bytes = [0; GREETING];
    let came = control.socket().peek(&mut bytes).unwrap_or(0);
    match bytes[..came].first().copied().map(State::from_byte) {
        Some(None) => Err(PerfError::NotIperf {
            peer: control.peer().to_owned(),
            saw: format!(
                "it answers `{}`; name the port of its server with --port",
                printable(&bytes[..came])
            ),
        }),
        Some(Some(_)) | None => Ok(()),
    }
}

/// Returns the first line, with unprintable bytes escaped.
fn printable(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| *byte == b'\r' || *byte == b'\n').next().unwrap_or_default();
    line.escape_ascii().to_string()
}

/// Rounds the omitted time: a stock iperf3 reads 1.5 s as 1, and client and server must omit the
/// same time. The duration may be a fraction, since the client enforces it.
fn at_stock(test: &TestOptions) -> Agreed {
    let omit = Span::from_secs(test.omit.nanos() / SECOND);
    let warning = (omit != test.omit).then(|| {
        format!("a stock iperf3 server leaves out whole seconds: {omit} of the {} asked", test.omit)
    });
    Agreed {
        test: TestOptions { omit, ..test.clone() },
        offer: None,
        warnings: warning.into_iter().collect(),
    }
}

/// Completes "said nothing for 10 s while …".
const OPENING: &str = "an iperf3 server would have opened the test: its host may be short of CPU, or something else may listen there";
const AGREEING: &str = "agreeing on the test";
const GREETING: usize = 80;
const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_server_omits_whole_seconds() {
        let test = TestOptions { omit: Span::from_millis(1500), ..TestOptions::default() };
        let agreed = at_stock(&test);
        assert_eq!(agreed.test.omit, Span::from_secs(1));
        assert!(agreed.warnings[0].ends_with("1s of the 1.5s asked"));
        assert!(at_stock(&TestOptions::default()).warnings.is_empty());
    }

    #[test]
    fn a_greeting_is_shown_on_one_line() {
        assert_eq!(printable(b"SSH-2.0-OpenSSH_9.2p1\r\nmore"), "SSH-2.0-OpenSSH_9.2p1");
        assert_eq!(printable(&[0x16, 3, 1]), "\\x16\\x03\\x01");
    }
}
