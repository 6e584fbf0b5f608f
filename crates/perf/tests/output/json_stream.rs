use crate::events::{Case, server_text, tcp};
use perf::PerfError;
use perf::event::{Audience, Event, Role, Stop};
use perf::options::Direction;
use perf::output::JsonStream;
use serde_json::Value;
use std::io::Write;

fn lines(written: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(written).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_event_is_written_as_a_line_of_json() {
    let mut case = Case::new(Role::Client, tcp(Direction::Forward, 1));
    case.ended.server_output = Some(server_text());
    let mut stream = JsonStream::new(Vec::new());
    case.tell(|event| stream.event(event));
    let lines = lines(&stream.finish().unwrap());
    let events: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    let expected =
        ["start", "weir", "interval", "interval", "interval", "weir", "server_output_text", "end"];
    assert_eq!(events, expected);
    assert_eq!(lines[0]["data"]["connecting_to"]["host"], "far.example");
    assert_eq!(lines[2]["data"]["sum"]["bytes"], 25_034_752);
    assert_eq!(lines[7]["data"]["sum_sent"]["retransmits"], 12);
}

#[test]
fn the_json_names_a_loopback_connection() {
    let mut case = Case::new(Role::Client, tcp(Direction::Forward, 1));
    for (remote, is_loopback) in [("198.51.100.7:5201", false), ("127.0.0.1:5201", true)] {
        case.started.remote = remote.parse().unwrap();
        let mut stream = JsonStream::new(Vec::new());
        case.tell(|event| stream.event(event));
        let lines = lines(&stream.finish().unwrap());
        let results = lines.iter().rfind(|line| line["event"] == "weir").unwrap();
        assert_eq!(results["data"]["loopback"], is_loopback, "{remote}");
    }
}

#[test]
fn an_error_event_is_followed_by_an_end_event() {
    let mut stream = JsonStream::new(Vec::new());
    stream.event(&Event::Failed(&PerfError::Busy { peer: "far".to_owned() }));
    let lines = lines(&stream.finish().unwrap());
    assert_eq!(lines[0]["event"], "error");
    assert_eq!(lines[0]["data"], "far is busy with another test: try again later");
    assert_eq!(lines[1]["event"], "end");
}

#[test]
fn a_closed_pipe_stops_the_test_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let stop = Stop::default();
    let case = Case::new(Role::Client, tcp(Direction::Forward, 1));
    let mut stream = JsonStream::new(writer).stopping(stop.clone());
    case.tell(|event| stream.event(event));
    assert!(stop.is_called());
    stream.finish().unwrap().flush().unwrap();
}
