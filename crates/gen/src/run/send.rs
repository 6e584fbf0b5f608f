use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use port::{Accepted, Frame, PortError, Refusal};
use units::{Span, Time};
use wire::headers::{MAC_HEADER, TAG};

use super::breaks::Breaks;
use super::lane::{Lane, LaneSender, locked};
use super::live::{Live, add};
use super::receive::Receiver;
use super::{Job, Second, monotonic};
use crate::{GenError, Plan, Traffic};

/// The handling of late packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The generator sends every planned packet, as early as the ports permit. The run may last
    /// longer than planned, up to `at_most`.
    Complete { at_most: Span },
    /// If packets are late by more than `burst`, the schedule moves, so that the device gets no
    /// burst after a stall of this machine. The run ends on time.
    OnTime { burst: Span },
}

/// Packets of one plan, and the ports that send them.
pub(super) struct Source {
    pub(super) traffic: Traffic,
    pub(super) lanes: Vec<usize>,
    /// True if the packets count towards the offered rate.
    pub(super) counts: bool,
}

pub(super) struct Sender {
    sources: Vec<Source>,
    lanes: Vec<Outlet>,
    expected: f64,
    every_busy: Span,
}

struct Outlet {
    sender: LaneSender,
    /// True if packets for which a device has no room are dropped, as in a network card.
    drops: bool,
    slots: Vec<u8>,
    slot: usize,
    lens: Vec<usize>,
    counted: usize,
}

pub(super) struct PartOutcome {
    pub(super) seconds: Vec<Second>,
    /// Each stream's number, and the number of stamped packets sent on it.
    pub(super) streams: Vec<(u16, u64)>,
    pub(super) planned: f64,
    pub(super) actual: Span,
    pub(super) flows: u64,
    pub(super) longest_lag: Span,
    pub(super) busy: Span,
    pub(super) retries: u64,
    pub(super) error: Option<String>,
}

impl Sender {
    pub(super) fn open(lanes: &[Lane], sources: Vec<Source>, job: &Job) -> Result<Self, GenError> {
        let plans = || sources.iter().map(|source| source.traffic.plan());
        let longest = plans().map(Plan::longest).max().unwrap_or(0);
        let header = MAC_HEADER + if plans().any(Plan::is_tagged) { TAG } else { 0 };
        let slot = longest.next_multiple_of(64).max(64);
        let mut outlets = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let sender = lane.sender()?;
            if longest.saturating_sub(header) > sender.longest_payload() {
                return Err(lane.too_long(longest, longest - header));
            }
            let is_device = matches!(sender, LaneSender::Duplex { is_device: true, .. });
            outlets.push(Outlet {
                sender,
                drops: is_device && matches!(job.pace, Pace::OnTime { .. }),
                slots: vec![0; slot * BATCH],
                slot,
                lens: Vec::with_capacity(BATCH),
                counted: 0,
            });
        }
        let expected = job.plan.packet_rate(job.multiplier).events() / job.threads.max(1) as f64;
        // If the machine has a single CPU, the control threads of a device, or the kernel's threads
        // of an interface, need this thread's CPU.
        let every_busy = if host::online_cpus().len() == 1 { EVERY_SHARED } else { EVERY_BUSY };
        Ok(Self { sources, lanes: outlets, expected, every_busy })
    }

    /// Sends until the end of the job. With a `receiver`, this thread also receives.
    pub(super) fn run(
        mut self,
        start: Time,
        job: &Job,
        (live, cancel): (&Live, &AtomicBool),
        mut receiver: Option<&mut Receiver<'_>>,
    ) -> PartOutcome {
        let mut breaks = Breaks::begin(job.real_time);
        let mut account = Account::new(job.duration, self.expected);
        let (limit, burst) = match job.pace {
            Pace::Complete { at_most } => (at_most.max(job.duration), Span::MAX),
            Pace::OnTime { burst } => (job.duration, burst),
        };
        // The logical clock begins at `start`, and moves back when packets are too late.
        let mut moved = Span::ZERO;
        // Exclude a packet that is due exactly at the end: this packet does not belong to the run,
        // even if earlier packets are late.
        let last = job.duration.saturating_sub(Span::from_nanos(1));
        let mut now = monotonic();
        while now < start && !cancel.load(Ordering::Relaxed) {
            wait_until(start, &mut now, &mut receiver);
        }
        while !cancel.load(Ordering::Relaxed) {
            let real = now.since(start);
            let logical = real.saturating_sub(moved).min(job.duration);
            let Some(due) = self.due() else { break };
            let due = due.since(Time::ZERO);
            if real >= limit {
                break;
            }
            if due >= job.duration {
                // All packets are sent, but the run lasts as long as planned.
                if real >= job.duration {
                    break;
                }
                wait_until(start + job.duration, &mut now, &mut receiver);
                continue;
            }
            let lag = logical.saturating_sub(due);
            if due > logical {
                let end = start + limit;
                if !breaks.take(EVERY, &mut now) {
                    wait_until((start + moved + due).min(end), &mut now, &mut receiver);
                }
                continue;
            }
            breaks.take(self.every_busy, &mut now);
            if lag > burst {
                moved = moved + (lag - burst);
                continue;
            }
            let count = self.collect(now, logical.min(last), &mut account);
            let every_busy = self.every_busy;
            self.flush(live, &mut account, || {
                poll(&mut receiver);
                let mut now = monotonic();
                // The program that empties the ring may need this CPU.
                breaks.take(every_busy, &mut now);
                cancel.load(Ordering::Relaxed) || now >= start + limit
            });
            poll(&mut receiver);
            let after = monotonic();
            let left = after.since(start).saturating_sub(moved).saturating_sub(due);
            account.longest_lag = account.longest_lag.max(left);
            account.busy = account.busy + after.since(now);
            add(&live.busy, after.since(now).nanos());
            now = after;
            let accepted = std::mem::take(&mut account.accepted);
            account.sent_in(now.since(start), accepted);
            if account.error.is_some() {
                break;
            }
            if count > 0 {
                let opened: u64 = self.counted().map(Traffic::opened).sum();
                add(&live.opened, opened - account.opened);
                account.opened = opened;
            }
        }
        add(&live.active, self.counted().map(Traffic::active).sum());
        account.finish(&self, start, monotonic())
    }

    fn counted(&self) -> impl Iterator<Item = &Traffic> {
        self.sources.iter().filter(|source| source.counts).map(|source| &source.traffic)
    }

    #[inline]
    fn due(&self) -> Option<Time> {
        self.sources.iter().filter_map(|source| source.traffic.due()).min()
    }

    /// Writes the packets that are due, at most one batch.
    #[inline]
    fn collect(&mut self, now: Time, logical: Span, account: &mut Account) -> usize {
        let until = Time::ZERO + logical;
        let mut count = 0;
        for source in &mut self.sources {
            while count < BATCH && source.traffic.due().is_some_and(|due| due <= until) {
                // The lane is known only after the packet is written, but all slots have the same
                // size.
                let scratch = &mut self.lanes[0];
                let Some(slot) = scratch.free() else { return count };
                let Some(departure) = source.traffic.take(now, slot) else { return count };
                let lane = source.lanes[departure.lane];
                if lane == 0 {
                    scratch.lens.push(departure.len);
                } else {
                    let (first, others) = self.lanes.split_at_mut(1);
                    let Some(packet) = first[0].next(departure.len) else { return count };
                    others[lane - 1].copy(packet);
                }
                if source.counts {
                    self.lanes[lane].counted += 1;
                    account.planned_at(departure.since_start());
                }
                count += 1;
            }
        }
        count
    }

    /// Sends the collected packets. Waits for room in a full port until `give_up` returns true.
    /// Packets that a failing port did not take count as send errors.
    fn flush(&mut self, live: &Live, account: &mut Account, mut give_up: impl FnMut() -> bool) {
        for (number, outlet) in self.lanes.iter_mut().enumerate() {
            if outlet.lens.is_empty() {
                continue;
            }
            let counts = &live.lanes[number];
            let total = outlet.lens.len();
            let (sent, bytes) = outlet.send(account, &mut give_up).unwrap_or_else(|problem| {
                account.error.get_or_insert(problem.to_string());
                (0, 0)
            });
            add(&counts.sent, sent as u64);
            add(&counts.sent_bytes, bytes);
            add(&counts.send_errors, (total - sent) as u64);
            add(&counts.ring_full, std::mem::take(&mut account.ring_full));
            let uncounted = total - outlet.counted;
            account.accepted += sent.saturating_sub(uncounted) as u64;
            outlet.lens.clear();
            outlet.counted = 0;
        }
    }
}

impl Outlet {
    #[inline]
    fn free(&mut self) -> Option<&mut [u8]> {
        let start = self.lens.len() * self.slot;
        self.slots.get_mut(start..start + self.slot)
    }

    #[inline]
    fn next(&self, len: usize) -> Option<&[u8]> {
        let start = self.lens.len() * self.slot;
        self.slots.get(start..start + len)
    }

    #[inline]
    fn copy(&mut self, packet: &[u8]) {
        let start = self.lens.len() * self.slot;
        if let Some(place) = self.slots.get_mut(start..start + packet.len()) {
            place.copy_from_slice(packet);
            self.lens.push(packet.len());
        }
    }

    /// Sends all packets in order. Returns the number of packets that the port took, and their
    /// bytes.
    fn send(
        &mut self,
        account: &mut Account,
        give_up: impl FnMut() -> bool,
    ) -> Result<(usize, u64), GenError> {
        let frames = |from: usize| {
            let (slots, slot) = (&self.slots, self.slot);
            let lens = self.lens[from..].iter().enumerate();
            lens.map(move |(number, len)| {
                let start = (from + number) * slot;
                &slots[start..start + len]
            })
        };
        let all: u64 = self.lens.iter().map(|len| *len as u64).sum();
        match &self.sender {
            LaneSender::Null => Ok((self.lens.len(), all)),
            LaneSender::Capture(writer) => {
                let now = real_time();
                let mut writer = locked(writer);
                for frame in frames(0) {
                    writer.write(frame, now)?;
                }
                Ok((self.lens.len(), all))
            }
            LaneSender::Shared(port) => {
                let batch: Vec<Frame> =
                    frames(0).map(|frame| Frame::from_bytes(frame, Time::ZERO)).collect();
                let report = locked(port).send(&batch)?;
                let share = report.sent as u64 * all / (self.lens.len() as u64).max(1);
                Ok((report.sent, share))
            }
            LaneSender::Packet(sender) => {
                Ok(self.send_all(account, give_up, |from| sender.send(frames(from))))
            }
            LaneSender::Duplex { port, .. } => {
                let mut packets: [&[u8]; BATCH] = [&[]; BATCH];
                for (packet, frame) in packets.iter_mut().zip(frames(0)) {
                    *packet = frame;
                }
                let packets = &packets[..self.lens.len().min(BATCH)];
                Ok(self.send_all(account, give_up, |from| port.send(&packets[from..])))
            }
        }
    }

    /// Calls `send` with the index of the next packet until all packets are sent or refused.
    fn send_all(
        &self,
        account: &mut Account,
        mut give_up: impl FnMut() -> bool,
        send: impl Fn(usize) -> Result<Accepted, PortError>,
    ) -> (usize, u64) {
        let (mut done, mut sent, mut bytes) = (0, 0, 0);
        while done < self.lens.len() {
            let accepted = match send(done) {
                Ok(accepted) => accepted,
                Err(problem) => {
                    account.error.get_or_insert(problem.to_string());
                    break;
                }
            };
            let lens = &self.lens[done..done + accepted.sent];
            bytes += lens.iter().map(|len| *len as u64).sum::<u64>();
            done += accepted.sent;
            sent += accepted.sent;
            match accepted.refusal {
                None => {}
                Some(Refusal::Full) if self.drops => {
                    let lost = &self.lens[done..];
                    account.ring_full += lost.len() as u64;
                    bytes += lost.iter().map(|len| *len as u64).sum::<u64>();
                    sent += lost.len();
                    done = self.lens.len();
                }
                Some(Refusal::Full) => {
                    account.retries += 1;
                    if give_up() {
                        break;
                    }
                    // Another thread empties the ring, and may be waiting for this CPU.
                    rustix::thread::sched_yield();
                }
                Some(Refusal::NoPeer) => break,
                Some(Refusal::TooLong | Refusal::Refused) => done += 1,
            }
        }
        (sent, bytes)
    }
}

struct Account {
    duration: Span,
    expected: f64,
    seconds: Vec<Second>,
    planned: f64,
    /// The number of planned packets between `recent_from` and `recent_until`. [`Account::settle`]
    /// adds this number to `planned` and to the packets' second.
    recent: u64,
    recent_from: Span,
    recent_until: Span,
    /// The number of packets that ports took and that are not yet added to a second.
    accepted: u64,
    opened: u64,
    longest_lag: Span,
    busy: Span,
    retries: u64,
    /// The number of packets that were lost because a device had no room, and that are not yet
    /// added to a port's count.
    ring_full: u64,
    error: Option<String>,
}

impl Account {
    fn new(duration: Span, expected: f64) -> Self {
        Self {
            duration,
            expected,
            seconds: Vec::new(),
            planned: 0.0,
            recent: 0,
            recent_from: Span::ZERO,
            recent_until: Span::ZERO,
            accepted: 0,
            opened: 0,
            longest_lag: Span::ZERO,
            busy: Span::ZERO,
            retries: 0,
            ring_full: 0,
            error: None,
        }
    }

    #[inline]
    fn second(&mut self, at: Span) -> &mut Second {
        let number = (at.nanos() / SECOND) as usize;
        if number >= self.seconds.len() {
            self.seconds.resize(number.min(MOST_SECONDS) + 1, Second::default());
        }
        let number = number.min(self.seconds.len() - 1);
        &mut self.seconds[number]
    }

    #[inline]
    fn planned_at(&mut self, at: Span) {
        if at >= self.recent_until || at < self.recent_from {
            self.settle();
            self.recent_from = Span::from_nanos(at.nanos() / SECOND * SECOND);
            self.recent_until = self.recent_from + Span::from_nanos(SECOND);
        }
        self.recent += 1;
    }

    fn settle(&mut self) {
        let recent = std::mem::take(&mut self.recent) as f64;
        if recent > 0.0 {
            self.second(self.recent_from).planned += recent;
            self.planned += recent;
        }
    }

    fn sent_in(&mut self, at: Span, count: u64) {
        if count > 0 {
            // A batch that leaves just after the end counts for the last second.
            let at = at.min(self.duration.saturating_sub(Span::from_nanos(1)).max(at - LATE));
            self.second(at).sent += count;
        }
    }

    /// Adds the planned packets that the thread did not send in time.
    fn finish(mut self, sender: &Sender, start: Time, now: Time) -> PartOutcome {
        self.settle();
        let due = sender.counted().filter_map(Traffic::due).min();
        let reached = due.map_or(self.duration, |due| due.since(Time::ZERO)).min(self.duration);
        let mut at = reached.nanos();
        let end = self.duration.nanos();
        while at < end {
            let next = ((at / SECOND + 1) * SECOND).min(end);
            let missing = self.expected * (next - at) as f64 / SECOND as f64;
            self.second(Span::from_nanos(at)).planned += missing;
            self.planned += missing;
            at = next;
        }
        PartOutcome {
            seconds: self.seconds,
            streams: sender.sources.iter().flat_map(|source| source.traffic.streams()).collect(),
            planned: self.planned,
            actual: now.since(start),
            flows: self.opened,
            longest_lag: self.longest_lag,
            busy: self.busy,
            retries: self.retries,
            error: self.error,
        }
    }
}

/// Receives, if this thread also receives. Returns true if frames had arrived.
#[inline]
fn poll(receiver: &mut Option<&mut Receiver<'_>>) -> bool {
    receiver.as_deref_mut().is_some_and(Receiver::poll)
}

/// Sleeps until shortly before `deadline`, and then spins. Returns earlier after a long sleep, and
/// when packets have arrived.
fn wait_until(deadline: Time, now: &mut Time, receiver: &mut Option<&mut Receiver<'_>>) {
    let longest = if receiver.is_some() { BETWEEN_POLLS } else { LONGEST_SLEEP };
    loop {
        *now = monotonic();
        let left = deadline.since(*now);
        if left == Span::ZERO {
            return;
        }
        // Return, so that the caller can check whether the run was cancelled.
        if poll(receiver) {
            *now = monotonic();
            return;
        }
        if left > SPIN {
            let left = (left - SPIN).min(longest);
            std::thread::sleep(Duration::from_nanos(left.nanos()));
            if left == longest {
                *now = monotonic();
                return;
            }
        } else {
            std::hint::spin_loop();
        }
    }
}

fn real_time() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Time::from_nanos(now.tv_sec as u64 * SECOND + now.tv_nsec as u64)
}

/// Maximum number of packets that are collected at once. A system call takes 32 of these packets.
const BATCH: usize = 64;
const SECOND: u64 = 1_000_000_000;
const MOST_SECONDS: usize = 7 * 86_400;
/// Maximum delay after the end at which a batch still counts for the last second.
const LATE: Span = Span::from_millis(5);
/// Time between sleeps of a thread that waits for its next packet. This time is shorter than the
/// time for a thread that is behind schedule.
const EVERY: Span = Span::from_micros(400);
const EVERY_BUSY: Span = Span::from_micros(1500);
const EVERY_SHARED: Span = Span::from_micros(250);
/// Maximum delay of the end of a sleep on a busy machine. The thread spins for this time.
const SPIN: Span = Span::from_micros(80);
const LONGEST_SLEEP: Span = Span::from_millis(50);
/// Time between two receives. In this time, a device cannot fill a receiving port.
const BETWEEN_POLLS: Span = Span::from_micros(100);
