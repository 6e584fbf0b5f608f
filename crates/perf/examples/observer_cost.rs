//! Measures the cost of the probes beside the streams: one TCP stream between two namespaces, in
//! pairs of short rounds with the probes on and off.
//!
//! `cargo run --release -p weir-perf --example observer_cost -- [PAIRS [STREAMS [SECONDS]]]`

use host::{Address, HostError, Namespace};
use perf::observe::echo::{Token, respond};
use perf::observe::{EchoOffer, LatencyPlan, Observer, Plan, StreamSocket};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use units::Bytes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let pairs: usize = words.next().as_deref().unwrap_or("60").parse()?;
    let streams: u32 = words.next().as_deref().unwrap_or("1").parse()?;
    let length = Duration::from_secs_f64(words.next().as_deref().unwrap_or("0.5").parse()?);
    let (near, far) = (Namespace::create("near")?, Namespace::create("far")?);
    host::connect((&near, "near"), (&far, "far"), 1500)?;
    for (namespace, name, last) in [(&near, "near", 1), (&far, "far", 2)] {
        let ip = IpAddr::V4(Ipv4Addr::new(10, 77, 0, last));
        host::add_address(namespace, name, Address { ip, prefix: 24 })?;
    }
    let echo_server = EchoServer::open(&far)?;
    let mut ratios = Vec::new();
    let (mut costs, mut medians) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // ABBA: a drift of the host affects rounds with and without probes alike.
        let order = if pair % 2 == 0 { [true, false] } else { [false, true] };
        let mut rates = [0.0; 2];
        for probes in order {
            let round = near.run(|| round(&echo_server, probes, streams, length))?;
            rates[usize::from(probes)] = round.rate;
            if probes {
                costs.push(round.cost * 100.0);
                medians.extend(round.median_us);
            }
        }
        ratios.push((rates[1] / rates[0] - 1.0) * 100.0);
    }
    let reported = |name: &str, unit: &str, values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let at = |part: f64| {
            values.get((values.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
        };
        println!("{name:38} {:8.3} {unit}  [{:.3} … {:.3}]", at(0.5), at(0.25), at(0.75));
    };
    println!("{pairs} pairs of {} s, {streams} streams: median [quartiles]", length.as_secs_f64());
    reported("CPU of the probes", "% of a core", &mut costs);
    reported("goodput with them against without", "%", &mut ratios);
    reported("median round trip under load", "us", &mut medians);
    Ok(())
}

struct Round {
    /// Bytes per second.
    rate: f64,
    /// CPU seconds per second.
    cost: f64,
    median_us: Option<f64>,
}

fn round(
    echo_server: &EchoServer,
    probes: bool,
    streams: u32,
    length: Duration,
) -> Result<Round, HostError> {
    let failed = |e| HostError::Io { doing: "a round".to_owned(), source: e };
    let opened = (0..streams).map(|_| TcpStream::connect((echo_server.ip, echo_server.tcp)));
    let sockets = opened.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let mut latency = LatencyPlan::to((echo_server.ip, echo_server.tcp).into());
    latency.echo = Some(echo_server.offer);
    let mut observer = Observer::begin(Plan { probes, latency: Some(latency), ..Plan::default() });
    let sent: Vec<_> = sockets.iter().map(|_| AtomicU64::new(0)).collect();
    let now = || -> Vec<StreamSocket<'_>> {
        let each = sockets.iter().zip(&sent).zip(1..);
        each.map(|((socket, sent), id)| StreamSocket {
            id,
            sends: true,
            tcp: Some(socket.as_fd()),
            bytes: Bytes::new(sent.load(Ordering::Relaxed)),
        })
        .collect()
    };
    std::thread::scope(|scope| {
        for (socket, sent) in sockets.iter().zip(&sent) {
            scope.spawn(move || {
                let block = vec![0; 128 * 1024];
                while let Ok(count @ 1..) = (&*socket).write(&block) {
                    sent.fetch_add(count as u64, Ordering::Relaxed);
                }
            });
        }
        let begun = Instant::now();
        observer.start(&now());
        while begun.elapsed() < length {
            let left = length.saturating_sub(begun.elapsed());
            std::thread::sleep(observer.due().min(left).min(Duration::from_millis(100)));
            observer.sample(&now());
        }
        observer.interval(&now());
        let elapsed = begun.elapsed().as_secs_f64();
        let bytes: u64 = sent.iter().map(|sent| sent.load(Ordering::Relaxed)).sum();
        let observed = observer.finish(&now());
        sockets.iter().try_for_each(|socket| socket.shutdown(Shutdown::Both)).map_err(failed)?;
        Ok(Round {
            rate: bytes as f64 / elapsed,
            cost: observed.cost.secs_f64() / elapsed,
            median_us: observed.loaded.map(|latency| latency.p50.micros_f64()),
        })
    })
}

struct EchoServer {
    ip: IpAddr,
    tcp: u16,
    offer: EchoOffer,
    stop: Arc<AtomicBool>,
}

impl EchoServer {
    fn open(far: &Namespace) -> Result<Self, HostError> {
        let failed = |e| HostError::Io { doing: "opening the far end".to_owned(), source: e };
        let ip = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
        let (listener, socket) = far.run(|| {
            let listener = TcpListener::bind((ip, 0)).map_err(failed)?;
            Ok((listener, UdpSocket::bind((ip, 0)).map_err(failed)?))
        })?;
        let tcp = listener.local_addr().map_err(failed)?.port();
        let port = socket.local_addr().map_err(failed)?.port();
        let offer = EchoOffer { port, token: Token::random() };
        let stop = Arc::new(AtomicBool::new(false));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut block = vec![0; 128 * 1024];
                    while let Ok(1..) = stream.read(&mut block) {}
                });
            }
        });
        let stopped = stop.clone();
        std::thread::spawn(move || {
            let mut block = [0; 64];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut block) else { continue };
                if let Some(answer) = respond(&block[..length], |token| *token == offer.token) {
                    let _ = socket.send_to(answer, from);
                }
            }
        });
        Ok(Self { ip, tcp, offer, stop })
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
