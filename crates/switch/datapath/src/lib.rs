//! The datapath, which applies the pipeline's translation of a flow's first packet to later
//! packets.
//!
//! The crate is for packet threads. The crate has no rules and no tables: a pipeline translates
//! through [`flow::step::Translate`]. Begin with [`Datapath`]; [`conntrack`] tracks connections.
//! The crate does no I/O. Frames and their buffers come from the crate `port`.
//!
//! | file | for |
//! | --- | --- |
//! | `tracker.rs`, `sink.rs`, `meter.rs` | the interfaces to tracking, ports and meters |
//! | `parse.rs` | the fields of a frame |
//! | `packet.rs`, `edit.rs`, `checksum.rs` | a packet, and changes of it |
//! | `cache.rs` | megaflows by mask and key |
//! | `program.rs`, `execute.rs` | steps, compiled and run |
//! | `pass.rs` | the stages of a batch after the parser |
//! | `conntrack.rs` | connections and address translation |
//! | `statistics.rs` | counts, and the time of each stage |
//!
//! docs/internals/switch.md explains the five stages of a batch, and what each guess saves.
//!
//! # Use
//!
//! A packet thread has one [`Datapath`] for each bridge, because numbers of ports, recirculations
//! and meters belong to a bridge. In its loop the thread receives frames from a port, passes them
//! to [`Datapath::process`], and calls [`Datapath::maintain`] now and then. The pipeline (`slow`)
//! translates the first packet of a flow, and the sink gets the outgoing frames.
//!
//! ```
//! use flow::port_number::PortNumber;
//! use flow::request::{PacketIn, PortDescription};
//! use flow::step::PortIndex;
//! use port::Frame;
//! use datapath::{Callees, Datapath, NoTracker, Settings, Sink};
//! use pipeline::{BridgePort, Tables, Translator};
//! use text::{PortNames, parse_flow_line};
//! use units::Time;
//!
//! #[derive(Default)]
//! struct Sent(Vec<(PortIndex, usize)>);
//!
//! impl Sink for Sent {
//!     fn transmit(&mut self, port: PortIndex, frames: &mut Vec<Frame>) {
//!         self.0.push((port, frames.len()));
//!     }
//!     fn packet_in(&mut self, _: Option<u16>, _: PacketIn) {}
//! }
//!
//! let mut tables = Tables::new();
//! for number in [1_u16, 2] {
//!     let description = PortDescription {
//!         number: PortNumber(number.into()),
//!         hardware_address: [2, 0, 0, 0, 0, number as u8],
//!         name: format!("p{number}"),
//!         config: 0,
//!         state: 0,
//!         current_speed_kbit: 0,
//!         max_speed_kbit: 0,
//!     };
//!     tables.insert_port(BridgePort { index: PortIndex(number), description });
//! }
//! let rule = parse_flow_line("in_port=1 actions=output:2", &PortNames::none()).unwrap();
//! tables.change_all(vec![rule], 0).unwrap();
//!
//! let mut datapath = Datapath::new(Settings::default());
//! let (mut tracker, mut sent) = (NoTracker, Sent::default());
//! let mut callees = Callees {
//!     slow: &mut Translator::new(&tables),
//!     tracker: &mut tracker,
//!     sink: &mut sent,
//! };
//! let mut frames = vec![Frame::from_bytes(&[0; 60], Time::ZERO)];
//! datapath.process(1, &mut frames, Time::ZERO, &mut callees);
//! datapath.maintain(Time::ZERO, &mut callees);
//! assert_eq!(sent.0, [(PortIndex(2), 1)]);
//! ```
//!
//! Frames from one port to another keep their order, with these exceptions: a packet that
//! recirculates follows the packets of its batch that do not recirculate, and a copy may overtake
//! its original.
//!
//! A frame may be unfinished ([`port::Offload`]): its sender left the checksum, and perhaps the
//! segmentation, to a network card. The datapath processes an unfinished packet as a whole, and
//! counts it as the frames that it stands for. These steps cut it into its frames: packet-ins,
//! truncated output, MPLS headers, checks of the length, and meters that let only a part of the
//! packet pass. The sink finishes frames for ports that accept only finished frames.
//!
//! The datapath reads no clock. `now` is the switch's clock; it may stand still or jump forward
//! (`time/warp`), but not back. The pipeline gets the same clock in milliseconds.

mod cache;
mod checksum;
pub mod conntrack;
mod edit;
mod execute;
mod meter;
mod packet;
mod parse;
mod pass;
mod program;
mod sink;
mod statistics;
mod tracker;

use std::sync::Arc;

use flow::Megaflow;
use flow::step::{Translate, Translation};
use port::Frame;
use units::Time;

use self::cache::{Cache, Lookup};
use self::execute::{Batch, Runner};
pub use self::meter::{MeterCounts, Meters, Verdict};
pub use self::packet::{Layout, Packet, flag};
pub use self::parse::extract;
use self::pass::{ConnectionPrefetch, Stopwatch};
use self::program::compile;
pub use self::sink::Sink;
pub use self::statistics::{Stages, Statistics};
use self::tracker::Steps;
pub use self::tracker::{
    Guess, GuessFor, NoTracker, Prefetched, ToTrack, TrackCall, Tracked, Tracker,
};

/// The datapath of one bridge on one packet thread.
#[derive(Debug)]
pub struct Datapath {
    batch: Batch,
    cache: Cache,
    lookup: Lookup,
    many_megaflows: usize,
    connections: ConnectionPrefetch,
    /// Megaflows added since the last [`Datapath::take_installs`], each with the complete key of
    /// its first packet; `None` unless [`Datapath::report_installs`] asked for the list.
    installs: Option<Vec<Megaflow>>,
    ticks: fn() -> u64,
    /// The current time, as the caller gave it in the last call.
    now: Time,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// The bridge's meters.
    pub meters: Arc<Meters>,
    /// A clock for [`Stages`], for example the processor's time stamp counter. Its rate may be
    /// unknown. [`no_ticks`] switches the measurement of stages off.
    pub ticks: fn() -> u64,
    /// Number of megaflows in a mask from which lookups try the connection's guess first. A packet
    /// of a known connection is then compared with the megaflow that matched the connection's last
    /// packet, before the mask's hash table.
    pub many_megaflows: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { meters: Arc::default(), ticks: no_ticks, many_megaflows: 64 }
    }
}

/// A clock that always returns 0, which switches the measurement of stages off.
#[must_use]
pub fn no_ticks() -> u64 {
    0
}

/// The objects that the datapath calls during one of its methods.
#[derive(Debug)]
pub struct Callees<'a, T: ?Sized, K: ?Sized, S: ?Sized> {
    pub slow: &'a mut T,
    pub tracker: &'a mut K,
    pub sink: &'a mut S,
}

impl Datapath {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            batch: Batch::new(settings.meters),
            cache: Cache::new(MAX_MEGAFLOWS),
            lookup: Lookup::default(),
            many_megaflows: settings.many_megaflows,
            connections: ConnectionPrefetch::default(),
            installs: None,
            ticks: settings.ticks,
            now: Time::ZERO,
        }
    }

    /// Processes all `frames`, which arrived on the OpenFlow port `in_port`. When the call returns,
    /// the sink has got every outgoing frame.
    pub fn process<T, K, S>(
        &mut self,
        in_port: u32,
        frames: &mut Vec<Frame>,
        now: Time,
        callees: &mut Callees<'_, T, K, S>,
    ) where
        T: Translate + ?Sized,
        K: Tracker + ?Sized,
        S: Sink + ?Sized,
    {
        self.now = now;
        let mut frames = frames.drain(..);
        while !frames.as_slice().is_empty() {
            let mut watch = self.watch();
            self.cache.settle();
            self.parse(in_port, frames.by_ref().take(BATCH), &*callees.tracker);
            watch.lap(&mut self.batch.statistics.stages.parse);
            if watch.is_running() {
                self.batch.statistics.stages.packets += self.batch.current.len() as u64;
            }
            self.passes(now, callees, &mut watch);
            self.batch.transmit(callees.sink);
            watch.lap(&mut self.batch.statistics.stages.transmit);
        }
    }

    /// Stage 1: parses frames. Meanwhile prefetches the megaflows of their first pass, and their
    /// connections.
    fn parse<K: Tracker + ?Sized>(
        &mut self,
        in_port: u32,
        frames: impl Iterator<Item = Frame>,
        tracker: &K,
    ) {
        let (cache, megaflows) = (&self.cache, &mut self.lookup.prefetch);
        let connections = &mut self.connections;
        megaflows.prepare(0, cache);
        connections.prepare();
        let asks_connections = connections.has_zone()
            && !megaflows.guesses_one_megaflow()
            && megaflows.has_at_least(self.many_megaflows, cache);
        self.batch.begin(in_port, frames, |index, packet| {
            if !asks_connections {
                megaflows.prefetch(cache, index, &packet.key);
            }
            connections.prefetch_index(tracker, packet);
        });
        connections.prefetch(tracker);
        if asks_connections {
            let packets = &self.batch.packets;
            let guesses = connections.guesses(tracker, packets);
            for (index, ((connection, guess), packet)) in guesses.zip(packets).enumerate() {
                megaflows.prefetch_guessed(cache, index, &packet.key, connection, guess);
            }
        }
        megaflows.finish(cache);
    }

    /// Runs steps for a single packet, for example the steps that
    /// `pipeline::Translator::packet_out` returned for a packet-out. If the steps recirculate, the
    /// packet continues like a packet that arrived on `in_port`.
    pub fn execute<T, K, S>(
        &mut self,
        in_port: u32,
        frame: Frame,
        translation: &Translation,
        now: Time,
        callees: &mut Callees<'_, T, K, S>,
    ) where
        T: Translate + ?Sized,
        K: Tracker + ?Sized,
        S: Sink + ?Sized,
    {
        self.now = now;
        self.cache.settle();
        let on_wire = frame.on_wire();
        self.lookup.prefetch.prepare(0, &self.cache);
        self.connections.prepare();
        self.batch.begin(in_port, std::iter::once(frame), |_, _| {});
        let ops = compile(&translation.steps);
        let steps = Steps::Own(&translation.steps);
        let mut runner = Runner::new(&mut self.batch, callees, now);
        runner.packet(0, &ops, 0, steps, None);
        credit(translation, on_wire, now);
        self.batch.turn();
        self.passes(now, callees, &mut Stopwatch::stopped());
        self.batch.transmit(callees.sink);
    }

    /// Does a part of the maintenance: removes megaflows that have had no packet for ten seconds,
    /// and every half minute also adds the megaflows' counts to the rules' counts. The work of a
    /// call is bounded. With a call at least every 100 ms, each megaflow is visited once a second;
    /// with more than 65,536 megaflows, 65,536 of them are visited in a second.
    pub fn maintain<T, K, S>(&mut self, now: Time, callees: &mut Callees<'_, T, K, S>)
    where
        T: Translate + ?Sized,
        K: ?Sized,
        S: ?Sized,
    {
        self.now = now;
        let expired = self.cache.sweep(callees.slow.generation(), milliseconds(now));
        self.batch.statistics.expired += expired;
    }

    /// Adds the counts of all megaflows to their rules' counts, for `dump-flows`.
    pub fn credit(&mut self) {
        self.cache.credit_all(milliseconds(self.now));
    }

    /// Switches the list of new megaflows for [`Datapath::take_installs`] on or off. The switch
    /// logs new megaflows from this list.
    pub fn report_installs(&mut self, are_wanted: bool) {
        if are_wanted != self.installs.is_some() {
            self.installs = are_wanted.then(Vec::new);
        }
    }

    /// Returns the megaflows added since the last call, each with the complete key of its first
    /// packet.
    pub fn take_installs(&mut self) -> Vec<Megaflow> {
        self.installs.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Sets the limit of megaflows, by default [`MAX_MEGAFLOWS`]. In a full cache, the packets of
    /// further flows are translated one by one.
    pub fn limit_megaflows(&mut self, most: usize) {
        self.cache.limit = most.max(1);
    }

    /// Returns all megaflows.
    pub fn megaflows(&self) -> impl Iterator<Item = Megaflow> + '_ {
        self.cache.megaflows(milliseconds(self.now))
    }

    /// Returns the number of megaflows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cache.len() == 0
    }

    /// Returns the memory of all megaflows in bytes, without the steps that several megaflows
    /// share.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.cache.memory()
    }

    /// Returns the number of different masks of megaflows.
    #[must_use]
    pub fn masks(&self) -> usize {
        self.cache.masks()
    }

    /// Removes all megaflows, as `dpctl/del-flows` and `revalidator/purge` do, after adding their
    /// counts to the counts of their rules.
    pub fn clear(&mut self) {
        self.cache.clear(milliseconds(self.now));
    }

    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.batch.statistics
    }

    pub fn clear_statistics(&mut self) {
        self.batch.statistics = Statistics::default();
    }
}

/// Adds a packet to the counters of its translation. A super-packet counts as `frames` frames of
/// `bytes` bytes in total.
fn credit(translation: &Translation, (frames, bytes): (u64, u64), now: Time) {
    for counters in &translation.counters {
        counters.add(frames, bytes, milliseconds(now));
    }
}

fn milliseconds(now: Time) -> u64 {
    now.nanos() / 1_000_000
}

/// Maximum number of packets that are processed together.
pub const BATCH: usize = 32;
/// The default limit of megaflows, which take half a gigabyte of memory.
pub const MAX_MEGAFLOWS: usize = 4 << 20;
/// Maximum number of recirculations of a packet; Open vSwitch has the same limit.
pub const MAX_PASSES: usize = 6;
