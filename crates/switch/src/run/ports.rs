//! The switch's ports, which receive and send frames.

mod interface;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use flow::port_number::PortNumber;
use flow::request::{PortDescription, PortStatistics, QueueStatistics};
use flow::step::{Counters, PortIndex};
use link::{Capacity, LinkError};
use port::{Frame, PortError};
use probe::ethtool::Link;
use thiserror::Error;
use units::{Rate, Time};

use super::config::PortConfig;
use super::device::{Change, Device, has_carrier, is_enabled, own_address, request_mtu};
use super::egress_queues::{EgressQueues, PortQueues};
use super::interface_facts::{kernel_counters, link_of};
use super::ordered::{Mutex, MutexGuard, rank};
use super::pcap::PcapError;
use super::policing::{Policer, Policing};
use super::port_counts::PortCounts;
use super::shaper::Shaper;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("port {port}: {error}")]
    Pcap { port: String, error: PcapError },
    #[error("port {port}: {error}")]
    Port { port: String, error: PortError },
    #[error("port {port}: {error}")]
    Shaper { port: String, error: LinkError },
    #[error("port {port}: {reason}")]
    Mtu { port: String, reason: String },
}

/// A port of a bridge.
#[derive(Debug)]
pub struct SwitchPort {
    pub name: String,
    /// The index of the port's bridge.
    pub bridge: usize,
    pub number: PortNumber,
    /// The port's index in the switch.
    pub index: PortIndex,
    /// The Ethernet address, as a number of six bytes.
    address: AtomicU64,
    /// The Ethernet address when the port was opened.
    first_address: [u8; 6],
    /// The MTU that the settings request; 0 without a request.
    requested_mtu: AtomicU32,
    /// The MTU that was refused when the device was opened, with the reason.
    refused_mtu: Mutex<Option<(u32, String)>, { rank::LAST }>,
    /// The port's configuration: OFPPC_* flags.
    config: AtomicU32,
    pub(super) counts: PortCounts,
    pub settings: PortConfig,
    /// Whether a command has disabled a dummy port.
    is_disabled: AtomicBool,
    /// Whether the interface had a carrier at the last check.
    has_carrier: AtomicBool,
    /// Whether the kernel's interface was enabled at the last check. Always true for ports without
    /// an interface.
    is_enabled: AtomicBool,
    /// The port description that OpenFlow connections last received.
    reported: Mutex<Option<PortDescription>, { rank::LAST }>,
    device: Device,
    shaper: Option<Mutex<Shaper, { rank::SHAPER }>>,
    /// Whether the port has egress queues.
    has_queues: AtomicBool,
    queues: Mutex<PortQueues, { rank::QUEUES }>,
    is_policed: AtomicBool,
    policer: Mutex<Option<Policer>, { rank::LAST }>,
    opened: Time,
    /// Whether the patch port's peer exists.
    is_linked: AtomicBool,
    /// The counters of a patch port.
    patched: Option<Patched>,
}

/// The counters of a patch port's sent and received frames. Megaflows add to the counters.
#[derive(Debug, Default)]
pub(super) struct Patched {
    pub(super) sent: Arc<Counters>,
    pub(super) received: Arc<Counters>,
}

impl SwitchPort {
    /// Opens the port that `settings` describes. If the port's interface does not exist, returns
    /// the port with the error, and the switch opens the device later.
    pub(super) fn open(
        name: &str,
        bridge: usize,
        number: PortNumber,
        index: PortIndex,
        settings: &PortConfig,
        now: Time,
    ) -> Result<(Self, Option<OpenError>), OpenError> {
        // `SwitchPort::set_mtu` reports the refusal once the port is open.
        let refused_mtu = settings.mtu.and_then(|mtu| {
            let refusal = request_mtu(name, settings, mtu).err()?;
            Some((mtu, refusal.to_string()))
        });
        let (device, missing) = match Device::open(name, settings) {
            Ok(device) => (device, None),
            Err(error) if error.is_absence() => (Device::missing(settings), Some(error)),
            Err(error) => return Err(error),
        };
        let shaper = Shaper::new(settings.rate.as_deref(), settings.queue.as_deref(), now);
        let shaper = shaper.map_err(|error| OpenError::Shaper { port: name.to_owned(), error })?;
        let queues = PortQueues::new(&settings.egress_queue, now);
        let queues = queues.map_err(|error| OpenError::Shaper { port: name.to_owned(), error })?;
        let address = match settings.hardware_address {
            // A TAP device gets its address by `SwitchPort::set_address`, once the port is open.
            Some(address) if settings.kind != "tap" => address.0,
            _ => own_address(name, settings).unwrap_or_else(|| address_of(name, number)),
        };
        let port = Self {
            name: name.to_owned(),
            bridge,
            number,
            index,
            address: AtomicU64::new(number_of(address)),
            first_address: address,
            requested_mtu: AtomicU32::new(settings.mtu.unwrap_or(0)),
            refused_mtu: Mutex::new(refused_mtu),
            config: AtomicU32::new(0),
            counts: PortCounts::default(),
            settings: settings.clone(),
            is_disabled: AtomicBool::new(false),
            has_carrier: AtomicBool::new(has_carrier(name, settings)),
            is_enabled: AtomicBool::new(is_enabled(name, settings)),
            reported: Mutex::default(),
            device,
            shaper: shaper.map(Mutex::new),
            has_queues: AtomicBool::new(settings.egress_queue.has_any()),
            queues: Mutex::new(queues),
            is_policed: AtomicBool::new(false),
            policer: Mutex::default(),
            opened: now,
            is_linked: AtomicBool::new(false),
            patched: settings.peer.is_some().then(Patched::default),
        };
        port.set_policing(&settings.policing, now);
        Ok((port, missing))
    }

    /// Creates the bridge's own port, without a device.
    pub(super) fn local(name: &str, bridge: usize, index: PortIndex, now: Time) -> Self {
        let address = address_of(name, PortNumber::LOCAL);
        Self {
            name: name.to_owned(),
            bridge,
            number: PortNumber::LOCAL,
            index,
            address: AtomicU64::new(number_of(address)),
            first_address: address,
            requested_mtu: AtomicU32::new(0),
            refused_mtu: Mutex::default(),
            config: AtomicU32::new(0),
            counts: PortCounts::default(),
            settings: PortConfig::of_kind("internal"),
            is_disabled: AtomicBool::new(false),
            has_carrier: AtomicBool::new(true),
            is_enabled: AtomicBool::new(true),
            reported: Mutex::default(),
            device: Device::Null,
            shaper: None,
            has_queues: AtomicBool::new(false),
            queues: Mutex::default(),
            is_policed: AtomicBool::new(false),
            policer: Mutex::default(),
            opened: now,
            is_linked: AtomicBool::new(false),
            patched: None,
        }
    }

    pub(super) fn is_patch(&self) -> bool {
        self.settings.peer.is_some()
    }

    /// Returns the counters of a patch port.
    pub(super) fn patched(&self) -> Option<&Patched> {
        self.patched.as_ref()
    }

    /// Sets whether a patch port's peer exists.
    pub(super) fn set_linked(&self, is_linked: bool) {
        self.is_linked.store(is_linked, Ordering::Relaxed);
    }

    /// Whether frames can pass: the device exists and has a carrier, and the port is not disabled.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.device.is_there()
            && self.has_carrier.load(Ordering::Relaxed)
            && !self.is_disabled.load(Ordering::Relaxed)
    }

    pub fn set_disabled(&self, is_disabled: bool) {
        self.is_disabled.store(is_disabled, Ordering::Relaxed);
    }

    /// OpenFlow's OFPPC_* flags.
    #[must_use]
    pub fn config(&self) -> u32 {
        self.config.load(Ordering::Relaxed)
    }

    /// Sets the flags. A port that is set down drops the frames in its queues.
    pub(super) fn configure(&self, config: u32) {
        self.config.store(config, Ordering::Relaxed);
        if config & PORT_DOWN != 0 {
            self.queues.lock().clear();
            if let Some(shaper) = &self.shaper {
                shaper.lock().clear();
            }
        }
    }

    /// Returns the port number as 16 bits, as Open vSwitch's tools write it.
    pub(super) fn short_number(&self) -> u16 {
        self.number.0 as u16
    }

    fn is_set_down(&self) -> bool {
        self.config() & PORT_DOWN != 0
    }

    /// Returns the number of queues from which frames can arrive.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.device.queues()
    }

    /// Receives up to `limit` frames of a queue, counts them and returns their number. A port that
    /// is set down receives no frames.
    pub fn receive(
        &self,
        queue: usize,
        limit: usize,
        batch: &mut Vec<Frame>,
    ) -> Result<usize, PortError> {
        let before = batch.len();
        let received = self.device.receive(queue, limit, batch)?;
        if self.is_set_down() {
            // An interface that is down discards frames without counting these frames.
            batch.truncate(before);
            return Ok(0);
        }
        if received > 0 {
            self.count_received(&batch[before..]);
        }
        Ok(received)
    }

    fn count_received(&self, frames: &[Frame]) {
        let (packets, bytes) = on_wire(frames);
        self.counts.add_received(packets, bytes);
    }

    /// Sets the limits of the frames that the port receives. If the settings do not change, the
    /// buckets keep their tokens.
    pub(super) fn set_policing(&self, settings: &Policing, now: Time) {
        let mut policer = self.policer.lock();
        if policer.as_ref().map_or(&Policing::default(), Policer::settings) != settings {
            *policer = Policer::new(settings, now);
            self.is_policed.store(policer.is_some(), Ordering::Relaxed);
        }
    }

    /// Drops received frames beyond the limits of the port's policing.
    pub(super) fn police(&self, frames: &mut Vec<Frame>, arrival: impl Fn(&Frame) -> Time) {
        if !self.is_policed.load(Ordering::Relaxed) {
            return;
        }
        // The limits count frames as on the wire, so super-packets are cut first.
        Frame::finish_unless(frames, |offload| !offload.is_super());
        let policer = self.policer.lock();
        let Some(policer) = policer.as_ref() else { return };
        let before = frames.len();
        frames.retain(|frame| policer.admits(frame.len(), arrival(frame)));
        let dropped = (before - frames.len()) as u64;
        self.counts.add_policed(dropped);
    }

    /// Returns the number of frames that policing has dropped; `None` if the port has no limits.
    pub(super) fn policed(&self) -> Option<u64> {
        let dropped = self.counts.totals().policed;
        (dropped > 0 || self.is_policed.load(Ordering::Relaxed)).then_some(dropped)
    }

    /// Counts frames that a command injects. A dummy port also writes these frames to its capture.
    pub(super) fn inject(&self, frames: &[Frame]) {
        self.count_received(frames);
        if self.settings.kind == "dummy" {
            self.device.record(&self.name, frames);
        }
    }

    /// Sets the egress queues. Returns whether the new settings differ from the former settings.
    pub(super) fn set_queues(&self, settings: &EgressQueues, now: Time) -> Result<bool, OpenError> {
        let mut queues = self.queues.lock();
        if queues.settings() == settings {
            return Ok(false);
        }
        let changed = queues.change(settings, now);
        let dropped =
            changed.map_err(|error| OpenError::Shaper { port: self.name.clone(), error })?;
        // The frames that the former queues dropped still count as dropped by the port.
        self.counts.add_dropped(dropped);
        self.has_queues.store(settings.has_any(), Ordering::Relaxed);
        Ok(true)
    }

    /// Returns the settings of the egress queues.
    pub(super) fn egress_queues(&self) -> EgressQueues {
        self.queues.lock().settings().clone()
    }

    /// Locks the egress queues, if the port has egress queues.
    fn queues_if_any(&self) -> Option<MutexGuard<'_, PortQueues>> {
        self.has_queues.load(Ordering::Relaxed).then(|| self.queues.lock())
    }

    /// Sends frames of an egress queue and counts them. A port with a rate sends the frames that
    /// may leave by `horizon`, and queues the other frames. A port that is set down drops all
    /// frames.
    pub(super) fn send(
        &self,
        queue: u32,
        frames: &mut Vec<Frame>,
        arrival: impl Fn(&Frame) -> Time,
        horizon: Time,
    ) -> Result<(), PortError> {
        let mut queues = self.queues_if_any();
        let mut shaper = self.shaper.as_ref().map(Mutex::lock);
        // Check the state under the lock, so that no thread queues a frame after the queue was
        // emptied.
        if self.is_set_down() {
            self.counts.add_dropped(on_wire(frames).0);
            return Ok(());
        }
        if let Some(queues) = &mut queues {
            queues.enqueue(queue, frames, &arrival);
        }
        match &mut shaper {
            Some(shaper) => {
                // The queue and the rate count frames as on the wire, so super-packets are cut
                // first.
                Frame::finish_all(frames);
                shaper.enqueue(frames, arrival);
            }
            None if frames.is_empty() => {}
            None => self.transmit(frames)?,
        }
        self.release_from(queues.as_deref_mut(), shaper.as_deref_mut(), horizon).map(drop)
    }

    /// Sends the queued frames that may leave by `horizon`. Returns the time at which a further
    /// frame may leave.
    pub(super) fn release(&self, horizon: Time) -> Result<Option<Time>, PortError> {
        let mut queues = self.queues_if_any();
        let mut shaper = self.shaper.as_ref().map(Mutex::lock);
        self.release_from(queues.as_deref_mut(), shaper.as_deref_mut(), horizon)
    }

    /// Sends the frames that may leave by `horizon`: first through the egress queues, then through
    /// the port's queue.
    fn release_from(
        &self,
        queues: Option<&mut PortQueues>,
        mut shaper: Option<&mut Shaper>,
        horizon: Time,
    ) -> Result<Option<Time>, PortError> {
        let mut frames = Vec::new();
        let mut next = None;
        if let Some(queues) = queues {
            for (departure, frame) in queues.release(horizon) {
                match &mut shaper {
                    Some(shaper) => shaper.enqueue_one(departure, frame),
                    None => frames.push(frame),
                }
            }
            next = queues.next();
        }
        if let Some(shaper) = shaper {
            shaper.release(horizon, &mut frames);
            next = next.into_iter().chain(shaper.next()).min();
        }
        if !frames.is_empty() {
            // Hold the locks, so that other threads send no frames between these frames.
            self.transmit(&mut frames)?;
        }
        Ok(next)
    }

    /// Whether the port may hold frames: it has a rate or egress queues, which may have rates.
    pub(super) fn holds_frames(&self) -> bool {
        self.shaper.is_some() || self.has_queues.load(Ordering::Relaxed)
    }

    fn transmit(&self, frames: &mut Vec<Frame>) -> Result<(), PortError> {
        Frame::finish_unless(frames, |offload| self.device.takes(offload));
        // Without a carrier, the kernel would refuse each frame as if its queue were full.
        let sent = match self.has_carrier.load(Ordering::Relaxed) {
            true => self.device.send(&self.name, frames),
            false => Ok(0),
        };
        let accepted = *sent.as_ref().unwrap_or(&0);
        let (accepted, dropped) = frames.split_at(accepted.min(frames.len()));
        let (packets, bytes) = on_wire(accepted);
        self.counts.add_sent(packets, bytes);
        if !dropped.is_empty() {
            self.counts.add_dropped(on_wire(dropped).0);
        }
        sent.map(drop)
    }

    /// Tries to open a missing device. Checks the link of an open device if the link may have
    /// changed. Returns the change.
    pub(super) fn look_after(&self, may_link_differ: bool) -> Option<Change> {
        // The device sizes its buffers by the MTU.
        let requested = if self.device.is_there() { Ok(false) } else { self.request_mtu() };
        let change = self.device.look_after(&self.name, &self.settings);
        if change == Some(Change::Back) {
            self.set_refused_mtu(requested.err());
        }
        if !may_link_differ && change.is_none() {
            return None;
        }
        let now = has_carrier(&self.name, &self.settings);
        let former = self.has_carrier.swap(now, Ordering::Relaxed);
        let is_enabled = is_enabled(&self.name, &self.settings);
        let was_enabled = self.is_enabled.swap(is_enabled, Ordering::Relaxed);
        if is_enabled && !was_enabled {
            // As in Open vSwitch, the kernel's state overrides the configuration.
            self.config.fetch_and(!PORT_DOWN, Ordering::Relaxed);
        }
        if change.is_some() {
            return change;
        }
        if is_enabled != was_enabled {
            // An interface that no longer exists counts as enabled.
            let is_up = is_enabled && now && self.device.is_there();
            return Some(if is_up { Change::LinkUp } else { Change::LinkDown });
        }
        if former == now || !self.device.is_there() {
            return None;
        }
        Some(if now { Change::LinkUp } else { Change::LinkDown })
    }

    /// Whether a thread may wait for the queues' descriptors. False if the device is gone, because
    /// its descriptors are then always readable.
    pub(super) fn may_wake(&self) -> bool {
        self.device.may_wake()
    }

    pub(super) fn fd(&self, queue: usize) -> Option<OwnedFd> {
        self.device.fd(queue)
    }

    /// Whether no further frame can arrive from a queue.
    #[must_use]
    pub fn is_finished(&self, queue: usize) -> bool {
        self.device.is_finished(queue)
    }

    /// Flushes the capture writer.
    pub fn flush(&self) {
        self.device.flush(&self.name);
    }

    #[must_use]
    pub fn description(&self) -> PortDescription {
        let config = self.config();
        let is_up = self.is_up() && config & PORT_DOWN == 0;
        let link = link_of(&self.name, &self.settings);
        let speed = self.speed(&link);
        PortDescription {
            number: self.number,
            hardware_address: self.hardware_address(),
            name: self.name.clone(),
            config,
            state: if is_up { LIVE } else { LINK_DOWN },
            current_speed_kbit: kbit(speed),
            max_speed_kbit: kbit(link.supported_most.or(link.speed).or(speed)),
        }
    }

    /// Stores the new description for OpenFlow connections. Returns the former and the new
    /// description. In this description, a port whose interface is disabled in the kernel is down.
    /// Translations use [`SwitchPort::description`] instead: the kernel drops the frames of a
    /// disabled interface anyway, and the switch learns only later that a user has enabled the
    /// interface.
    pub(super) fn report(&self) -> (Option<PortDescription>, PortDescription) {
        let mut shown = self.description();
        if self.is_disabled_by_kernel() {
            (shown.config, shown.state) = (shown.config | PORT_DOWN, LINK_DOWN);
        }
        (self.reported.lock().replace(shown.clone()), shown)
    }

    /// Returns the description that connections last got.
    pub(super) fn reported(&self) -> Option<PortDescription> {
        self.reported.lock().clone()
    }

    /// Returns the speed at which frames leave: the link's speed, or the port's rate if that is
    /// lower.
    fn speed(&self, link: &Link) -> Option<Rate> {
        let rate = self.settings.rate.as_deref().and_then(Capacity::mean_rate);
        rate.into_iter().chain(link.speed).min()
    }

    /// Returns how long the port has existed.
    pub(super) fn age(&self, now: Time) -> Duration {
        Duration::from_nanos(now.since(self.opened).nanos())
    }

    /// Returns the counters of the egress queues.
    pub(super) fn queue_statistics(&self, now: Time) -> Vec<QueueStatistics> {
        self.queues_if_any().map(|queues| queues.statistics(now)).unwrap_or_default()
    }

    /// Returns the counters. The caller must add the duration and the egress queues.
    #[must_use]
    pub fn statistics(&self) -> PortStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = self.counts.totals();
        // Ports of these types have no kernel interface that could drop frames.
        let loses_nothing = matches!(self.settings.kind.as_str(), "dummy" | "internal" | "patch");
        let dropped = || {
            counts.sent_dropped
                + self.queues_if_any().map_or(0, |queues| queues.dropped())
                + self.shaper.as_ref().map_or(0, |shaper| shaper.lock().dropped())
        };
        let kernel = kernel_counters(&self.name, &self.settings);
        let received_dropped = match (kernel.received_dropped, self.policed()) {
            (None, None) => None,
            (by_kernel, policed) => Some(by_kernel.unwrap_or(0) + policed.unwrap_or(0)),
        };
        let patched = |of: fn(&Patched) -> &Counters| {
            let counters = self.patched.as_ref().map(of);
            counters.map_or((0, 0), |counters| (read(&counters.packets), read(&counters.bytes)))
        };
        let (received, sent) =
            (patched(|patched| &patched.received), patched(|patched| &patched.sent));
        PortStatistics {
            number: self.number.0,
            received_packets: counts.received_packets + received.0,
            received_bytes: counts.received_bytes + received.1,
            received_dropped,
            sent_packets: counts.sent_packets + sent.0,
            sent_bytes: counts.sent_bytes + sent.1,
            sent_dropped: (self.holds_frames() || !loses_nothing).then(dropped),
            has_rate: self.shaper.is_some(),
            ..kernel
        }
    }

    /// Describes the device behind the port for users.
    #[must_use]
    pub fn describe(&self) -> String {
        if let Some(peer) = &self.settings.peer {
            return match self.is_linked.load(Ordering::Relaxed) {
                true => format!("patch to {peer}"),
                false => format!("patch without its peer {peer}"),
            };
        }
        self.device.describe()
    }
}

impl OpenError {
    /// Whether the interface is missing or down, so that a later attempt may succeed.
    pub(super) fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::Port {
                error: PortError::NoSuchInterface { .. } | PortError::InterfaceDown { .. },
                ..
            }
        )
    }
}

/// Returns the number of frames on the wire, and of their bytes: a super-packet counts as its
/// segments.
fn on_wire(frames: &[Frame]) -> (u64, u64) {
    let frames = frames.iter().map(Frame::on_wire);
    frames.fold((0, 0), |sum, frame| (sum.0 + frame.0, sum.1 + frame.1))
}

/// Derives a locally administered address that is the same after each start.
pub(super) fn address_of(name: &str, number: PortNumber) -> [u8; 6] {
    let text = name.bytes().chain(number.0.to_be_bytes());
    let hash = text.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [_, _, a, b, c, d, e, f] = hash.to_be_bytes();
    [a & 0xfc | 0x02, b, c, d, e, f]
}

fn number_of([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Converts a speed to kbit/s, the unit of OpenFlow; 0 means an unknown speed.
fn kbit(speed: Option<Rate>) -> u32 {
    speed.map_or(0, |speed| u32::try_from(speed.bits_per_second() / 1000).unwrap_or(u32::MAX))
}

/// OpenFlow's OFPPC_PORT_DOWN.
const PORT_DOWN: u32 = 1;
/// OFPPS_LINK_DOWN and OFPPS_LIVE.
const LINK_DOWN: u32 = 1;
const LIVE: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Leaf;

    #[test]
    fn a_port_that_is_set_down_drops_its_queue_and_sends_nothing() {
        let mut settings = PortConfig::of_kind("null");
        settings.rate = Some(Leaf("1mbit".parse().unwrap()));
        let index = PortIndex(1);
        let opened = SwitchPort::open("p1", 0, PortNumber(1), index, &settings, Time::ZERO);
        let (port, _) = opened.unwrap();
        let millisecond = |number: u64| Time::from_nanos(number * 1_000_000);
        let send = |number: usize| {
            // Each frame takes a millisecond to send.
            let mut frames = vec![Frame::from_bytes(&[0; 125], Time::ZERO); number];
            port.send(0, &mut frames, |_| Time::ZERO, Time::ZERO).unwrap();
        };
        let counts = || {
            let statistics = port.statistics();
            (statistics.sent_packets, statistics.sent_dropped)
        };
        send(4);
        assert_eq!(port.release(millisecond(1)).unwrap(), Some(millisecond(2)));
        port.configure(PORT_DOWN);
        send(2);
        assert_eq!(port.release(millisecond(9)).unwrap(), None);
        assert_eq!(counts(), (1, Some(5)));
        port.configure(0);
        send(1);
        assert!(port.release(millisecond(20)).unwrap().is_none());
        assert_eq!(counts(), (2, Some(5)));
    }

    #[test]
    fn frames_leave_an_egress_queue_at_its_rate_and_then_the_port_at_the_rate_of_the_port() {
        let mut settings = PortConfig::of_kind("null");
        settings.rate = Some(Leaf("2mbit".parse().unwrap()));
        let queues = "1 = { rate = \"1mbit\" }\n2 = { rate = \"1mbit\" }\n3 = { rate = \"1mbit\" }";
        settings.egress_queue = settings::parse(queues).unwrap();
        let index = PortIndex(1);
        let opened = SwitchPort::open("p1", 0, PortNumber(1), index, &settings, Time::ZERO);
        let (port, _) = opened.unwrap();
        let half = |number: u64| Time::from_nanos(number * 500_000);
        for queue in [1, 2, 3] {
            let mut frames = vec![Frame::from_bytes(&[0; 125], Time::ZERO); 10];
            port.send(queue, &mut frames, |_| Time::ZERO, Time::ZERO).unwrap();
        }
        // Each queue sends one frame in a millisecond, and the port sends two frames in a
        // millisecond.
        port.release(half(20)).unwrap();
        assert_eq!(port.statistics().sent_packets, 18);
        assert_eq!(port.queue_statistics(half(20)).len(), 3);
        while port.release(half(40)).unwrap().is_some_and(|next| next <= half(40)) {}
        assert_eq!(port.statistics().sent_packets, 30);
        assert!(port.holds_frames() && !port.set_queues(&settings.egress_queue, half(40)).unwrap());
        assert!(port.set_queues(&EgressQueues::default(), half(40)).unwrap());
        assert!(port.queue_statistics(half(40)).is_empty());
    }

    #[test]
    fn policing_and_drops_count_the_frames_of_a_super_packet() {
        let mut settings = PortConfig::of_kind("null");
        (settings.policing.packet_rate, settings.policing.packet_burst) = (Some(1), Some(2));
        let index = PortIndex(1);
        let opened = SwitchPort::open("p1", 0, PortNumber(1), index, &settings, Time::ZERO);
        let (port, _) = opened.unwrap();
        // A TCP super-packet; the test does not need a correct checksum.
        let mut packet = vec![2; 12];
        packet.extend([0x08, 0x00, 0x45, 0, 0x0b, 0xe0, 0, 7, 0x40, 0, 64, 6, 0, 0]);
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0, 80, 0, 0, 0, 9, 0, 0, 0, 1]);
        packet.extend([0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        packet.extend([0; 3_000]);
        let virtio = wire::VirtioHeader {
            partial_checksum: Some(wire::virtio::PartialChecksum { start: 34, offset: 16 }),
            gso: Some(wire::Gso { kind: wire::virtio::GsoKind::TcpV4, ecn: false, size: 1_000 }),
            data_valid: false,
            header_len: 54,
        };
        let mut frame = Frame::from_bytes(&packet, Time::ZERO);
        frame.set_offload(port::Offload::of(&packet, &virtio).unwrap());
        let mut frames = vec![frame.clone()];
        port.police(&mut frames, |_| Time::ZERO);
        assert_eq!((frames.len(), port.policed()), (2, Some(1)));
        port.configure(PORT_DOWN);
        port.send(0, &mut vec![frame], |_| Time::ZERO, Time::ZERO).unwrap();
        assert_eq!(port.statistics().sent_dropped, Some(3));
    }
}
