//! The emulator's thread.

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
use link::{Capacity, Limit, Link, LinkConfig};
use port::{Frame, FramePool, Port};
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
    /// The CPU time of the thread when it began to serve.
    prepared: Span,
    lateness: Lateness,
    cpu_yield: CpuYield,
    stalls: Option<StallClock>,
    /// Frames on their way from a port into the model, and from the model to a port.
    received: Vec<Frame>,
    due: Vec<Frame>,
}

/// A running cable.
struct RunningCable {
    name: String,
    ports: [Box<dyn Port>; 2],
    /// `directions[0]` leads from `ports[0]` to `ports[1]`, `directions[1]` back.
    directions: [DirectionLink; 2],
    interrupts: Span,
}

struct DirectionLink {
    link: Link<Carried>,
    trace: QueueTrace,
    /// No frame is handed over before this time.
    next: Time,
}

impl Engine {
    /// Must run on the emulator's own thread, because scheduling is a property of the thread.
    pub(crate) fn new(
        cables: Vec<Cable>,
        scheduling: Scheduling,
        stop: Arc<AtomicBool>,
        commands: Receiver<Command>,
        wakeup: Wakeup,
    ) -> Result<Self, EmuError> {
        let frames = cables.iter().map(|cable| room(&cable.forward) + room(&cable.backward)).sum();
        FramePool::prepare(frames);
        let start = clock::now();
        let cables = cables
            .into_iter()
            .map(|cable| RunningCable::new(cable, start))
            .collect::<Result<Vec<_>, EmuError>>()?;
        let fds = cables.iter().flat_map(|cable| &cable.ports).filter_map(|port| port.fd());
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

    /// Passes the frames received at one port to the model, and hands the due frames to the other.
    fn serve(&mut self, number: usize, from: usize) -> Result<usize, EmuError> {
        let cable = &mut self.cables[number];
        let polled = clock::now();
        let received = cable.ports[from]
            .receive(&mut self.received, RECEIVE_LIMIT)
            .map_err(|source| failed(&cable.name, from, source))?;
        // Frames still waiting at the port arrived after the last frame taken, and the model must
        // process them before it advances any further.
        let horizon = match self.received.last() {
            Some(last) if received >= RECEIVE_LIMIT => last.arrival(),
            _ => polled,
        };
        let direction = &mut cable.directions[from];
        for frame in self.received.drain(..) {
            direction.link.arrive(frame.arrival(), Carried(frame));
        }
        let mut sent = 0;
        while polled >= direction.next
            && sent < SEND_LIMIT
            && let Some(delivery) = direction.link.deliver(horizon)
        {
            // The wait for the interrupt is intended, not lateness.
            self.lateness.record(clock::now().since(delivery.at.max(direction.next)));
            self.due.push(delivery.packet.0);
            sent += 1;
        }
        if !self.due.is_empty() {
            // Frames beyond the limit belong to the same interrupt.
            if sent < SEND_LIMIT {
                direction.next = polled + cable.interrupts;
            }
            cable.ports[1 - from]
                .send(&self.due)
                .map_err(|source| failed(&cable.name, 1 - from, source))?;
            self.due.clear();
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
        for direction in self.cables.iter_mut().flat_map(|cable| &mut cable.directions) {
            if direction.trace.is_due(now) {
                let stats = direction.link.stats();
                let point = TracePoint {
                    at: now.since(start),
                    queue: direction.link.queued().1,
                    delivered: stats.delivered.bytes,
                    dropped: stats.dropped.total().packets,
                };
                direction.trace.add(now, point);
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
            // The caller may have gone; the change still applies.
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
        let direction = |config| -> Result<DirectionLink, EmuError> {
            let link = Link::new(config, start)
                .map_err(|source| EmuError::Link { cable: cable.name.clone(), source })?;
            Ok(DirectionLink { link, trace: QueueTrace::new(start), next: start })
        };
        let directions = [direction(&cable.forward)?, direction(&cable.backward)?];
        let (ports, interrupts) = ([cable.a, cable.b], cable.interrupts);
        Ok(Self { name: cable.name, ports, directions, interrupts })
    }

    fn statistics(&mut self, with_trace: bool) -> CableStatistics {
        let [a, b] = &mut self.ports;
        let (a, b) = (a.counters(), b.counters());
        let [forward, backward] = &self.directions;
        CableStatistics {
            name: self.name.clone(),
            forward: forward.statistics(lost_receiving(&a) + lost_sending(&b), with_trace),
            backward: backward.statistics(lost_receiving(&b) + lost_sending(&a), with_trace),
        }
    }
}

impl DirectionLink {
    fn statistics(&self, lost_outside_model: u64, with_trace: bool) -> DirectionStatistics {
        DirectionStatistics::new(
            self.link.stats(),
            self.link.queued(),
            self.link.in_flight(),
            lost_outside_model,
            with_trace.then(|| self.trace.clone()),
        )
    }
}

/// The time at which the next frame is due in any direction.
fn next_delivery(cables: &[RunningCable]) -> Time {
    let directions = cables.iter().flat_map(|cable| &cable.directions);
    let due = directions
        .filter_map(|direction| Some(direction.link.next_delivery()?.max(direction.next)));
    due.min().unwrap_or(Time::NEVER)
}

/// The number of full frames that may be inside a direction at once. On a virtual machine the first
/// touch of a memory page can take as long as a hundred frames.
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

fn failed(cable: &str, side: usize, source: port::PortError) -> EmuError {
    EmuError::Port { cable: cable.to_owned(), side: ['a', 'b'][side], source }
}

const FULL_FRAME: u64 = 1_514;
/// 32 MiB for each direction at 2 KiB a frame.
const MOST_ROOM: u64 = 16_384;
const RECEIVE_LIMIT: usize = 256;
/// At 1 Gbit/s one full frame takes 12 µs. A small bound keeps one direction's burst from delaying
/// the other.
const SEND_LIMIT: usize = 32;
const LONGEST_SLEEP: Span = Span::from_millis(10);
