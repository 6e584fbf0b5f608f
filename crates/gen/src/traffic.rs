//! The packets of a profile and their times. The code takes a logical time and returns packets.

mod addressing;
mod connections;
mod draws;
mod packet;
mod plan;
mod stamp;
mod starts;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

pub use addressing::Addressing;
pub(crate) use addressing::mix;
use addressing::{FlowRun, Tuple};
pub(crate) use packet::as_ipv6;
pub use plan::{LaneAddresses, Plan, PlanOptions};
pub use stamp::Stamp;
use starts::{Start, Starts};
use units::{Span, Time};

/// The packets of one thread, in the order of their times. Logical time starts at zero.
#[derive(Debug)]
pub struct Traffic {
    plan: Arc<Plan>,
    starts: Starts,
    /// The next flow that this part begins.
    start: Option<Start>,
    /// For each template, the flows that begin next.
    runs: Vec<FlowRun>,
    /// The next packets of flows that have begun.
    pending: BinaryHeap<Reverse<Pending>>,
    part: u64,
    parts: u64,
    opened: u64,
    first_stream: u16,
    /// The sequence number of the next stamped packet of each lane.
    sequences: Vec<u64>,
    next: Option<Next>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    pub at: Time,
    /// The index of the port that sends the packet.
    pub lane: usize,
    pub len: usize,
    pub template: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    at: u64,
    flow: u64,
    template: u32,
    packet: u32,
    tuple: Tuple,
}

#[derive(Debug, Clone, Copy)]
enum Next {
    Start(Start),
    Pending { at: u64 },
}

impl Traffic {
    /// Creates part number `part` of `parts` parts, which together send the flows of the plan.
    /// `multiplier` scales the rate of new flows.
    pub fn new(plan: Arc<Plan>, multiplier: f64, part: usize, parts: usize) -> Self {
        let parts = parts.max(1) as u64;
        let part = part as u64 % parts;
        let templates = plan.templates();
        let starts =
            Starts::new(templates.iter().map(|template| template.flows.events() * multiplier));
        let runs = vec![FlowRun::NONE; templates.len()];
        let sequences = vec![0; plan.lanes().len()];
        let pending = BinaryHeap::new();
        let mut this = Self {
            plan,
            starts,
            start: None,
            runs,
            pending,
            part,
            parts,
            opened: 0,
            first_stream: 0,
            sequences,
            next: None,
        };
        this.go_to_start();
        this.next = this.find_next();
        this
    }

    /// Numbers the streams of stamped packets from `first` on: a stream for each lane of each part.
    #[must_use]
    pub fn with_streams_from(mut self, first: u16) -> Self {
        self.first_stream = first;
        self
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    #[inline]
    pub fn due(&self) -> Option<Time> {
        self.next.map(|next| match next {
            Next::Start(Start { at, .. }) | Next::Pending { at } => Time::from_nanos(at),
        })
    }

    /// Writes the next packet. `now` is the packet's timestamp if packets are stamped. The buffer
    /// must have [`Plan::longest`] bytes; nothing is written to a shorter buffer.
    #[inline]
    pub fn take(&mut self, now: Time, buffer: &mut [u8]) -> Option<Departure> {
        let (at, template, packet, flow, tuple) = match self.next? {
            Next::Start(Start { template, flow, at }) => {
                let run = &mut self.runs[template];
                let tuple = run.take().or_else(|| {
                    *run = self.plan.flows(template, flow, self.parts);
                    run.take()
                })?;
                self.go_to_start();
                self.opened += 1;
                (at, template, 0, flow, tuple)
            }
            Next::Pending { at } => {
                let Reverse(next) = self.pending.pop()?;
                (at, next.template as usize, next.packet as usize, next.flow, next.tuple)
            }
        };
        let packets = &self.plan.templates()[template].packets;
        if let Some(following) = packets.get(packet + 1) {
            self.pending.push(Reverse(Pending {
                at: at.saturating_add(following.gap.nanos()),
                flow,
                template: template as u32,
                packet: packet as u32 + 1,
                tuple,
            }));
        }
        self.next = self.find_next();
        let (lane, len) = self.plan.write(template, packet, (flow, &tuple), buffer)?;
        if let Some(place) = packets[packet].stamp {
            let number = self.part as usize * self.sequences.len() + lane;
            let stream = self.first_stream.wrapping_add(number as u16);
            let sequence = self.sequences[lane];
            self.sequences[lane] += 1;
            place.write(Stamp { stream, sequence, sent: now }, &mut buffer[..len]);
        }
        Some(Departure { at: Time::from_nanos(at), lane, len, template })
    }

    /// Returns the number of flows that have begun so far.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Returns the number of flows that have packets left.
    pub fn active(&self) -> u64 {
        self.pending.len() as u64
    }

    /// Returns each stream's number, and the number of stamped packets written so far.
    pub fn streams(&self) -> impl Iterator<Item = (u16, u64)> {
        let own = (self.part as usize * self.sequences.len()) as u16;
        let first = self.first_stream.wrapping_add(own);
        let lanes = self.sequences.iter().enumerate();
        lanes.map(move |(lane, sent)| (first.wrapping_add(lane as u16), *sent))
    }

    #[inline]
    fn find_next(&self) -> Option<Next> {
        let pending = self.pending.peek().map(|Reverse(first)| first.at);
        match (self.start, pending) {
            (Some(start), pending) if pending.is_none_or(|at| start.at < at) => {
                Some(Next::Start(start))
            }
            (_, Some(at)) => Some(Next::Pending { at }),
            (_, None) => None,
        }
    }

    /// Moves to the next flow of this part. Every part computes the start times of all flows.
    #[inline]
    fn go_to_start(&mut self) {
        self.start = loop {
            match self.starts.next() {
                Some(start) if start.flow % self.parts != self.part => {}
                start => break start,
            }
        };
    }
}

impl Departure {
    pub fn since_start(&self) -> Span {
        self.at.since(Time::ZERO)
    }
}
