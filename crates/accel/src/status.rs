//! The installation, and the state of the connections with the algorithm.

use crate::algorithm::NAME;
use crate::core_view::{self, CoreView};
use crate::installation::in_force;
use crate::memory::{self, Memory};
use crate::namespaces::{NamespaceId, run_in_each};
use crate::pins::{Pins, Presence};
use crate::policy::Policy;
use crate::system::Journal;
use crate::work::Work;
use crate::{AccelError, Module, Prefix, kernel, modules};
use probe::tcp::{Filter, TcpInfo, TcpSocket};
use std::cmp::Reverse;
use std::net::SocketAddr;
use units::{Bytes, Rate, Share, Span};

/// The state in the kernel, which may differ from the state that the last command requested.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub presence: Presence,
    /// Whether new connections get the algorithm; even a partial installation may give it.
    pub gives: bool,
    pub policy: Policy,
    /// Connections in this network namespace and in every other namespace in use.
    pub flows: Vec<Flow>,
    /// The reason why the status shows no connections.
    pub hidden: Option<String>,
    /// The work of connections that had tcpa and have ended since it was installed.
    pub ended: Work,
}

/// One connection with the algorithm.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// The connection's network namespace; `None` for this process's namespace.
    pub inside: Option<NamespaceId>,
    /// The connection's algorithm: tcpa, or an algorithm of the kernel that a rule gave.
    pub algorithm: String,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The recent delivery rate.
    pub rate: Option<Rate>,
    pub pacing: Option<Rate>,
    pub rtt: Option<Span>,
    pub min_rtt: Option<Span>,
    pub window: Option<Bytes>,
    /// The share of sent segments that were retransmitted.
    pub retransmitted: Option<Share>,
    pub acked: Option<Bytes>,
    pub limit: Limit,
    /// The kernel's id of the socket.
    pub cookie: u64,
    /// tcpa's state of this connection. `None` if the connection still runs the program of an
    /// earlier installation, or the program before an update.
    pub core: Option<CoreView>,
    /// The memory that ended connections to the same destination left.
    pub remembered: Option<Memory>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The connection has nothing to send.
    Idle,
    /// The application does not write enough.
    Application,
    /// The peer's receive window limits the rate.
    Receiver,
    /// This end's send buffer (`wmem`) limits the rate.
    SendBuffer,
    /// The path limits the rate, according to the algorithm's estimate.
    Path,
}

impl Status {
    pub fn read() -> Result<Self, AccelError> {
        kernel::interface()?;
        let pins = Pins::open_if_any()?;
        let presence = pins.as_ref().map_or(Presence::Nothing, Pins::presence);
        let policy = match &pins {
            Some(pins) => in_force(pins)?,
            None => Policy { system: Journal::read()?.system(), ..Policy::default() },
        };
        let (mut flows, hidden): (Vec<Flow>, _) =
            match run_in_each(|inside| flows_here(inside, &policy)) {
                Ok(flows) => (flows.into_iter().flatten().collect(), None),
                // Show the installation without connections.
                Err(AccelError::Probe(error)) if error.is_not_supported() => {
                    (Vec::new(), Some(error.to_string()))
                }
                Err(error) => return Err(error),
            };
        let mut ended = Work::default();
        if let Some(pins) = pins.as_ref().filter(|_| presence != Presence::Nothing) {
            ended = Work::of_ended(pins).unwrap_or_default();
            // A partial installation may lack the views or the memories; show the kernel's own data
            // without them.
            let mut views = core_view::read(pins).unwrap_or_default();
            // Keep a flow with an algorithm of the kernel only if a rule gave the algorithm:
            // programs also choose algorithms of the kernel themselves.
            flows.retain(|flow| flow.algorithm == NAME || views.others.contains(&flow.cookie));
            let memories = memory::read_in(pins).unwrap_or_default();
            for flow in &mut flows {
                flow.core = views.cores.remove(&flow.cookie);
                let remote = Prefix::from(flow.remote.ip());
                flow.remembered = memories.iter().find(|m| m.to.covers(remote)).cloned();
            }
        }
        // The sort is stable: namespaces stay together, each with its fastest connection first.
        flows.sort_by_key(|flow| Reverse(flow.rate));
        flows.sort_by_key(|flow| flow.inside.as_ref().map(NamespaceId::to_string));
        let gives = pins.is_some_and(|pins| pins.gives());
        Ok(Self { presence, gives, policy, flows, hidden, ended })
    }

    /// Sums the work of all connections that had tcpa since it was installed.
    pub fn work(&self) -> Work {
        let open = self.flows.iter().filter_map(|flow| Some(flow.core.as_ref()?.work));
        open.chain([self.ended]).sum()
    }

    pub fn modules(&self) -> Vec<Module> {
        if self.presence != Presence::Whole {
            return Vec::new();
        }
        let open = self.flows.iter().filter(|flow| flow.core.is_some());
        let rates = open.filter_map(|flow| Some(flow.pacing?.bits_per_second()));
        // The kernel's maximum rate means that tcpa has not set a rate yet.
        let limited = rates.filter(|bits| *bits < u64::MAX);
        let pacing = limited.fold(0_u64, u64::saturating_add);
        modules::modules(&self.policy, &self.work(), Some(Rate::from_bits_per_second(pacing)))
    }
}

/// Lists the connections in the calling thread's namespace.
fn flows_here(inside: Option<&NamespaceId>, policy: &Policy) -> Result<Vec<Flow>, AccelError> {
    let sockets = probe::tcp::sockets(&Filter::established())?;
    let given = policy.kernel_algorithms();
    let is_ours = |name: &str| name == NAME || given.iter().any(|one| one.name() == name);
    let ours = |socket: &&TcpSocket| socket.congestion_control.as_deref().is_some_and(is_ours);
    Ok(sockets.iter().filter(ours).map(|socket| Flow::of(socket, inside)).collect())
}

impl Flow {
    fn of(socket: &TcpSocket, inside: Option<&NamespaceId>) -> Self {
        let info = socket.info.unwrap_or_default();
        let retransmitted = info.total_retrans.zip(info.data_segs_out).and_then(|(again, all)| {
            (all > 0).then(|| Share::new(f64::from(again) / f64::from(all)).unwrap_or(Share::ONE))
        });
        Self {
            inside: inside.cloned(),
            algorithm: socket.congestion_control.clone().unwrap_or_default(),
            local: socket.local,
            remote: socket.remote,
            rate: info.delivery_rate.filter(|rate| rate.bits_per_second() > 0),
            pacing: info.pacing_rate,
            rtt: info.rtt.filter(|rtt| *rtt > Span::ZERO),
            min_rtt: info.min_rtt,
            window: info.cwnd(),
            retransmitted,
            acked: info.bytes_acked,
            limit: Limit::of(&info),
            cookie: socket.cookie,
            core: None,
            remembered: None,
        }
    }
}

impl Limit {
    fn of(info: &TcpInfo) -> Self {
        let busy = info.busy_time.unwrap_or(Span::ZERO);
        let most = |span: Option<Span>| {
            busy > Span::ZERO && span.is_some_and(|span| span.nanos() > busy.nanos() / 2)
        };
        if info.unacked == Some(0) && info.notsent.is_some_and(|bytes| bytes.count() == 0) {
            Self::Idle
        } else if most(info.rwnd_limited) {
            Self::Receiver
        } else if most(info.sndbuf_limited) {
            Self::SendBuffer
        } else if info.delivery_rate_app_limited == Some(true) {
            Self::Application
        } else {
            Self::Path
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Application => "application",
            Self::Receiver => "receiver",
            Self::SendBuffer => "send buffer",
            Self::Path => "path",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_limit_of_a_connection_is_reported() {
        let mut info = TcpInfo::default();
        assert_eq!(Limit::of(&info), Limit::Path);
        info.delivery_rate_app_limited = Some(true);
        assert_eq!(Limit::of(&info), Limit::Application);
        info.busy_time = Some(Span::from_secs(2));
        info.sndbuf_limited = Some(Span::from_millis(1500));
        assert_eq!(Limit::of(&info), Limit::SendBuffer);
        info.rwnd_limited = Some(Span::from_millis(1100));
        assert_eq!(Limit::of(&info), Limit::Receiver);
        (info.unacked, info.notsent) = (Some(0), Some(Bytes::new(0)));
        assert_eq!(Limit::of(&info), Limit::Idle);
    }
}
