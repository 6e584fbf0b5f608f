//! Checks, before a tunnel starts, for problems that would prevent the tunnel or make it slow.

use crate::access::{Admitted, Resolve, SystemResolver};
use crate::account::SessionMeter;
use crate::client::ServerAt;
use crate::config::{ClientConfig, ServerConfig, Settings};
use crate::counters::Counters;
use crate::datagrams;
use crate::frame::{self, Answer, FLOWS, Opening, Status};
use crate::identity::{Identity, explained};
use crate::inbound::OpeningError;
use crate::memory::Budget;
use crate::run::{RunError, runtime};
use crate::server::TcpAt;
use crate::session::{CLIENTS, Session};
use crate::status::{self, MetricsListener};
use crate::target::{HostPort, Target};
use crate::transport::quic::QuicClient;
use crate::transport::tcp::TlsClient;
use crate::transport::{
    Carried, Carrier, Connection, Lost, Sending, Statistics, Transport, Tuning,
};
use quic::Meter;
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt::{Display, Formatter};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use units::{Bytes, Span};

/// The result of one check, with its text for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    verdict: Verdict,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// The tunnel works, but is slower than possible.
    Slow,
    Bad,
}

impl Finding {
    pub fn to_json(&self) -> serde_json::Value {
        let verdict = match self.verdict {
            Verdict::Good => "ok",
            Verdict::Slow => "slow",
            Verdict::Bad => "fail",
        };
        serde_json::json!({ "verdict": verdict, "text": self.text })
    }

    /// Whether the finding means that the tunnel cannot work.
    pub fn is_failure(&self) -> bool {
        self.verdict == Verdict::Bad
    }

    fn good(text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Good, text: text.into() }
    }

    fn slow(text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Slow, text: text.into() }
    }

    fn bad(text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Bad, text: text.into() }
    }
}

/// Checks a server. Binds the server's address briefly, so the server must not run yet.
pub fn server(config: &ServerConfig) -> Result<Vec<Finding>, RunError> {
    let mut findings = of_machine(&config.identity);
    findings.extend(config.listen_on.map(|address| match UdpSocket::bind(address) {
        Ok(_) => Finding::good(format!("UDP {address} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Finding::bad(format!(
            "UDP {address} is taken: stop its owner (ss -ulpn), or choose another --listen-on"
        )),
        Err(error) => Finding::bad(format!("UDP {address} cannot be listened on: {error}")),
    }));
    let tcp = config.tcp.address(config.listen_on);
    findings.extend(tcp.map(|address| match TcpListener::bind(address) {
        Ok(_) => Finding::good(format!("TCP {address} is free")),
        Err(error) if config.tcp == TcpAt::SameAsUdp => Finding::slow(format!(
            "TCP {address} cannot be listened on: {error}; clients whose network blocks UDP need a \
             free --tcp-listen-on"
        )),
        Err(error) => Finding::bad(format!(
            "TCP {address} cannot be listened on: {error}; choose another --tcp-listen-on"
        )),
    }));
    findings.extend(of_sockets(&config.settings));
    for peer in &config.peers {
        let rights = config.access.rights(&peer.name);
        let count = rights.map_or(0, |rights| rights.dial.len() + rights.listen.len());
        findings.push(match count {
            0 => Finding::slow(format!("peer {} has no rights: add rules by --allow", peer.name)),
            1 => Finding::good(format!("peer {} has 1 rule", peer.name)),
            rules => Finding::good(format!("peer {} has {rules} rules", peer.name)),
        });
    }
    Ok(findings)
}

/// Checks a client. Connects to each server as the client would. With `targets`, also connects to
/// each target through the server.
pub fn client(config: &ClientConfig, targets: bool) -> Result<Vec<Finding>, RunError> {
    let mut findings = of_machine(&config.identity);
    findings.extend(of_sockets(&config.settings));
    let forwards = config.forwards.iter().map(|forward| forward.listen_on.clone());
    let proxies = config.proxies.iter().map(|proxy| Target::Tcp(proxy.listen_on.into()));
    let tokens = config.tokens.iter().map(|forward| forward.listen_on.clone());
    findings.extend(forwards.chain(proxies).chain(tokens).map(|listen| of_listener(&listen)));
    let parts = config.parts(&config.credentials(), Arc::new(SystemResolver))?;
    let targets = config.forwards.iter().map(|forward| &forward.target).filter(|_| targets);
    let targets: Vec<&Target> = targets.collect();
    findings.extend(runtime()?.block_on(async {
        let mut findings = Vec::new();
        for server in parts.servers {
            findings.extend(
                greet(server, parts.carrier, &parts.tuning, &*parts.resolver, &targets).await,
            );
        }
        findings
    }));
    Ok(findings)
}

async fn greet(
    server: ServerAt,
    carrier: Carrier,
    tuning: &Tuning,
    resolver: &dyn Resolve,
    targets: &[&Target],
) -> Vec<Finding> {
    let address = server.address.clone();
    let bad = |reason: &dyn Display| vec![Finding::bad(format!("server {address}: {reason}"))];
    let target = Target::Udp(server.address.clone());
    let found = match Admitted::by_own_file(&target, resolver).await {
        Ok(found) => found,
        Err(refusal) => return bad(&refusal),
    };
    let tuning = Tuning { handshake: PATIENCE, ..tuning.clone() };
    let meter = Arc::new(Meter::unlimited());
    let tls = TlsClient::new(server.tls.clone(), tuning.clone(), &meter);
    let tcp_port = server.tcp_port.unwrap_or(server.address.port());
    let quic = match QuicClient::new(server.tls, tuning, &meter) {
        Ok(quic) => quic,
        Err(error) => return bad(&error),
    };
    let mut findings = bad(&"the name has no address");
    for remote in found.addresses() {
        let mut began = Instant::now();
        let name = server.trust.server_name();
        let udp = match carrier {
            Carrier::Tcp => Err(Lost::Silent),
            _ => quic.connect(*remote, name, rand::random()).await.map(Carried::Udp),
        };
        let connected = match udp {
            Err(Lost::Silent) if carrier != Carrier::Udp => {
                let at = SocketAddr::new(remote.ip(), tcp_port);
                began = Instant::now();
                let tcp = tls.connect(at, name, String::new()).await.map(Carried::Tcp);
                tcp.map_err(|error| match carrier {
                    Carrier::Tcp => error,
                    _ => Lost::Silent,
                })
            }
            udp => udp,
        };
        match connected {
            Ok(connection) => {
                let took = Span::from(began.elapsed());
                let round_trip = match round_trip(&connection).await {
                    Ok(round_trip) => round_trip,
                    Err(lost) => {
                        findings = bad(&format!(
                            "{remote} does not let this client in: {}",
                            explained(&lost)
                        ));
                        continue;
                    }
                };
                let mut findings = vec![Finding::good(format!(
                    "server {address} at {remote} lets this client in: handshake {}, round trip {}, \
                     packets of {}",
                    took.shown(),
                    round_trip.shown(),
                    connection.statistics().mtu,
                ))];
                if carrier == Carrier::Auto && connection.over_tcp().is_some() {
                    findings.push(Finding::slow(format!(
                        "server {address} answers over TCP alone: UDP is blocked on the path, and each \
                         lost packet delays all tunnels of a connection"
                    )));
                }
                findings.extend(reach(&connection, &address, targets).await);
                connection.close("only a check");
                // Let the close frame leave: without this frame, the server would keep the
                // connection until the idle timeout.
                tokio::time::sleep(FAREWELL).await;
                return findings;
            }
            Err(Lost::Silent) => {
                let text = format!(
                    "{remote} does not answer: no server runs there, or the path blocks UDP"
                );
                findings = bad(&text);
            }
            Err(lost) => findings = bad(&format!("{remote}: {}", explained(&lost))),
        }
    }
    findings
}

/// Measures the path's shortest round trip. Handshake packets are no samples, because both ends
/// spend time on cryptography.
///
/// A server refuses this end's certificate one round trip after this end considers the handshake
/// complete, so the measurement lasts longer than a round trip.
async fn round_trip(connection: &Carried) -> Result<Span, Lost> {
    let pause = (connection.rtt() * 3 + SETTLE) / EXCHANGES;
    let exchanges = async {
        for _ in 0..EXCHANGES {
            for _ in 0..BURST {
                // The server acknowledges the datagram, and queues it for a flow that never begins.
                // A lost datagram costs at most one sample.
                let _ = connection.send_datagram(frame::datagram(NO_FLOW, &[]));
                // Yield, so that each datagram leaves in its own packet.
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(pause).await;
        }
    };
    tokio::select! {
        lost = connection.closed() => return Err(lost),
        () = exchanges => {}
    }
    let Statistics { rtt, reading, .. } = connection.statistics();
    Ok(if reading.min_rtt > Span::ZERO { reading.min_rtt } else { rtt })
}

/// Opens a tunnel to each target and ends it at once.
async fn reach(connection: &Carried, server: &HostPort, targets: &[&Target]) -> Vec<Finding> {
    let budget = Budget::new(MEMORY);
    let owner = Arc::from(server.to_string());
    let counters = Arc::new(Counters::default());
    let meter = SessionMeter::new(Arc::default(), None);
    let session = Session::new(connection.clone(), CLIENTS, &budget, &owner, &counters, meter);
    let mut findings = Vec::new();
    for (target, flow) in targets.iter().zip((CLIENTS..).step_by(2)) {
        let asked = tokio::time::timeout(ANSWER, ask(&session, target, flow));
        findings.push(match asked.await {
            Ok(Ok(Answer { status: Status::Open, .. })) => match target {
                Target::Udp(_) => Finding::good(format!(
                    "server {server} sends to {target}; UDP does not tell whether something receives there"
                )),
                _ => Finding::good(format!("server {server} reaches {target}")),
            },
            Ok(Ok(answer)) => {
                Finding::bad(format!("server {server} does not reach {target}: {}", answer.message))
            }
            Ok(Err(error)) => Finding::bad(format!("server {server} does not reach {target}: {error}")),
            Err(_) => Finding::bad(format!(
                "server {server} has not said for {ANSWER:?} whether it reaches {target}: read its log"
            )),
        });
    }
    findings
}

async fn ask(
    session: &Session<Carried>,
    target: &Target,
    flow: u32,
) -> Result<Answer, OpeningError> {
    let opening = match target {
        Target::Udp(_) => datagrams::opening(target.clone(), flow),
        _ => Opening::forward(target.clone()),
    };
    let (mut sending, mut inbound) = session.open(&opening).await?;
    let answer = inbound.answer().await?;
    sending.finish();
    Ok(answer)
}

/// Checks the status and metrics sockets that the configuration names.
fn of_sockets(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(address) = &settings.metrics_on {
        let bound = runtime().map_err(|error| error.to_string()).and_then(|runtime| {
            let bound = runtime.block_on(MetricsListener::bind(address));
            bound.map(drop).map_err(|error| error.to_string())
        });
        findings.push(match bound {
            Ok(()) => Finding::good(format!("metrics at {address}: free")),
            Err(error) => Finding::bad(format!("metrics cannot be served on {address}: {error}")),
        });
    }
    if let Some(path) = &settings.status_socket {
        let shown = path.display();
        let bound = runtime().map_err(|error| error.to_string()).and_then(|runtime| {
            // Binding the socket needs a runtime.
            let _entered = runtime.enter();
            status::listen(path).map(drop).map_err(|error| error.to_string())
        });
        findings.push(match bound {
            Ok(()) => Finding::good(format!("the status socket {shown} is free")),
            Err(error) => Finding::bad(format!("status socket {shown}: {error}")),
        });
    }
    findings
}

/// Binds a listener of the client briefly.
fn of_listener(listen: &Target) -> Finding {
    let bound = match listen {
        Target::Tcp(at) => TcpListener::bind((at.host(), at.port())).map(drop),
        Target::Udp(at) => UdpSocket::bind((at.host(), at.port())).map(drop),
        // `config::check` refuses services as listeners.
        Target::Service(_) => Ok(()),
        Target::Unix(path) => match path.parent().is_none_or(Path::is_dir) {
            true => Ok(()),
            false => Err(io::ErrorKind::NotFound.into()),
        },
    };
    match bound {
        Ok(()) => Finding::good(format!("{listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Finding::bad(format!(
            "{listen} is taken: stop its owner (ss -tulpn), or choose another address"
        )),
        Err(error) => Finding::bad(format!("{listen} cannot be listened on: {error}")),
    }
}

fn of_machine(identity: &Identity) -> Vec<Finding> {
    let certificate = identity.certificate();
    let name = certificate.names.first().map_or("this end", String::as_str);
    let own = format!(
        "the certificate of {name} ({}) is good until {}",
        certificate.pin,
        certificate.valid_until_date()
    );
    let buffer = Tuning::default().socket_buffer;
    let buffers = match receive_buffer(buffer) {
        Ok(is) if is >= buffer => {
            Finding::good(format!("UDP sockets may have buffers of {buffer}"))
        }
        Ok(is) => Finding::slow(format!(
            "UDP sockets get buffers of only {is}: sysctl -w net.core.rmem_max={}",
            buffer.count()
        )),
        Err(error) => Finding::bad(format!("cannot create a UDP socket: {error}")),
    };
    let offload = match segments() {
        true => Finding::good("the kernel cuts large UDP sends into packets (UDP_SEGMENT)"),
        false => Finding::slow("the kernel does not cut large UDP sends (UDP_SEGMENT, Linux 4.18)"),
    };
    vec![Finding::good(own), buffers, offload]
}

/// Returns the receive buffer size that the tunnel's sockets get.
fn receive_buffer(wanted: Bytes) -> io::Result<Bytes> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    let bytes = usize::try_from(wanted.count()).unwrap_or(usize::MAX);
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, bytes).is_err() {
        socket.set_recv_buffer_size(bytes)?;
    }
    // The kernel reports twice the requested size, to include its own overhead (socket(7),
    // SO_RCVBUF).
    Ok(Bytes::new(socket.recv_buffer_size()? as u64 / 2))
}

fn segments() -> bool {
    let state = UdpSocket::bind("127.0.0.1:0")
        .and_then(|socket| quinn_udp::UdpSocketState::new((&socket).into()));
    state.is_ok_and(|state| state.max_gso_segments() > 1)
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let word = match self.verdict {
            Verdict::Good => "ok  ",
            Verdict::Slow => "slow",
            Verdict::Bad => "FAIL",
        };
        write!(f, "{word}  {}", self.text)
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum wait for an opening's answer: twice as long as a server waits for a target by default.
const ANSWER: Duration = Duration::from_secs(20);
/// Memory budget of a check, which carries no data.
const MEMORY: Bytes = Bytes::kib(1024);
const SETTLE: Duration = Duration::from_millis(50);
/// The number of bursts. All bursts together have fewer datagrams than a server queues for flows
/// that are not open yet.
const EXCHANGES: u32 = 6;
/// Number of packets per burst: so many that the server acknowledges the last packets at once. The
/// server delays the acknowledgement of a single packet by more than a short round trip.
const BURST: u32 = 10;
/// A check never opens a flow with this number.
const NO_FLOW: u32 = FLOWS - 1;
const FAREWELL: Duration = Duration::from_millis(20);
