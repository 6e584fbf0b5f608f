//! Running programs on packets.

use std::sync::Arc;

use flow::request::{PacketIn, PacketInReason};
use flow::step::{ControllerStep, PortIndex};
use flow::{Field, word};
use port::{Frame, FramePool};
use units::Time;

use super::cache::Tracking;
use super::meter::{Meters, Verdict};
use super::packet::{Packet, flag};
use super::program::{LengthOp, Op, WHOLE, controller, length_check, track_flag};
use super::statistics::Statistics;
use super::tracker::{Guess, Steps, ToTrack, TrackCall, Tracked, Tracker};
use super::{Callees, Sink, milliseconds};

/// The packets of a batch, and the outputs, meters and statistics of the programs that run on them.
#[derive(Debug)]
pub(super) struct Batch {
    /// The packets of the batch and their copies. Packets are large, so that they stay in their
    /// slots.
    pub(super) packets: Vec<Packet>,
    used: usize,
    /// The slots of the packets of this pass. `next`: the slots of the packets that recirculate to
    /// the next pass.
    pub(super) current: Vec<u16>,
    next: Vec<u16>,
    outputs: Outputs,
    meters: Arc<Meters>,
    pub(super) statistics: Statistics,
}

/// The outgoing frames of each port.
#[derive(Debug, Default)]
struct Outputs {
    by_port: Vec<Vec<Frame>>,
    /// The ports that have outgoing frames.
    ports: Vec<PortIndex>,
    /// The changes of queue among the outgoing frames of a port, in order. Frames before the first
    /// change are in queue 0.
    changes: Vec<QueueChange>,
}

/// The frames of `port` from the index `first` on are in `queue`.
#[derive(Debug, Clone, Copy)]
struct QueueChange {
    port: PortIndex,
    first: usize,
    queue: u32,
}

impl Outputs {
    #[inline]
    fn push(&mut self, port: PortIndex, queue: u32, frame: Frame) {
        if queue != 0 || !self.changes.is_empty() {
            self.note_queue(port, queue);
        }
        let index = usize::from(port.0);
        if index >= self.by_port.len() {
            self.by_port.resize_with(index + 1, Vec::new);
        }
        let frames = &mut self.by_port[index];
        if frames.is_empty() {
            self.ports.push(port);
        }
        frames.push(frame);
    }

    /// Notes the queue of the next frame of a port.
    #[cold]
    fn note_queue(&mut self, port: PortIndex, queue: u32) {
        let former = self.changes.iter().rfind(|change| change.port == port);
        if former.map_or(0, |change| change.queue) != queue {
            let first = self.by_port.get(usize::from(port.0)).map_or(0, Vec::len);
            self.changes.push(QueueChange { port, first, queue });
        }
    }
}

impl Batch {
    pub(super) fn new(meters: Arc<Meters>) -> Self {
        Self {
            packets: Vec::new(),
            used: 0,
            current: Vec::new(),
            next: Vec::new(),
            outputs: Outputs::default(),
            meters,
            statistics: Statistics::default(),
        }
    }

    /// Builds the packets of the first pass from frames. Calls `then` with each packet's number and
    /// the packet.
    #[inline]
    pub(super) fn begin(
        &mut self,
        in_port: u32,
        frames: impl Iterator<Item = Frame>,
        mut then: impl FnMut(usize, &Packet),
    ) {
        self.current.clear();
        self.next.clear();
        self.used = 0;
        self.statistics.batches += 1;
        for frame in frames {
            let index = self.used;
            if index == self.packets.len() {
                self.packets.push(Packet::default());
            }
            let packet = &mut self.packets[index];
            packet.frame = frame;
            packet.arrive(in_port);
            then(index, packet);
            self.current.push(index as u16);
            self.used += 1;
        }
        self.statistics.received += self.used as u64;
    }

    /// Ends a pass: the packets that recirculated become the packets of the next pass.
    pub(super) fn turn(&mut self) {
        std::mem::swap(&mut self.current, &mut self.next);
        self.next.clear();
        for index in &self.current {
            let packet = &mut self.packets[usize::from(*index)];
            if packet.is_stale {
                packet.parse();
            }
        }
    }

    pub(super) fn transmit<S: Sink + ?Sized>(&mut self, sink: &mut S) {
        if !self.outputs.changes.is_empty() {
            return self.transmit_by_queue(sink);
        }
        for port in self.outputs.ports.drain(..) {
            let frames = &mut self.outputs.by_port[usize::from(port.0)];
            self.statistics.sent += frames.len() as u64;
            sink.transmit(port, frames);
            // Discard the remaining frames in one call, because each single drop would look up the
            // thread's pool.
            FramePool::lease().discard(frames);
        }
    }

    /// As [`Batch::transmit`], for a batch with frames in several queues.
    #[cold]
    fn transmit_by_queue<S: Sink + ?Sized>(&mut self, sink: &mut S) {
        let Outputs { by_port, ports, changes } = &mut self.outputs;
        for port in ports.drain(..) {
            let mut frames = std::mem::take(&mut by_port[usize::from(port.0)]);
            self.statistics.sent += frames.len() as u64;
            let mut runs = Vec::new();
            for change in changes.iter().rev().filter(|change| change.port == port) {
                runs.push((change.queue, frames.split_off(change.first)));
            }
            runs.push((0, frames));
            for (queue, mut run) in runs.into_iter().rev().filter(|(_, run)| !run.is_empty()) {
                sink.transmit_to_queue(port, queue, &mut run);
                FramePool::lease().discard(&mut run);
            }
        }
        changes.clear();
    }

    /// Puts a packet into a free slot.
    fn place(&mut self, packet: Packet) -> Option<u16> {
        if self.used >= MAX_COPIES {
            return None;
        }
        if self.used == self.packets.len() {
            self.packets.push(Packet::default());
        }
        self.packets[self.used] = packet;
        self.used += 1;
        Some((self.used - 1) as u16)
    }

    /// Copies a packet into a free slot.
    fn copy(&mut self, index: u16) -> Option<u16> {
        if self.used >= MAX_COPIES {
            return None;
        }
        if self.used == self.packets.len() {
            self.packets.push(Packet::default());
        }
        let (former, rest) = self.packets.split_at_mut(self.used);
        rest[0].copy_from(&former[usize::from(index)]);
        self.used += 1;
        Some((self.used - 1) as u16)
    }

    /// Discards a copy. Its slot becomes free unless a later slot is in use.
    fn release(&mut self, index: u16) {
        self.packets[usize::from(index)].frame = Frame::default();
        if usize::from(index) + 1 == self.used {
            self.used -= 1;
        }
    }
}

/// Runs programs on the packets of a batch.
pub(super) struct Runner<'a, K: ?Sized, S: ?Sized> {
    batch: &'a mut Batch,
    tracker: &'a mut K,
    sink: &'a mut S,
    now: Time,
}

/// How a program ends for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    Recirculates,
}

impl<'a, K: Tracker + ?Sized, S: Sink + ?Sized> Runner<'a, K, S> {
    pub(super) fn new<T: ?Sized>(
        batch: &'a mut Batch,
        callees: &'a mut Callees<'_, T, K, S>,
        now: Time,
    ) -> Self {
        Self { batch, tracker: callees.tracker, sink: callees.sink, now }
    }

    /// Runs a program, starting at operation number `done`. `hash` is the tracker's hash of the
    /// packet as it is now, if known.
    #[inline]
    pub(super) fn packet(
        &mut self,
        index: u16,
        ops: &[Op],
        done: usize,
        steps: Steps<'_>,
        hash: Option<u64>,
    ) {
        if ops.is_empty() {
            self.batch.statistics.dropped += 1;
        }
        let ops = ops.get(done..).unwrap_or_default();
        if self.run(index, ops, steps, hash) == End::Done {
            self.batch.packets[usize::from(index)].frame = Frame::default();
        }
    }

    /// Runs a program that only sends the packet, possibly after a change of its MAC addresses.
    #[inline(always)]
    pub(super) fn forward(&mut self, index: u16, addresses: Option<[u8; 12]>, port: PortIndex) {
        let packet = &mut self.batch.packets[usize::from(index)];
        let mut frame = std::mem::take(&mut packet.frame);
        if let Some(addresses) = addresses
            && let Some(head) = frame.bytes_mut().first_chunk_mut::<14>()
        {
            head[..12].copy_from_slice(&addresses);
        }
        let queue = packet.queue;
        self.batch.outputs.push(port, queue, frame);
    }

    #[inline(always)]
    pub(super) fn recirculate(&mut self, index: u16, id: u32) {
        self.batch.packets[usize::from(index)].recirculate(id);
        self.batch.next.push(index);
    }

    pub(super) fn statistics(&mut self) -> &mut Statistics {
        &mut self.batch.statistics
    }

    /// Tracks packets together, by the first operations of their programs. Calls `then` with each
    /// packet that continues.
    pub(super) fn track_batch(
        &mut self,
        to_track: &mut [Option<ToTrack<'_>>],
        then: impl FnMut(&mut Packet, &ToTrack<'_>, Option<Guess>),
    ) {
        self.tracker.track_batch(&mut self.batch.packets, to_track, self.now, then);
        for waiting in to_track.iter().flatten() {
            if waiting.tracked == Tracked::Dropped {
                self.batch.statistics.dropped_by_tracker += 1;
                self.batch.packets[usize::from(waiting.index)].frame = Frame::default();
            }
        }
    }

    #[inline(always)]
    fn track(
        &mut self,
        index: u16,
        (zone, flags, ordinal): (u16, u8, u16),
        steps: Steps<'_>,
        hash: Option<u64>,
    ) -> Tracked {
        let call = track_call(zone, flags, ordinal, steps);
        let packet = &mut self.batch.packets[usize::from(index)];
        if packet.is_stale {
            packet.parse();
        }
        let tracked = self.tracker.track(packet, &call, hash, self.now);
        self.batch.statistics.dropped_by_tracker += u64::from(tracked == Tracked::Dropped);
        tracked
    }

    /// Runs the rest of a program for the fragments that the tracker had kept until the last
    /// fragment of their packet arrived.
    #[inline(never)]
    pub(super) fn released(&mut self, index: u16, rest: &[Op], steps: Steps<'_>) {
        let Some(fragments) = self.batch.packets[usize::from(index)].released.take() else {
            return;
        };
        for fragment in *fragments {
            let Some(place) = self.batch.place(fragment) else {
                self.batch.statistics.dropped_by_depth += 1;
                continue;
            };
            if self.run(place, rest, steps, None) == End::Done {
                self.batch.release(place);
            }
        }
    }

    fn run(&mut self, index: u16, ops: &[Op], steps: Steps<'_>, mut hash: Option<u64>) -> End {
        let slot = usize::from(index);
        let mut rest = ops.iter();
        while let Some(op) = rest.next() {
            let packet = &mut self.batch.packets[slot];
            if packet.layout.flags & flag::UNFINISHED != 0
                && op.needs_frames(packet.layout.has(flag::TAGGED))
            {
                if packet.frame.offload().is_super() {
                    let done = ops.len() - rest.as_slice().len() - 1;
                    return self.run_cut(index, &ops[done..], steps);
                }
                packet.complete_checksum();
            }
            match op {
                Op::Output { port, is_last, length } => {
                    let mut frame = if *is_last {
                        std::mem::take(&mut packet.frame)
                    } else {
                        packet.frame.clone()
                    };
                    if *length != WHOLE {
                        frame.truncate(*length as usize);
                    }
                    let queue = packet.queue;
                    self.batch.outputs.push(*port, queue, frame);
                    continue;
                }
                Op::SetQueue(queue) => {
                    packet.queue = *queue;
                    continue;
                }
                Op::Addresses(addresses) => {
                    packet.set_addresses(addresses);
                    continue;
                }
                Op::Recirculate(id) => {
                    self.recirculate(index, *id);
                    return End::Recirculates;
                }
                Op::Track { zone, flags, ordinal } => {
                    let call = (*zone, *flags, *ordinal);
                    match self.track(index, call, steps, hash.take()) {
                        Tracked::Continues => continue,
                        Tracked::Dropped => return End::Done,
                        Tracked::Held => {
                            self.released(index, rest.as_slice(), steps);
                            return End::Done;
                        }
                    }
                }
                Op::Write(words) => packet.rewrite(words),
                Op::PushVlan { tpid, tci } => packet.push_vlan(*tpid, *tci),
                Op::PopVlan => packet.pop_vlan(),
                Op::PushMpls { ethertype, entry } => packet.push_mpls(*ethertype, *entry),
                Op::PopMpls { ethertype } => packet.pop_mpls(*ethertype),
                Op::ClearTracking => packet.key.words[word::CT..word::ETH_SRC].fill(0),
                Op::Hash(hash) => {
                    packet.store_hash(*hash);
                    continue;
                }
                Op::Meter(meter) if packet.frame.offload().is_super() => {
                    let (frames, bytes) = packet.frame.on_wire();
                    if !self.batch.meters.measure_all(*meter, frames, bytes, self.now) {
                        let done = ops.len() - rest.as_slice().len() - 1;
                        return self.run_cut(index, &ops[done..], steps);
                    }
                }
                Op::Meter(meter) => {
                    let length = packet.frame.len();
                    match self.batch.meters.measure(*meter, length, self.now) {
                        Verdict::Passes => {}
                        Verdict::Dropped => {
                            self.batch.statistics.dropped_by_meter += 1;
                            return End::Done;
                        }
                        Verdict::Remarked(precedence) => packet.raise_drop_precedence(precedence),
                    }
                }
                Op::Clone { ops, is_last: true } => return self.run(index, ops, steps, hash),
                Op::Clone { ops, is_last: false } => {
                    let Some(copy) = self.batch.copy(index) else {
                        self.batch.statistics.dropped_by_depth += 1;
                        continue;
                    };
                    if self.run(copy, ops, steps, hash) == End::Done {
                        self.batch.release(copy);
                    }
                    continue;
                }
                Op::CheckLength(check) => {
                    if check.is_last {
                        return self.check_length(index, check, steps, hash);
                    }
                    let Some(copy) = self.batch.copy(index) else {
                        self.batch.statistics.dropped_by_depth += 1;
                        continue;
                    };
                    if self.check_length(copy, check, steps, hash) == End::Done {
                        self.batch.release(copy);
                    }
                    continue;
                }
                Op::Controller { ordinal } => {
                    if let Some(step) = controller(steps.steps(), &mut ordinal.clone()) {
                        self.send_to_controller(slot, step);
                    }
                    continue;
                }
            }
            // The packet has changed since it was hashed.
            hash = None;
        }
        End::Done
    }

    /// Segments a super-packet into its frames, and runs the remaining operations for each frame.
    #[inline(never)]
    fn run_cut(&mut self, index: u16, ops: &[Op], steps: Steps<'_>) -> End {
        for packet in self.batch.packets[usize::from(index)].cut() {
            let Some(place) = self.batch.place(packet) else {
                self.batch.statistics.dropped_by_depth += 1;
                continue;
            };
            if self.run(place, ops, steps, None) == End::Done {
                self.batch.release(place);
            }
        }
        End::Done
    }

    /// Sends a packet to controllers, if the meter for packet-ins lets it pass.
    #[inline(never)]
    fn send_to_controller(&mut self, slot: usize, step: &ControllerStep) {
        let packet = &self.batch.packets[slot];
        let verdict = step.meter.map_or(Verdict::Passes, |meter| {
            self.batch.meters.measure(meter, packet.frame.len(), self.now)
        });
        let packet_in = match verdict {
            Verdict::Passes => packet_in(step, packet),
            Verdict::Dropped => {
                self.batch.statistics.dropped_by_meter += 1;
                return;
            }
            Verdict::Remarked(precedence) => {
                // Only the controller's copy is remarked; later steps get the packet as it was.
                let mut copy = Packet::default();
                copy.copy_from(packet);
                copy.raise_drop_precedence(precedence);
                packet_in(step, &copy)
            }
        };
        self.batch.statistics.packet_ins += 1;
        self.sink.packet_in(step.bridge, packet_in);
    }

    /// Runs the branch of a length check that applies to this packet's length.
    #[inline(never)]
    fn check_length(
        &mut self,
        index: u16,
        check: &LengthOp,
        steps: Steps<'_>,
        hash: Option<u64>,
    ) -> End {
        let length = self.batch.packets[usize::from(index)].frame.len();
        if let Some(step) = length_check(steps.steps(), &mut check.ordinal.clone()) {
            let now_ms = milliseconds(self.now);
            for counters in &step.branch(length).counters {
                counters.add(1, length as u64, now_ms);
            }
        }
        let ops = check.branch(length);
        if ops.is_empty() && check.is_last {
            self.batch.statistics.dropped += 1;
        }
        self.run(index, ops, steps, hash)
    }
}

#[inline(always)]
fn track_call(zone: u16, flags: u8, ordinal: u16, steps: Steps<'_>) -> TrackCall<'_> {
    let has = |flag| flags & flag != 0;
    TrackCall {
        zone,
        commit: has(track_flag::COMMIT),
        force: has(track_flag::FORCE),
        has_nat: has(track_flag::NAT),
        has_marks: has(track_flag::MARKS),
        steps,
        ordinal,
    }
}

/// Returns the tracking call of a program's first operation, if that operation tracks the packet.
#[inline(always)]
pub(super) fn first_call(tracking: Tracking, steps: Steps<'_>) -> Option<TrackCall<'_>> {
    match tracking {
        Tracking::First { zone, flags } => Some(track_call(zone, flags, 0, steps)),
        Tracking::None | Tracking::Elsewhere => None,
    }
}

fn packet_in(step: &ControllerStep, packet: &Packet) -> PacketIn {
    let bytes = packet.frame.bytes();
    let length = bytes.len().min(step.max_len.into());
    let mut metadata = step.metadata.clone();
    if step.is_tracked {
        let results = word::CT..word::ETH_SRC;
        metadata.words[results.clone()].copy_from_slice(&packet.key.words[results]);
    }
    if metadata.read(Field::CtState) == 0 {
        metadata.write(Field::EthType, 0);
    }
    PacketIn {
        frame: bytes[..length].to_vec(),
        total_len: bytes.len().min(usize::from(u16::MAX)) as u16,
        reason: match step.reason {
            0 => PacketInReason::NoMatch,
            2 => PacketInReason::InvalidTtl,
            3 => PacketInReason::ActionSet,
            4 => PacketInReason::Group,
            5 => PacketInReason::PacketOut,
            6 => PacketInReason::ExplicitMiss,
            _ => PacketInReason::Action,
        },
        table: step.table,
        cookie: step.cookie,
        controller: step.controller,
        metadata,
        userdata: step.userdata.clone(),
        continuation: step.continuation,
    }
}

impl Packet {
    /// Sets the recirculation id in the packet's key.
    #[inline(always)]
    pub(super) fn recirculate(&mut self, id: u32) {
        let word = &mut self.key.words[word::IN_PORT];
        *word = *word >> 32 << 32 | u64::from(id);
    }

    /// Sets both MAC addresses. `addresses` has the destination first.
    #[inline(always)]
    fn set_addresses(&mut self, addresses: &[u8; 12]) {
        if let Some(head) = self.frame.bytes_mut().first_chunk_mut::<14>() {
            head[..12].copy_from_slice(addresses);
            let [a, b, c, d, e, f, g, h, i, j, k, l] = *addresses;
            let word = |address| u64::from_be_bytes(address) & !0xffff;
            let words = &mut self.key.words;
            words[word::ETH_DST] = word([a, b, c, d, e, f, 0, 0]) | words[word::ETH_DST] & 0xffff;
            words[word::ETH_SRC] = word([g, h, i, j, k, l, 0, 0]) | words[word::ETH_SRC] & 0xffff;
        }
    }

    /// Raises the drop precedence of an assured-forwarding class (RFC 2597).
    fn raise_drop_precedence(&mut self, by: u8) {
        let dscp = self.key.read(Field::NwTos) as u8;
        let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
        if !(1..=4).contains(&class) || precedence == 0 || dscp & 1 != 0 {
            return;
        }
        let raised = precedence.saturating_add(by).min(3);
        let value = u64::from(class << 3 | raised << 1) << 42;
        self.write(word::NW, value, 0x3f << 42);
    }
}

/// Maximum number of slots in a batch. The datapath drops packets and copies beyond this number.
const MAX_COPIES: usize = 4096;
