use crate::events::{Case, server_text, tcp, udp};
use perf::PerfError;
use perf::event::{Audience, Event, Role};
use perf::options::{Amount, Direction, TestOptions};
use perf::output::{LOOPBACK, RateUnit, Text, TextFormat};
use units::{Rate, Span};

fn written(case: &Case, format: TextFormat) -> String {
    let width = format.width;
    let mut text = Text::new(Vec::new(), format.clone());
    case.tell(|event| text.event(event));
    let text = String::from_utf8(text.finish().unwrap()).unwrap();
    for line in text.lines() {
        assert!(format.colour || line.chars().count() <= width, "too wide: {line:?}");
        assert_eq!(line, line.trim_end(), "blanks at the end");
    }
    text
}

fn watched(width: usize) -> TextFormat {
    TextFormat { width, unicode: true, bars: true, ..TextFormat::plain() }
}

#[test]
fn one_tcp_stream_prints_the_recorded_text() {
    let case = Case::new(Role::Client, tcp(Direction::Forward, 1));
    insta::assert_snapshot!(written(&case, TextFormat::plain()));
}

#[test]
fn a_terminal_gets_bars_for_a_tcp_stream() {
    let case = Case::new(Role::Client, tcp(Direction::Forward, 1));
    insta::assert_snapshot!(written(&case, watched(80)));
}

#[test]
fn a_terminal_gets_colours_on_request() {
    let case = Case::new(Role::Client, tcp(Direction::Forward, 1));
    let format = TextFormat { colour: true, ..watched(100) };
    let text = written(&case, format);
    insta::assert_snapshot!(text.replace('\u{1b}', "^"));
}

#[test]
fn a_narrow_terminal_gets_lines_of_forty_columns() {
    let case = Case::new(Role::Client, tcp(Direction::Forward, 1));
    insta::assert_snapshot!(written(&case, watched(40)));
}

#[test]
fn a_narrow_terminal_gets_received_udp_in_forty_columns() {
    let case = Case::new(Role::Client, udp(Direction::Reverse, 1));
    insta::assert_snapshot!(written(&case, watched(40)));
}

#[test]
fn sent_datagrams_print_the_recorded_text() {
    let case = Case::new(Role::Client, udp(Direction::Forward, 1));
    insta::assert_snapshot!(written(&case, TextFormat::plain()));
}

#[test]
fn received_datagrams_print_the_recorded_text() {
    let case = Case::new(Role::Client, udp(Direction::Reverse, 2));
    insta::assert_snapshot!(written(&case, watched(110)));
}

#[test]
fn a_bidirectional_test_prints_both_directions() {
    let case = Case::new(Role::Client, tcp(Direction::Both, 1));
    insta::assert_snapshot!(written(&case, watched(100)));
}

#[test]
fn plain_output_of_a_bidirectional_test_has_no_bars() {
    let case = Case::new(Role::Client, tcp(Direction::Both, 2));
    insta::assert_snapshot!(written(&case, TextFormat { width: 80, ..TextFormat::plain() }));
}

#[test]
fn omitted_intervals_are_marked() {
    let options = TestOptions { omit: Span::from_secs(1), ..tcp(Direction::Forward, 1) };
    let case = Case::new(Role::Client, options);
    insta::assert_snapshot!(written(&case, watched(100)));
    assert!(written(&case, watched(40)).contains("0.0-1.0*"));
}

#[test]
fn many_streams_are_shown_as_their_sum() {
    let case = Case::new(Role::Client, tcp(Direction::Forward, 8));
    let format = TextFormat { unit: RateUnit::Bytes(2), ..watched(100) };
    insta::assert_snapshot!(written(&case, format));
}

#[test]
fn verbose_output_has_options_title_and_server_output() {
    let mut options = TestOptions {
        title: Some("a\u{1b}[31mtitle".to_owned()),
        rate: Some(Rate::from_mbit(200)),
        amount: Amount::Blocks(4000),
        no_delay: true,
        ..tcp(Direction::Reverse, 2)
    };
    options.type_of_service = 0x20;
    let mut case = Case::new(Role::Client, options);
    case.ended.server_output = Some(server_text());
    case.started.peer_version = Some("weir 0.1.0".to_owned());
    insta::assert_snapshot!(written(&case, TextFormat { verbose: true, ..watched(100) }));
}

#[test]
fn a_server_prints_the_recorded_text() {
    let case = Case::new(Role::Server, tcp(Direction::Forward, 1));
    insta::assert_snapshot!(written(&case, TextFormat::plain()));
}

#[test]
fn quiet_output_prints_only_the_result() {
    let case = Case::new(Role::Client, tcp(Direction::Forward, 1));
    let quiet = TextFormat { quiet: true, ..TextFormat::plain() };
    insta::assert_snapshot!(written(&case, quiet.clone()));
    // The text shows several streams as their sum, and both directions.
    let mut case = Case::new(Role::Client, tcp(Direction::Both, 2));
    assert_eq!(written(&case, quiet.clone()).lines().count(), 4);
    assert!(!written(&case, quiet.clone()).contains("warning"));
    // The text shows output that the user requested.
    case.ended.server_output = Some(server_text());
    assert!(written(&case, quiet).contains("server output"));
}

#[test]
fn the_text_explains_round_trips_over_loopback() {
    let remarks = |case: &Case| {
        let text = written(case, watched(80));
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ").matches(LOOPBACK).count()
    };
    let mut case = Case::new(Role::Client, tcp(Direction::Forward, 1));
    assert_eq!(remarks(&case), 0, "the peer is another machine");
    case.started.local = "127.0.0.1:47190".parse().unwrap();
    case.started.remote = "127.0.0.1:5201".parse().unwrap();
    assert_eq!(remarks(&case), 1);
    (case.idle, case.ended.idle_latency, case.ended.loaded_latency) = (None, None, None);
    assert_eq!(remarks(&case), 0, "the text shows no round trips of the probe");
}

#[test]
fn a_failure_is_shown_in_the_text() {
    let mut text = Text::new(Vec::new(), TextFormat::plain());
    let case = Case::new(Role::Server, tcp(Direction::Forward, 1));
    text.event(&Event::Started(&case.started));
    text.event(&Event::Failed(&PerfError::EndedByPeer { peer: "192.0.2.1".to_owned() }));
    let text = String::from_utf8(text.finish().unwrap()).unwrap();
    assert!(text.ends_with("failed      192.0.2.1 ended the test\n"), "{text}");
}
