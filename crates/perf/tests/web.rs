//! Tests of `perf::web` with correct servers and with servers that misbehave.
#![allow(clippy::unwrap_used)]

use perf::PerfError;
use perf::event::Stop;
use perf::web::serve::WebServer;
use perf::web::{Address, Fault, Trust, WebOptions, WebOutcome, document, run, text};
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testing::Attempt;
use units::Span;

/// Starts a server that runs `behave` for each connection while `measure` runs.
fn with_server<T>(
    behave: impl Fn(TcpStream, &AtomicBool) + Sync,
    measure: impl FnOnce(SocketAddr) -> T,
) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener).set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), AtomicBool::new(false));
    thread::scope(|scope| {
        let (behave, stop) = (&behave, &stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if let Ok((peer, _)) = listener.accept() {
                    scope.spawn(move || behave(peer, stop));
                }
            }
        });
        let measured = measure(address);
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

fn options(url: &str) -> WebOptions {
    WebOptions {
        connections: 3,
        time: Span::from_millis(300),
        timeout: Duration::from_millis(120),
        ..WebOptions::new(url.parse::<Address>().unwrap())
    }
}

fn measured(options: &WebOptions) -> WebOutcome {
    run(options, &Stop::default()).unwrap()
}

/// Reads a request and sends `answer`. With `closes`, then ends the connection; otherwise keeps the
/// connection open until the test is over.
fn answer(mut peer: TcpStream, stop: &AtomicBool, answer: &[u8], closes: bool) {
    peer.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut request = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        match peer.read(&mut request) {
            Ok(0) => return,
            Ok(_) => {
                if peer.write_all(answer).is_err() || closes {
                    return;
                }
            }
            Err(_) => {}
        }
    }
}

/// Measures, and repeats a wrong measurement if the machine was disturbed: a request may then get
/// no response within its 120 ms, or the 300 ms of the measurement may pass without requests.
#[track_caller]
fn right(measure: impl Fn() -> WebOutcome, is_right: impl Fn(&WebOutcome) -> bool) -> WebOutcome {
    let outcome = testing::undisturbed("short measurement of a web server", |_| {
        let outcome = measure();
        match is_right(&outcome) {
            true => Attempt::Right(outcome),
            false => Attempt::Wrong(format!("{outcome:?}")),
        }
    });
    outcome.unwrap()
}

/// True if there were errors of this kind, no other errors and no responses.
fn has_only(fault: Fault) -> impl Fn(&WebOutcome) -> bool {
    move |outcome| outcome.responses == 0 && outcome.faults.keys().eq([&fault])
}

/// Checks that all errors are of kind `fault` if the server answers every request with `bytes`.
#[track_caller]
fn counts(bytes: &[u8], closes: bool, fault: Fault) {
    let behave = |peer: TcpStream, stop: &AtomicBool| answer(peer, stop, bytes, closes);
    let measure = || with_server(behave, |at| measured(&options(&format!("http://{at}/"))));
    right(measure, has_only(fault));
}

#[test]
fn each_misbehaviour_of_a_server_is_counted_by_its_kind() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length:";
    let of = |rest: &str| format!("{ok}{rest}").into_bytes();
    counts(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", false, Fault::Status);
    counts(&of(" 10\r\n\r\nhalf"), true, Fault::Cut);
    counts(&of(" 10\r\n\r\nhalf"), false, Fault::Stalled);
    counts(&of(" 2\r\n\r\nmore"), false, Fault::Length);
    counts(&of(" 2\r\nContent-Length: 3\r\n\r\nhi"), false, Fault::Length);
    counts(b"SSH-2.0-OpenSSH_9.2\r\n", false, Fault::Malformed);
    counts(b"", false, Fault::Stalled);
    counts(b"", true, Fault::Cut);
}

#[test]
fn a_tcp_reset_and_an_early_close_are_counted_as_different_errors() {
    let reset = |mut peer: TcpStream, _: &AtomicBool| {
        let mut request = [0; 4096];
        let _ = peer.read(&mut request);
        SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    };
    let measure = || with_server(reset, |at| measured(&options(&format!("http://{at}/"))));
    let outcome = right(measure, has_only(Fault::Reset));
    let told = text(&options("http://a/"), &outcome);
    assert!(told.starts_with("no good response: "), "{told}");
    assert!(told.contains("the connection was reset: read the server's log"), "{told}");
}

#[test]
fn a_response_sent_byte_by_byte_times_out_and_does_not_block_the_client() {
    let drip = |mut peer: TcpStream, stop: &AtomicBool| {
        let _ = peer.read(&mut [0; 4096]);
        let _ = peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        while !stop.load(Ordering::Relaxed) && peer.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    };
    let outcome = with_server(drip, |at| measured(&options(&format!("http://{at}/"))));
    assert_eq!(outcome.responses, 0);
    assert!(outcome.faults.contains_key(&Fault::Stalled), "{:?}", outcome.faults);
}

#[test]
fn a_server_that_never_stops_sending_does_not_block_the_client() {
    let flood = |mut peer: TcpStream, stop: &AtomicBool| {
        let block = vec![b'x'; 1 << 20];
        let _ = peer.read(&mut [0; 4096]);
        let _ = peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n");
        while !stop.load(Ordering::Relaxed) && peer.write_all(&block).is_ok() {}
    };
    let outcome = with_server(flood, |at| measured(&options(&format!("http://{at}/"))));
    assert_eq!(outcome.responses, 0);
    assert!(outcome.faults.contains_key(&Fault::Stalled), "{:?}", outcome.faults);
}

#[test]
fn the_error_of_a_port_without_a_server_says_that_no_server_listens() {
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = run(&options(&format!("http://{at}/")), &Stop::default()).unwrap_err();
    assert!(error.to_string().contains("no web server listens"), "{error}");
}

#[test]
fn a_call_to_stop_ends_a_measurement_of_a_silent_server() {
    let stop = Stop::default();
    stop.call();
    let silent = |peer: TcpStream, stop: &AtomicBool| answer(peer, stop, b"", false);
    let outcome = with_server(silent, |at| {
        let long = WebOptions { time: Span::from_secs(3600), ..options(&format!("http://{at}/")) };
        run(&long, &stop)
    });
    assert!(matches!(outcome, Err(PerfError::Interrupted)), "{outcome:?}");
}

fn served<T>(server: &WebServer, measure: impl FnOnce(SocketAddr) -> T) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), AtomicBool::new(false));
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.run(&listener, &stop));
        let measured = measure(address);
        stop.store(true, Ordering::Relaxed);
        serving.join().unwrap().unwrap();
        measured
    })
}

fn patient(url: &str) -> WebOptions {
    WebOptions { timeout: Duration::from_secs(60), ..options(url) }
}

#[test]
fn requests_succeed_over_every_kind_of_connection_and_loop() {
    for (keep_alive, rate, threads) in
        [(true, None, 1), (false, None, 2), (true, Some(200.0), 1), (false, Some(50.0), 1)]
    {
        let measure = || {
            served(&WebServer::new(1000, 8), |at| {
                let options = patient(&format!("http://{at}/x"));
                measured(&WebOptions { keep_alive, rate, threads, ..options })
            })
        };
        let outcome = right(measure, |outcome| outcome.responses > 0);
        assert_eq!(outcome.errors(), 0, "{keep_alive} {rate:?}: {outcome:?}");
        assert_eq!(outcome.body, 1000 * outcome.responses);
        let latency = outcome.latency.unwrap();
        assert_eq!(latency.samples, outcome.responses);
        if rate.is_some() {
            // The engine sends a request at its due time or later.
            assert!(latency.p99 >= outcome.service.unwrap().p50);
        }
    }
}

#[test]
fn redirects_are_reported_because_they_are_not_followed() {
    const MOVED: &[u8] =
        b"HTTP/1.1 301 Moved Permanently\r\nLocation: https://a/\r\nContent-Length: 0\r\n\r\n";
    let moved = |peer: TcpStream, stop: &AtomicBool| answer(peer, stop, MOVED, false);
    let measure = || with_server(moved, |at| measured(&patient(&format!("http://{at}/"))));
    let outcome = right(measure, |outcome| outcome.responses > 0);
    let shown = text(&patient("http://a/"), &outcome);
    assert_eq!(outcome.statuses.get(&301), Some(&outcome.responses));
    assert!(shown.contains(" × redirect: ") && shown.contains("`Location`"), "{shown}");
}

/// ab speaks HTTP/1.0 and waits for the end of the connection.
#[test]
fn the_server_ends_connections_of_http_1_0_and_sends_no_body_for_head() {
    served(&WebServer::new(10, 2), |at| {
        let exchange = |request: &str| {
            let mut peer = TcpStream::connect(at).unwrap();
            peer.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            peer.read_to_string(&mut answer).unwrap();
            answer
        };
        let answer = exchange("GET / HTTP/1.0\r\n\r\n");
        assert!(answer.contains("Connection: close") && answer.ends_with("wwwwwwwwww"), "{answer}");
        let answer = exchange("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n"), "{answer}");
        assert!(answer.contains("Content-Length: 10"), "{answer}");
        let answer = exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
    });
}

#[test]
fn the_latency_of_an_open_loop_includes_a_pause_of_the_server() {
    let pausing = |mut peer: TcpStream, stop: &AtomicBool| {
        peer.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut request = [0; 4096];
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            match peer.read(&mut request) {
                Ok(0) => return,
                Ok(_) => {
                    count += 1;
                    if count == 5 {
                        thread::sleep(Duration::from_millis(150));
                    }
                    let _ = peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                }
                Err(_) => {}
            }
        }
    };
    let outcome = with_server(pausing, |at| {
        let options = patient(&format!("http://{at}/"));
        measured(&WebOptions { connections: 1, rate: Some(100.0), ..options })
    });
    let (latency, service) = (outcome.latency.unwrap(), outcome.service.unwrap());
    // The engine sent only one request during the pause; the requests that came due during the
    // pause waited.
    assert!(latency.mean > service.mean, "{latency:?} {service:?}");
}

#[test]
fn https_checks_the_certificate_unless_any_certificate_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key, other] =
        ["a.pem", "a.key", "b.pem"].map(|name| folder.path().join(name));
    let make = |certificate: &Path, key: &Path| {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(certificate, made.cert.pem()).unwrap();
        std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
    };
    make(&other, &key);
    make(&certificate, &key);
    let server = WebServer::new(10, 8).with_tls(&certificate, &key).unwrap();
    served(&server, |at| {
        let with = |trust: Trust, keep_alive| {
            let options = patient(&format!("https://{at}/"));
            let options = WebOptions { trust, keep_alive, ..options };
            right(
                || measured(&options),
                |outcome| outcome.responses > 0 || !outcome.faults.is_empty(),
            )
        };
        for keep_alive in [true, false] {
            for trust in [Trust::File(certificate.clone()), Trust::Anything] {
                let outcome = with(trust, keep_alive);
                assert!(outcome.responses > 0 && outcome.errors() == 0, "{outcome:?}");
                assert!(outcome.protocol.unwrap().starts_with("TLS 1.3"));
            }
            for trust in [Trust::File(other.clone()), Trust::System] {
                if trust == Trust::System
                    && !Path::new("/etc/ssl/certs/ca-certificates.crt").exists()
                {
                    continue;
                }
                let outcome = with(trust, keep_alive);
                assert_eq!(outcome.responses, 0);
                assert_eq!(outcome.faults.keys().collect::<Vec<_>>(), [&Fault::Tls]);
            }
        }
        let plain = measured(&options(&format!("http://{at}/")));
        assert_eq!(plain.responses, 0, "a TLS server answers no plain request");
        let figures = document(&options(&format!("http://{at}/")), &plain);
        assert!(figures["errors"].as_u64().unwrap() > 0);
    });
}

#[test]
fn https_to_a_server_without_tls_is_a_tls_error() {
    let plain =
        |peer: TcpStream, stop: &AtomicBool| answer(peer, stop, b"HTTP/1.1 400 Bad\r\n\r\n", false);
    let measure = || {
        with_server(plain, |at| {
            measured(&WebOptions { trust: Trust::Anything, ..options(&format!("https://{at}/")) })
        })
    };
    let outcome = right(measure, has_only(Fault::Tls));
    assert!(!outcome.words[&Fault::Tls].is_empty());
}
