//! The emulator's thread.

use crate::access::RunningAccess;
use crate::clock;
use crate::cpu_yield::CpuYield;
use crate::emulator::Command;
use crate::frame::Carried;
use crate::pause::{Pause, Wakeup};
use crate::stalls::StallClock;
use crate::statistics::{CableStatistics, lost_receiving, lost_sending};
use crate::{
    Cable, DirectionStatistics, EmuError, EmulatorStatistics, Lateness, QueueTrace, Scheduling,
    TracePoint,
};
use link::{Capacity, Limit, Link, LinkConfig, LinkError};
use port::{Frame, FramePool, Port, PortError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use units::{Span, Time};

pub(crate) struct Engine {
    cables: Vec<RunningCable>,
    stop: Arc<AtomicBool>,
    commands: Receiver<Command>,
    pause: Pause,
    spin: Span,
    real_time: bool,
    start: Time,
    worked: Span,
    /// The CPU time that the thread had used when it began to serve.
    prepared: Span,
    lateness: Lateness,
    cpu_yield: CpuYield,
    stalls: Option<StallClock>,
    /// Frames on their way from a port into the model, and from the model to a port.
    received: Vec<Frame>,
    due: Vec<Frame>,
}

struct RunningCable {
    name: String,
    ports: [Box<dyn Port>; 2],
    /// `directions[0]` leads from `ports[0]` to `ports[1]`, `directions[1]` back.
    directions: [DirectionLink; 2],
    interrupts: Span,
    /// The access links of the hosts at `ports[0]`, if several hosts share that side.
    access: Option<RunningAccess>,
}

pub(crate) struct DirectionLink {
    pub(crate) link: Link<Carried>,
    trace: QueueTrace,
    /// The time of the port's next interrupt, before which the port gets no frame.
    next: Time,
    tpid: Option<u16>,
    tagged: u64,
}

impl Engine {
    /// Prepares the thread. Must run on the emulator's own thread, because the scheduling policy is
    /// a property of the thread.
    pub(crate) fn new(
        cables: Vec<Cable>,
        scheduling: Scheduling,
        stop: Arc<AtomicBool>,
        commands: Receiver<Command>,
        wakeup: Wakeup,
    ) -> Result<Self, EmuError> {
        let frames = cables.iter().map(|cable| {
            let access = cable
                .access
                .as_ref()
                .map_or(0, |access| room(&access.link).saturating_mul(1 + access.others.len()));
            room(&cable.forward) + room(&cable.backward) + access
        });
        let frames = frames.sum::<usize>().min(2 * MOST_ROOM as usize * cables.len());
        FramePool::prepare(frames);
        let start = clock::now();
        let cables = cables
            .into_iter()
            .map(|cable| RunningCable::new(cable, start))
            .collect::<Result<Vec<_>, EmuError>>()?;
        let fds = cables.iter().flat_map(RunningCable::ports).filter_map(|port| port.fd());
        let pause = Pause::new(fds, wakeup)?;
        host::precise_timers();
        if let Some(cpu) = scheduling.cpu
            && let Err(error) = host::pin_to(&[cpu])
        {
            tracing::warn!("the emulated link runs on any CPU: {error}");
        }
        let real_time = scheduling.real_time
            && match host::real_time() {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!("the emulated link runs without real-time scheduling: {error}");
                    false
                }
            };
        Ok(Self {
            cables,
            stop,
            commands,
            pause,
            spin: scheduling.spin,
            real_time,
            start,
            worked: Span::ZERO,
            prepared: clock::cpu_time(),
            lateness: Lateness::new(),
            cpu_yield: CpuYield::new(start, real_time),
            stalls: scheduling.stalls.map(|stalls| StallClock::new(stalls, start)),
            received: Vec::with_capacity(RECEIVE_LIMIT),
            due: Vec::with_capacity(SEND_LIMIT),
        })
    }

    pub(crate) fn run(mut self) -> Result<EmulatorStatistics, EmuError> {
        while !self.stop.load(Ordering::Acquire) {
            self.answer();
            let begin = clock::now();
            let mut moved = 0;
            for number in 0..self.cables.len() {
                for from in [0, 1] {
                    moved += self.serve(number, from)?;
                }
            }
            let now = clock::now();
            if moved > 0 {
                self.worked = self.worked + now.since(begin);
            }
            self.trace(now);
            if let Some(length) = self.stalls.as_mut().and_then(|stalls| stalls.due(now)) {
                self.pause.sleep(length);
                self.cpu_yield.record_sleep(length, now, clock::now());
            } else if let Some(length) = self.cpu_yield.due(now, || next_delivery(&self.cables)) {
                self.pause.sleep(length);
                self.cpu_yield.record_sleep(length, now, clock::now());
            } else if moved == 0 {
                self.rest(now);
            }
        }
        Ok(self.statistics(clock::now(), true))
    }

    /// Passes the frames received at one port to the model, and sends the due frames to the other
    /// port.
    fn serve(&mut self, number: usize, from: usize) -> Result<usize, EmuError> {
        let cable = &mut self.cables[number];
        let polled = clock::now();
        let (received, horizon) = cable
            .receive(from, &mut self.received, polled)
            .map_err(|source| failed(&cable.name, from, source))?;
        let direction = &mut cable.directions[from];
        let mut sent = 0;
        while polled >= direction.next
            && sent < SEND_LIMIT
            && let Some(delivery) = direction.link.deliver(horizon)
        {
            // The wait for the next interrupt is a part of the model, and not lateness.
            self.lateness.record(clock::now().since(delivery.at.max(direction.next)));
            self.due.push(delivery.packet.0);
            sent += 1;
        }
        if !self.due.is_empty() {
            // Frames beyond the limit belong to the same interrupt, so `next` stays.
            if sent < SEND_LIMIT {
                direction.next = polled + cable.interrupts;
            }
            cable
                .send(1 - from, &mut self.due)
                .map_err(|source| failed(&cable.name, 1 - from, source))?;
        }
        Ok(received + sent)
    }

    /// Sleeps until a frame is due soon or arrives. Returns at once if the thread should spin.
    fn rest(&mut self, now: Time) {
        let nap = next_delivery(&self.cables).since(now + self.spin).min(LONGEST_SLEEP);
        if nap == Span::ZERO {
            std::hint::spin_loop();
            return;
        }
        self.pause.wait(nap);
        self.cpu_yield.record_sleep(nap, now, clock::now());
    }

    fn trace(&mut self, now: Time) {
        let start = self.start;
        for cable in &mut self.cables {
            let access = cable.access.iter_mut().flat_map(|access| &mut access.ways);
            for direction in cable.directions.iter_mut().chain(access) {
                direction.trace(now, start);
            }
        }
    }

    fn statistics(&mut self, now: Time, with_trace: bool) -> EmulatorStatistics {
        EmulatorStatistics {
            running: now.since(self.start),
            worked: self.worked,
            cpu: clock::cpu_time() - self.prepared,
            real_time: self.real_time,
            lateness: self.lateness.clone(),
            cables: self.cables.iter_mut().map(|cable| cable.statistics(with_trace)).collect(),
        }
    }

    fn answer(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            let now = clock::now();
            // Apply the command even if its caller no longer waits for the reply.
            match command {
                Command::Statistics { answer } => {
                    let _ = answer.send(self.statistics(now, false));
                }
                Command::Change { cable, direction, config, answer } => {
                    let cable = &mut self.cables[cable];
                    let result = cable.directions[direction.index()]
                        .link
                        .reconfigure(now, &config)
                        .map_err(|source| EmuError::Link { cable: cable.name.clone(), source });
                    let _ = answer.send(result);
                }
            }
        }
    }
}

impl RunningCable {
    fn new(cable: Cable, start: Time) -> Result<Self, EmuError> {
        let failed = |source| EmuError::Link { cable: cable.name.clone(), source };
        let way = |config| DirectionLink::new(config, cable.tpid, start).map_err(failed);
        let directions = [way(&cable.forward)?, way(&cable.backward)?];
        let access = cable.access.map(|access| RunningAccess::new(access, start));
        let access = access.transpose().map_err(failed)?;
        let (ports, interrupts) = ([cable.a, cable.b], cable.interrupts);
        Ok(Self { name: cable.name, ports, directions, interrupts, access })
    }

    fn ports(&self) -> impl Iterator<Item = &dyn Port> {
        let others = self.access.iter().flat_map(|access| &access.others);
        self.ports.iter().chain(others).map(|port| &**port)
    }

    /// Passes the frames received at one side to the model. Returns the number of frames, and the
    /// time up to which the model may advance.
    fn receive(
        &mut self,
        from: usize,
        received: &mut Vec<Frame>,
        polled: Time,
    ) -> Result<(usize, Time), PortError> {
        let (port, way) = (self.ports[from].as_mut(), &mut self.directions[from]);
        if let (0, Some(access)) = (from, &mut self.access) {
            return access.receive(port, way, received, RECEIVE_LIMIT, polled);
        }
        let count = port.receive(received, RECEIVE_LIMIT)?;
        // Frames still in the port's queue arrived after the last frame taken, and the model must
        // process them before it advances any further.
        let horizon = match received.last() {
            Some(last) if count >= RECEIVE_LIMIT => last.arrival(),
            _ => polled,
        };
        for frame in received.drain(..) {
            way.arrive(frame.arrival(), frame);
        }
        Ok((count, horizon))
    }

    /// Sends frames to the hosts at side `to`.
    fn send(&mut self, to: usize, frames: &mut Vec<Frame>) -> Result<(), PortError> {
        let port = self.ports[to].as_mut();
        if let (0, Some(access)) = (to, &mut self.access) {
            return access.send(port, frames);
        }
        port.send(frames)?;
        frames.clear();
        Ok(())
    }

    fn statistics(&mut self, with_trace: bool) -> CableStatistics {
        let [a, b] = &mut self.ports;
        let (a, b) = (a.counters(), b.counters());
        let (receiving, sending) = self.access.as_mut().map_or((0, 0), RunningAccess::lost);
        let [forward, backward] = &self.directions;
        let forth = lost_receiving(&a) + lost_sending(&b) + receiving;
        let back = lost_receiving(&b) + lost_sending(&a) + sending;
        let access = self.access.as_ref().map(|access| access.statistics(with_trace));
        CableStatistics {
            name: self.name.clone(),
            forward: forward.statistics(forth, with_trace),
            backward: backward.statistics(back, with_trace),
            access: access.unwrap_or_default(),
        }
    }
}

impl DirectionLink {
    pub(crate) fn new(
        config: &LinkConfig,
        tpid: Option<u16>,
        start: Time,
    ) -> Result<Self, LinkError> {
        let link = Link::new(config, start)?;
        Ok(Self { link, trace: QueueTrace::new(start), next: start, tpid, tagged: 0 })
    }

    pub(crate) fn arrive(&mut self, at: Time, frame: Frame) {
        self.tagged += u64::from(self.tpid.is_some_and(|tpid| frame.caqm(tpid).is_some()));
        self.link.arrive(at, Carried(frame));
    }

    fn trace(&mut self, now: Time, start: Time) {
        if self.trace.is_due(now) {
            let stats = self.link.stats();
            let point = TracePoint {
                at: now.since(start),
                queue: self.link.queued().1,
                delivered: stats.delivered.bytes,
                dropped: stats.dropped.total().packets,
            };
            self.trace.add(now, point);
        }
    }

    pub(crate) fn statistics(
        &self,
        lost_outside_model: u64,
        with_trace: bool,
    ) -> DirectionStatistics {
        DirectionStatistics::new(
            self.link.stats(),
            self.link.queued(),
            self.link.in_flight(),
            (lost_outside_model, self.tagged),
            with_trace.then(|| self.trace.clone()),
        )
    }
}

fn next_delivery(cables: &[RunningCable]) -> Time {
    let directions = cables.iter().flat_map(|cable| {
        let access = cable.access.iter().flat_map(|access| &access.ways);
        cable.directions.iter().chain(access)
    });
    let due = directions
        .filter_map(|direction| Some(direction.link.next_delivery()?.max(direction.next)));
    due.min().unwrap_or(Time::NEVER)
}

/// Returns the number of full frames that a direction may hold at once. The memory of these frames
/// is touched in advance: on a virtual machine the first touch of a page can take as long as a
/// hundred frames.
fn room(config: &LinkConfig) -> usize {
    let under_way = match &config.rate {
        Capacity::Fixed(rate) => rate.bytes_in(config.delay).count() / FULL_FRAME,
        Capacity::Unlimited | Capacity::Trace(_) => 0,
    };
    let waiting = match config.queue.limit() {
        Limit::Bytes(limit) => limit.count() / FULL_FRAME,
        Limit::Packets(limit) => limit,
    };
    (under_way + waiting + SEND_LIMIT as u64).min(MOST_ROOM) as usize
}

fn failed(cable: &str, side: usize, source: PortError) -> EmuError {
    EmuError::Port { cable: cable.to_owned(), side: ['a', 'b'][side], source }
}

const FULL_FRAME: u64 = 1_514;
/// Maximum of [`room`]: 32 MiB for each direction at 2 KiB a frame.
const MOST_ROOM: u64 = 16_384;
const RECEIVE_LIMIT: usize = 256;
/// Maximum number of frames sent at once: at 1 Gbit/s a full frame takes 12 µs, and a small bound
/// keeps one direction's burst from delaying the other direction.
const SEND_LIMIT: usize = 32;
const LONGEST_SLEEP: Span = Span::from_millis(10);
