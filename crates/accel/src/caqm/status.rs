//! The installation, the traffic counters, and the state of the connections.

use super::NAME;
use super::installation::{self, Plan};
use super::interface::InterfaceName;
use super::view::{self, View};
use crate::AccelError;
use crate::counters::counters;
use crate::namespaces::{NamespaceId, run_in_each};
use crate::object::with_libbpf_log;
use crate::pins::{self, Pins, Presence};
use libbpf_rs::{MapCore, MapFlags};
use probe::tcp::{Filter, TcpSocket};
use std::collections::HashMap;
use std::net::SocketAddr;
use units::{Bytes, Rate, Span};

/// The state in the kernel, which may differ from the state that the last command requested.
#[derive(Debug, Clone, PartialEq)]
pub struct CaqmStatus {
    pub presence: Presence,
    /// Whether new connections negotiate; even a partial installation may negotiate.
    pub gives: bool,
    pub plan: Plan,
    /// The interfaces with CAQM; `None` if an interface has gone.
    pub interfaces: Vec<Option<InterfaceName>>,
    pub totals: Totals,
    pub flows: Vec<CaqmFlow>,
    /// The reason why the status shows no connections.
    pub hidden: Option<String>,
}

/// A negotiated connection, as the kernel of one end reports the connection.
#[derive(Debug, Clone, PartialEq)]
pub struct CaqmFlow {
    /// The connection's network namespace; `None` for this process's namespace.
    pub inside: Option<NamespaceId>,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub algorithm: String,
    pub rate: Option<Rate>,
    pub rtt: Option<Span>,
    pub window: Option<Bytes>,
    pub view: View,
}

/// Traffic since CAQM was installed, by CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    pub cpus: Vec<CpuTotals>,
}

counters! {
    /// The counters of one CPU, or their sum; `struct caqm_totals` of bpf/caqm_flow.h.
    CpuTotals {
        /// Tagged data sent, in super-packets; the next field counts segments on the wire.
        sent_packets,
        sent_segments,
        /// Sent packets of more than one segment.
        sent_super,
        sent_answers,
        heard_packets,
        heard_segments,
        /// Super-packets received: merged on arrival, or never split.
        heard_super,
        heard_answers,
        negotiated,
        /// Connections that match a rule but are not accepted: the peer did not offer CAQM, or an
        /// active end found no port.
        declined,
        /// Ends without a CAQM port on the path of their data: these ends use Reno, whatever the
        /// peer does.
        gave_up,
        /// Tags of another `cc_type`, which CAQM ignores.
        alone,
        /// Ignored tags on segments whose sequence or acknowledgement number the peer cannot have
        /// sent.
        implausible,
        /// The part of `negotiated` that the ends agreed on by reserved bits.
        by_bits,
    }
}

impl CaqmStatus {
    pub fn read() -> Result<Self, AccelError> {
        let mut status = Self {
            presence: Presence::Nothing,
            gives: false,
            plan: Plan::default(),
            interfaces: Vec::new(),
            totals: Totals::default(),
            flows: Vec::new(),
            hidden: None,
        };
        let Some(pins) = Pins::open_of_if_any(&pins::CAQM)? else { return Ok(status) };
        let presence = pins.presence();
        status.presence = presence;
        status.gives = pins.gives();
        status.plan = installation::in_force(&pins)?;
        if presence != Presence::Whole {
            return Ok(status);
        }
        let interfaces = installation::interfaces(&pins)?;
        status.interfaces = interfaces.into_iter().map(|(_, _, interface)| interface).collect();
        status.totals = Totals::read(&pins.map(pins::TOTALS)?)?;
        let views = view::read(&pins)?;
        match run_in_each(|inside| flows_here(&views, inside)) {
            Ok(flows) => status.flows = flows.into_iter().flatten().collect(),
            Err(AccelError::Probe(error)) if error.is_not_supported() => {
                status.hidden = Some(error.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(status)
    }
}

/// Lists the connections in the calling thread's namespace.
fn flows_here(
    views: &HashMap<u64, View>,
    inside: Option<&NamespaceId>,
) -> Result<Vec<CaqmFlow>, AccelError> {
    let sockets = probe::tcp::sockets(&Filter::established())?;
    let flow = |socket: &TcpSocket| {
        let info = socket.info.unwrap_or_default();
        Some(CaqmFlow {
            inside: inside.cloned(),
            local: socket.local,
            remote: socket.remote,
            algorithm: socket.congestion_control.clone().unwrap_or_else(|| NAME.to_owned()),
            rate: info.delivery_rate.filter(|rate| rate.bits_per_second() > 0),
            rtt: info.rtt.filter(|rtt| *rtt > Span::ZERO),
            window: info.cwnd(),
            view: views.get(&socket.cookie)?.clone(),
        })
    };
    Ok(sockets.iter().filter_map(flow).collect())
}

impl Totals {
    pub(crate) fn read(map: &impl MapCore) -> Result<Self, AccelError> {
        let bytes =
            with_libbpf_log(WHAT, || map.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY))?;
        let cpus = bytes.unwrap_or_default();
        Ok(Self { cpus: cpus.iter().map(|bytes| CpuTotals::from_bytes(bytes)).collect() })
    }

    pub fn sum(&self) -> CpuTotals {
        self.cpus.iter().copied().sum()
    }
}

impl CpuTotals {
    pub fn entries(&self) -> [(&'static str, u64); 14] {
        [
            ("sent_packets", self.sent_packets),
            ("sent_segments", self.sent_segments),
            ("sent_super", self.sent_super),
            ("sent_answers", self.sent_answers),
            ("heard_packets", self.heard_packets),
            ("heard_segments", self.heard_segments),
            ("heard_super", self.heard_super),
            ("heard_answers", self.heard_answers),
            ("negotiated", self.negotiated),
            ("declined", self.declined),
            ("gave_up", self.gave_up),
            ("alone", self.alone),
            ("implausible", self.implausible),
            ("by_bits", self.by_bits),
        ]
    }
}

const WHAT: &str = "the counters of tagged packets";
