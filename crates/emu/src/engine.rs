//! The emulator's thread.

use crate::breath::{self, Breath};
use crate::clock;
use crate::emulator::Ask;
use crate::frame::Carried;
use crate::pause::{Bell, Pause};
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
    lines: Vec<Line>,
    stop: Arc<AtomicBool>,
    asked: Receiver<Ask>,
    pause: Pause,
    spin: Span,
    real_time: bool,
    start: Time,
    worked: Span,
    lateness: Lateness,
    breath: Breath,
    /// Frames on their way from a port into the model, and from the model to a port.
    received: Vec<Frame>,
    due: Vec<Frame>,
}

/// A running cable.
struct Line {
    name: String,
    ports: [Box<dyn Port>; 2],
    /// `ways[0]` leads from `ports[0]` to `ports[1]`, `ways[1]` back.
    ways: [Way; 2],
    interrupts: Span,
}

struct Way {
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
        asked: Receiver<Ask>,
        bell: Bell,
    ) -> Result<Self, EmuError> {
        let frames = cables.iter().map(|cable| room(&cable.forward) + room(&cable.backward)).sum();
        FramePool::prepare(frames);
        let start = clock::now();
        let lines = cables
            .into_iter()
            .map(|cable| Line::new(cable, start))
            .collect::<Result<Vec<_>, EmuError>>()?;
        let fds = lines.iter().flat_map(|line| &line.ports).filter_map(|port| port.fd());
        let pause = Pause::new(fds, bell)?;
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
            lines,
            stop,
            asked,
            pause,
            spin: scheduling.spin,
            real_time,
            start,
            worked: Span::ZERO,
            lateness: Lateness::new(),
            breath: Breath::new(start, real_time),
            received: Vec::with_capacity(RECEIVE_LIMIT),
            due: Vec::with_capacity(SEND_LIMIT),
        })
    }

    pub(crate) fn run(mut self) -> Result<EmulatorStatistics, EmuError> {
        while !self.stop.load(Ordering::Acquire) {
            self.answer();
            let begin = clock::now();
            let mut moved = 0;
            for number in 0..self.lines.len() {
                for from in [0, 1] {
                    moved += self.serve(number, from)?;
                }
            }
            let now = clock::now();
            if moved > 0 {
                self.worked = self.worked + now.since(begin);
            }
            self.trace(now);
            if self.breath.is_due(now) {
                self.pause.sleep(breath::LENGTH);
                self.breath.slept(breath::LENGTH, now, clock::now());
            } else if moved == 0 {
                self.rest(now);
            }
        }
        Ok(self.statistics(clock::now(), true))
    }

    /// Passes the frames received at one port to the model, and hands the due frames to the other.
    fn serve(&mut self, number: usize, from: usize) -> Result<usize, EmuError> {
        let line = &mut self.lines[number];
        let polled = clock::now();
        let received = line.ports[from]
            .receive(&mut self.received, RECEIVE_LIMIT)
            .map_err(|source| failed(&line.name, from, source))?;
        // Frames still waiting at the port arrived after the last frame taken, and the model must
        // process them before it advances any further.
        let horizon = match self.received.last() {
            Some(last) if received >= RECEIVE_LIMIT => last.arrival(),
            _ => polled,
        };
        let way = &mut line.ways[from];
        for frame in self.received.drain(..) {
            way.link.arrive(frame.arrival(), Carried(frame));
        }
        let mut sent = 0;
        while polled >= way.next
            && sent < SEND_LIMIT
            && let Some(delivery) = way.link.deliver(horizon)
        {
            // The wait for the interrupt is intended, not lateness.
            self.lateness.record(clock::now().since(delivery.at.max(way.next)));
            self.due.push(delivery.packet.0);
            sent += 1;
        }
        if !self.due.is_empty() {
            // Frames beyond the limit belong to the same interrupt.
            if sent < SEND_LIMIT {
                way.next = polled + line.interrupts;
            }
            line.ports[1 - from]
                .send(&self.due)
                .map_err(|source| failed(&line.name, 1 - from, source))?;
            self.due.clear();
        }
        Ok(received + sent)
    }

    /// Sleeps until a frame is due soon or arrives. Returns at once if the thread should spin.
    fn rest(&mut self, now: Time) {
        let ways = self.lines.iter().flat_map(|line| &line.ways);
        let next = ways.filter_map(|way| Some(way.link.next_delivery()?.max(way.next)));
        let next = next.min().unwrap_or(Time::NEVER);
        let nap = next.since(now + self.spin).min(LONGEST_SLEEP);
        if nap == Span::ZERO {
            std::hint::spin_loop();
            return;
        }
        self.pause.wait(nap);
        self.breath.slept(nap, now, clock::now());
    }

    fn trace(&mut self, now: Time) {
        let start = self.start;
        for way in self.lines.iter_mut().flat_map(|line| &mut line.ways) {
            if way.trace.is_due(now) {
                let stats = way.link.stats();
                let point = TracePoint {
                    at: now.since(start),
                    queue: way.link.queued().1,
                    delivered: stats.delivered.bytes,
                    dropped: stats.dropped.total().packets,
                };
                way.trace.add(now, point);
            }
        }
    }

    fn statistics(&mut self, now: Time, with_trace: bool) -> EmulatorStatistics {
        EmulatorStatistics {
            running: now.since(self.start),
            worked: self.worked,
            real_time: self.real_time,
            lateness: self.lateness.clone(),
            cables: self.lines.iter_mut().map(|line| line.statistics(with_trace)).collect(),
        }
    }

    fn answer(&mut self) {
        while let Ok(ask) = self.asked.try_recv() {
            let now = clock::now();
            // The caller may have gone; the change still applies.
            match ask {
                Ask::Statistics { answer } => {
                    let _ = answer.send(self.statistics(now, false));
                }
                Ask::Change { cable, direction, config, answer } => {
                    let line = &mut self.lines[cable];
                    let result = line.ways[direction.index()]
                        .link
                        .reconfigure(now, &config)
                        .map_err(|source| EmuError::Link { cable: line.name.clone(), source });
                    let _ = answer.send(result);
                }
            }
        }
    }
}

impl Line {
    fn new(cable: Cable, start: Time) -> Result<Self, EmuError> {
        let way = |config| -> Result<Way, EmuError> {
            let link = Link::new(config, start)
                .map_err(|source| EmuError::Link { cable: cable.name.clone(), source })?;
            Ok(Way { link, trace: QueueTrace::new(start), next: start })
        };
        let ways = [way(&cable.forward)?, way(&cable.backward)?];
        let (ports, interrupts) = ([cable.a, cable.b], cable.interrupts);
        Ok(Self { name: cable.name, ports, ways, interrupts })
    }

    fn statistics(&mut self, with_trace: bool) -> CableStatistics {
        let [a, b] = &mut self.ports;
        let (a, b) = (a.counters(), b.counters());
        let [forward, backward] = &self.ways;
        CableStatistics {
            name: self.name.clone(),
            forward: forward.statistics(lost_receiving(&a) + lost_sending(&b), with_trace),
            backward: backward.statistics(lost_receiving(&b) + lost_sending(&a), with_trace),
        }
    }
}

impl Way {
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
