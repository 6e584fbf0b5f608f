//! Texts chosen by a hostile server: the texts reach a terminal only in escaped form, and the
//! length of documents is bounded.
#![allow(clippy::unwrap_used)]

mod scripted;

use perf::client::run;
use perf::control::State;
use perf::event::Stop;
use perf::options::{Amount, ClientOptions, TestOptions};
use perf::output::{Json, Text, TextFormat};
use perf::rounds::{self, Kind, RoundsOptions};
use scripted::{After, Server, Step};
use serde_json::{Value, json};
use units::Span;

/// Starts a server that runs a complete test and sends `results` at its end.
fn telling(results: &Value) -> Server {
    let mut steps = scripted::running();
    steps.extend([Step::Expect(4), Step::State(13), Step::ReadJson]);
    steps.extend([Step::RawClient(scripted::encoded(results)), Step::State(14)]);
    Server::start(steps, After::Hang)
}

fn options(server: &Server) -> ClientOptions {
    ClientOptions {
        host: "127.0.0.1".to_owned(),
        port: server.port(),
        interval: Span::ZERO,
        probes: false,
        idle_probe: Span::ZERO,
        test: TestOptions {
            amount: Amount::Time(Span::from_millis(50)),
            server_output: true,
            ..TestOptions::default()
        },
        ..ClientOptions::default()
    }
}

fn hostile() -> Value {
    json!({
        "cpu_util_total": 1, "cpu_util_user": 1, "cpu_util_system": 0,
        "sender_has_retransmits": -1, "congestion_used": HOSTILE,
        "server_output_text": format!("{HOSTILE}\n{}", "x".repeat(100_000)),
        "streams": [{"id": 1, "bytes": 1000, "retransmits": -1, "end_time": 0.05}],
        "weir": {"version": HOSTILE, "deep": [{HOSTILE: HOSTILE, "long": "x".repeat(100_000)}]},
    })
}

#[test]
fn texts_in_a_servers_results_are_escaped_for_terminals() {
    let server = telling(&hostile());
    let mut text = Text::new(Vec::new(), TextFormat { verbose: true, ..TextFormat::plain() });
    run(&options(&server), &Stop::default(), &mut text).unwrap();
    let shown = String::from_utf8(text.finish().unwrap()).unwrap();
    assert!(shown.contains(SHOWN), "{shown:?}");
    assert!(!shown.contains(OBEYED), "{shown:?}");
    assert!(shown.lines().all(|line| line.chars().count() < 300), "{shown:?}");
}

#[test]
fn the_length_of_a_servers_results_in_a_document_is_bounded() {
    let server = telling(&hostile());
    let mut json = Json::new(Vec::new());
    run(&options(&server), &Stop::default(), &mut json).unwrap();
    let document: Value = serde_json::from_slice(&json.finish().unwrap()).unwrap();
    let peer = &document["weir"]["peer"];
    assert_eq!(peer["version"], SHOWN);
    assert_eq!(peer["deep"][0][SHOWN], SHOWN);
    assert!(peer["deep"][0]["long"].as_str().unwrap().chars().count() < 300);
}

#[test]
fn a_servers_refusal_is_shown_as_a_sentence_of_bounded_length() {
    let byte = |state: State| i8::from_ne_bytes([state.byte()]);
    let refusal = json!({ "reason": format!("{HOSTILE}\n{}", "x".repeat(100_000)) });
    let steps = vec![
        Step::Cookie,
        Step::State(9),
        Step::ReadJson,
        Step::State(byte(State::WeirOffer)),
        Step::RawClient(scripted::encoded(&json!({ "version": HOSTILE }))),
        Step::Expect(byte(State::TestStart)),
        Step::ReadJson,
        Step::State(byte(State::AccessDenied)),
        Step::RawClient(scripted::encoded(&refusal)),
    ];
    let server = Server::start(steps, After::Hang);
    let mut options = RoundsOptions::new("127.0.0.1", Kind::Rr);
    options.port = server.port();
    let refused = rounds::run(&options, &Stop::default(), &mut NoAudience).unwrap_err().to_string();
    assert!(refused.contains(&format!(r"refused: {SHOWN}\nxxx")), "{refused}");
    assert!(refused.chars().count() < 400, "{refused}");
}

struct NoAudience;

impl rounds::Audience for NoAudience {
    fn event(&mut self, event: &rounds::Event<'_>) {
        if let rounds::Event::Connected { server_version, .. } = event {
            assert_eq!(*server_version, SHOWN);
        }
    }
}

const HOSTILE: &str = "a\x1b]0;owned\x07\u{202e}";
const SHOWN: &str = r"a\x1b]0;owned\x07\u{202e}";
const OBEYED: [char; 3] = ['\x1b', '\x07', '\u{202e}'];
