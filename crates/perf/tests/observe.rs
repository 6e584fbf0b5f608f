//! The latency probe and the observer on real sockets: over loopback, and between two namespaces.

#![allow(clippy::unwrap_used)]

use host::{Address, HostError, Namespace};
use perf::event::{Latency, LatencySource, Stop};
use perf::observe::echo::{self, Token};
use perf::observe::latency::LatencyProbe;
use perf::observe::{EchoOffer, LatencyPlan, Observer, Plan, StreamSocket};
use probe::clock;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use units::{Bytes, Span};

struct EchoServer {
    offer: EchoOffer,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EchoServer {
    /// Starts the server, which calls `send` for every reply: with the reply's number, the reply's
    /// bytes, and a function that sends bytes to the client.
    fn open(at: IpAddr, mut send: impl FnMut(u64, &[u8], &dyn Fn(&[u8])) + Send + 'static) -> Self {
        let socket = UdpSocket::bind((at, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let offer = EchoOffer { port: socket.local_addr().unwrap().port(), token: Token::random() };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                let known = |token: &Token| *token == offer.token;
                if let Some(answer) = echo::respond(&buffer[..length], known) {
                    let back = |bytes: &[u8]| drop(socket.send_to(bytes, from));
                    send(number, answer, &back);
                    number += 1;
                }
            }
        });
        Self { offer, stop, thread: Some(thread) }
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn plan(peer: IpAddr, echo: Option<EchoOffer>) -> LatencyPlan {
    LatencyPlan { echo, ..LatencyPlan::to(SocketAddr::from((peer, 5201))) }
}

/// Polls until `done` returns true; fails after a minute.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

#[test]
fn the_probe_gets_echo_replies_over_loopback() {
    let echo_server = EchoServer::open(HERE, |_, answer, back| back(answer));
    let mut probe = LatencyProbe::begin(&plan(HERE, Some(echo_server.offer)));
    // Until the echo has replied, the probe reports the latency of pings.
    let echoed = |latency: Latency| latency.by == LatencySource::Echo;
    until("an echo", || probe.interval().is_some_and(echoed));
    let idle = probe.end_phase(clock::now(), Some(clock::now())).unwrap();
    assert_eq!(idle.by, LatencySource::Echo);
    assert!(idle.p50 > Span::ZERO && idle.p50 <= idle.p99 && idle.p99 <= idle.max);
    let mut samples = 0;
    until("20 answers", || {
        samples += probe.interval().map_or(0, |latency| latency.samples);
        samples >= 20
    });
    let asked = probe.finish(clock::now());
    assert!(asked.latency.unwrap().samples >= 20);
    let series = asked.series.unwrap();
    assert_eq!((series.name, series.lines[0].name.as_str()), ("latency", "echo"));
    assert!(series.time_s.windows(2).all(|pair| pair[0] <= pair[1]));
}

#[test]
fn lost_duplicated_and_reordered_replies_each_count_once() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    let mut held: Option<Vec<u8>> = None;
    let echo_server = EchoServer::open(HERE, move |number, answer, back| {
        counted.store(number + 1, Ordering::Relaxed);
        match number % 4 {
            // In each group of four replies, the first is lost, the second is sent twice, and the
            // third and the fourth are swapped.
            0 => {}
            1 => (0..2).for_each(|_| back(answer)),
            2 => held = Some(answer.to_vec()),
            _ => {
                back(answer);
                if let Some(earlier) = held.take() {
                    back(&earlier);
                }
            }
        }
    });
    let mut probe = LatencyProbe::begin(&plan(HERE, Some(echo_server.offer)));
    let (mut samples, mut lost) = (0, 0);
    until("5 lost probes", || {
        // Until the echo has replied, the probe reports the latency of pings.
        let latency = probe.interval().filter(|latency| latency.by == LatencySource::Echo);
        samples += latency.as_ref().map_or(0, |latency| latency.samples);
        lost += latency.as_ref().map_or(0, |latency| latency.lost);
        lost >= 5
    });
    let whole = probe.end_phase(clock::now(), None).unwrap();
    // Read the count after the phase, because this thread may have waited for a CPU before the
    // end of the phase.
    let most = sent.load(Ordering::Relaxed) + 1;
    assert!(whole.samples >= samples && whole.lost >= lost, "{whole:?}");
    // If a duplicate counted, the number of replies would equal the number of probes.
    assert!(whole.samples <= most * 3 / 4 + 1, "{whole:?} of {most}");
    assert!(whole.samples + whole.lost <= most, "{whole:?} of {most}");
}

#[test]
fn the_probe_falls_back_to_ping_if_the_peer_refuses_its_token() {
    let echo_server = EchoServer::open(HERE, |_, answer, back| back(answer));
    let offer = EchoOffer { token: Token::random(), ..echo_server.offer };
    let mut probe = LatencyProbe::begin(&plan(HERE, Some(offer)));
    if !wait_for_ping(&probe) {
        return;
    }
    assert_eq!(probe.end_phase(clock::now(), None).unwrap().by, LatencySource::Ping);
}

#[test]
fn ping_probes_get_replies_over_ipv4_and_ipv6() {
    let Some((near, _far)) = two_hosts() else { return };
    for peer in ["10.77.0.2", "fd77::2"] {
        if peer.contains(':') && !testing::Need::Ipv6.is_met() {
            testing::skip_part(testing::Need::Ipv6);
            continue;
        }
        let bind = peer.replace("2", "1").parse().ok();
        for (bind, bind_device) in [(None, None), (bind, Some("near".to_owned()))] {
            let plan = LatencyPlan {
                bind,
                bind_device,
                type_of_service: 0x20,
                ..plan(peer.parse().unwrap(), None)
            };
            let latency = in_namespace(&near, || {
                let mut probe = LatencyProbe::begin(&plan);
                wait_for_ping(&probe).then(|| probe.end_phase(clock::now(), None)).flatten()
            });
            if let Some(latency) = latency {
                assert_eq!(latency.by, LatencySource::Ping);
                assert!(latency.samples > 0 && latency.max > Span::ZERO);
            }
        }
    }
}

#[test]
fn the_probe_uses_unprivileged_ping_sockets_if_ping_group_range_permits() {
    let Some((near, _far)) = two_hosts() else { return };
    let latency = in_namespace(&near, || {
        std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647").unwrap();
        let mut probe = LatencyProbe::begin(&plan("10.77.0.2".parse().unwrap(), None));
        until("a reply", || probe.has_answer());
        // The kernel lists raw sockets in another file.
        let open = std::fs::read_to_string("/proc/thread-self/net/icmp").unwrap();
        assert_eq!(open.lines().count(), 2, "{open}");
        probe.end_phase(clock::now(), None)
    });
    assert_eq!(latency.unwrap().by, LatencySource::Ping);
}

#[test]
fn the_probes_latency_includes_the_queueing_delay_under_load() {
    let Some((near, far)) = two_hosts() else { return };
    // 200 kB at 20 Mbit/s: a full queue delays by 80 ms.
    let shaper = "qdisc add dev near root tbf rate 20mbit burst 5kb limit 200kb";
    let shaped =
        in_namespace(&near, || std::process::Command::new("tc").args(shaper.split(' ')).status());
    if !shaped.is_ok_and(|status| status.success()) {
        return testing::skip(testing::Need::Tbf);
    }
    let ip: IpAddr = "10.77.0.2".parse().unwrap();
    let listener = in_namespace(&far, || TcpListener::bind((ip, 0)).unwrap());
    let to = listener.local_addr().unwrap();
    let mut stream = in_namespace(&near, || TcpStream::connect(to).unwrap());
    // BBR, the default of some hosts, would leave the queue empty.
    if probe::tcp::set_congestion_control(&stream, "reno").is_err() {
        return testing::skip(testing::Need::Congestion("reno"));
    }
    let mut sink = listener.accept().unwrap().0;
    let mut probe = in_namespace(&near, || LatencyProbe::begin(&plan(ip, None)));
    if !wait_for_ping(&probe) {
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| while let Ok(1..) = sink.read(&mut [0; 65536]) {});
        scope.spawn(|| {
            let block = vec![0; 65536];
            // Enough data for the window to outgrow the queue.
            (0..64).try_for_each(|_| stream.write_all(&block)).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        });
        probe.end_phase(clock::now(), Some(clock::now()));
    });
    let asked = probe.finish(clock::now());
    let latency = asked.latency.unwrap();
    assert!(
        latency.max >= Span::from_millis(40),
        "the latency lacks the delay of the queue: {latency:?}"
    );
    assert!(asked.series.unwrap().time_s.len() > 1);
}

#[test]
fn without_probe_replies_the_latency_is_the_streams_smoothed_rtt() {
    let (near, far) = connected();
    let socket = |bytes| StreamSocket {
        id: 1,
        sends: true,
        tcp: Some(near.as_fd()),
        bytes: Bytes::new(bytes),
    };
    // 192.0.2.0/24 is unassigned (RFC 5737), and loopback addresses reach no other host.
    let plan = LatencyPlan { bind: Some(HERE), ..plan("192.0.2.1".parse().unwrap(), None) };
    let plan = Plan { every: Span::from_millis(1), latency: Some(plan), ..Plan::default() };
    let mut observer = Observer::begin(plan);
    assert_eq!(observer.idle(Span::from_millis(10), &Stop::default()), None);
    observer.start(&[socket(0)]);
    exchange(&near, &far, 10_000);
    std::thread::sleep(Duration::from_millis(5));
    observer.sample(&[socket(10_000)]);
    let noted = observer.interval(&[socket(10_000)]);
    assert_eq!(noted.latency.unwrap().by, LatencySource::TcpInfo);
    assert_eq!(noted.tcp.len(), 1);
    let observed = observer.finish(&[socket(10_000)]);
    assert_eq!(observed.idle.as_ref().unwrap().by, LatencySource::TcpInfo);
    assert_eq!(observed.loaded.as_ref().unwrap().by, LatencySource::TcpInfo);
    let warned = observed.warnings.iter().any(|warning| warning.contains("smoothed"));
    assert!(warned, "{:?}", observed.warnings);
    assert!(observed.path(1).unwrap().facts.min_rtt.is_some());
    let json = observed.to_json();
    assert_eq!(json["latency"]["loaded"]["by"], "tcp_info");
    assert_eq!(json["streams"][0]["id"], 1);
    assert!(!json["series"].as_array().unwrap().is_empty());
}

#[test]
fn without_probes_the_observer_reads_only_what_iperf3_reports() {
    let (near, far) = connected();
    let socket = StreamSocket { id: 1, sends: true, tcp: Some(near.as_fd()), bytes: Bytes::new(1) };
    let latency = Some(plan(HERE, None));
    let mut observer = Observer::begin(Plan { probes: false, latency, ..Plan::default() });
    assert_eq!(observer.idle(Span::from_secs(3600), &Stop::default()), None);
    observer.start(&[socket]);
    exchange(&near, &far, 1);
    observer.sample(&[socket]);
    assert_eq!(observer.due(), Duration::MAX);
    let noted = observer.interval(&[socket]);
    assert!(noted.latency.is_none() && noted.tcp.len() == 1);
    let observed = observer.finish(&[socket]);
    assert!(observed.loaded.is_none() && observed.series.is_empty());
    assert!(observed.path(1).unwrap().facts.max_cwnd.is_some());
}

/// Waits for a reply; false, with a message, if this host does not allow ping.
fn wait_for_ping(probe: &LatencyProbe) -> bool {
    if !probe.may_be_answered() {
        testing::skip(testing::Need::Icmp);
        return false;
    }
    until("a reply", || probe.has_answer());
    true
}

fn two_hosts() -> Option<(Namespace, Namespace)> {
    let made = || -> Result<_, HostError> {
        let (near, far) = (Namespace::create("near")?, Namespace::create("far")?);
        host::connect((&near, "near"), (&far, "far"), 1500)?;
        for (namespace, name, number) in [(&near, "near", 1), (&far, "far", 2)] {
            for (ip, prefix) in [(format!("10.77.0.{number}"), 24), (format!("fd77::{number}"), 64)]
            {
                let ip: IpAddr = ip.parse().unwrap();
                if ip.is_ipv6() && !testing::Need::Ipv6.is_met() {
                    continue;
                }
                host::add_address(namespace, name, Address { ip, prefix })?;
            }
        }
        Ok((near, far))
    };
    made().map_err(|error| testing::skip_because(testing::Need::NetworkNamespaces, error)).ok()
}

fn in_namespace<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    namespace.run(|| Ok(work())).unwrap()
}

fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn exchange(mut near: &TcpStream, mut far: &TcpStream, count: usize) {
    near.write_all(&vec![1; count]).unwrap();
    far.read_exact(&mut vec![0; count]).unwrap();
}
