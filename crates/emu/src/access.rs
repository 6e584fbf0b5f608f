//! The access links of hosts that share side `a` of a cable, as behind a switch. Each host sends to
//! `b` over its own access link and then over the cable. A host gets the frames from `b` with the
//! host's hardware address.

use crate::DirectionStatistics;
use crate::engine::DirectionLink;
use crate::frame::Carried;
use crate::statistics::{lost_receiving, lost_sending};
use link::LinkConfig;
use port::{Frame, Port, PortError};
use units::Time;

/// The hosts at side `a`; the first is at the cable's own port `a`.
pub struct Access {
    /// The access link of each host, for its frames to `b`. Frames from `b` pass no access link.
    pub link: LinkConfig,
    /// The hardware address of the host at port `a`.
    pub first: [u8; 6],
    /// The ports of the other hosts, with the hosts' hardware addresses.
    pub others: Vec<(Box<dyn Port>, [u8; 6])>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hosts = 1 + self.others.len();
        f.debug_struct("Access").field("hosts", &hosts).finish_non_exhaustive()
    }
}

pub(crate) struct RunningAccess {
    /// The ports of the other hosts, without the cable's own port.
    pub(crate) others: Vec<Box<dyn Port>>,
    /// The hosts' addresses; the first host is at the cable's own port.
    addresses: Vec<[u8; 6]>,
    pub(crate) ways: Vec<DirectionLink>,
    /// Frames that have left their access links, which `receive` sorts by time.
    merged: Vec<(Time, Frame)>,
    outgoing: Vec<Vec<Frame>>,
}

impl RunningAccess {
    pub(crate) fn new(access: Access, start: Time) -> Result<Self, link::LinkError> {
        let (others, mut addresses): (Vec<_>, Vec<_>) = access.others.into_iter().unzip();
        addresses.insert(0, access.first);
        let way = |number: usize| {
            let seed = access.link.seed.wrapping_add(number as u64);
            DirectionLink::new(&LinkConfig { seed, ..access.link.clone() }, None, start)
        };
        let ways = (0..addresses.len()).map(way).collect::<Result<Vec<_>, _>>()?;
        let outgoing = addresses.iter().map(|_| Vec::new()).collect();
        Ok(Self { others, addresses, ways, merged: Vec::new(), outgoing })
    }

    /// Receives the frames of all hosts into their access links, and passes the frames that have
    /// left these links to `way`. Returns the number of received frames, and the time up to which
    /// `way` may advance.
    pub(crate) fn receive(
        &mut self,
        first: &mut dyn Port,
        way: &mut DirectionLink,
        received: &mut Vec<Frame>,
        limit: usize,
        polled: Time,
    ) -> Result<(usize, Time), PortError> {
        let (mut count, mut horizon) = (0, polled);
        for (number, access) in self.ways.iter_mut().enumerate() {
            let port: &mut dyn Port = match number.checked_sub(1) {
                None => &mut *first,
                Some(other) => &mut *self.others[other],
            };
            let taken = port.receive(received, limit)?;
            count += taken;
            // Frames still in this port's queue arrived after the last frame taken.
            if let Some(last) = received.last().filter(|_| taken >= limit) {
                horizon = horizon.min(last.arrival());
            }
            for frame in received.drain(..) {
                access.link.arrive(frame.arrival(), Carried(frame));
            }
        }
        for access in &mut self.ways {
            while let Some(delivery) = access.link.deliver(horizon) {
                self.merged.push((delivery.at, delivery.packet.0));
            }
        }
        self.merged.sort_by_key(|(at, _)| *at);
        for (at, frame) in self.merged.drain(..) {
            way.arrive(at, frame);
        }
        Ok((count, horizon))
    }

    /// Sends each frame to the host with its destination address, and other frames to all hosts.
    pub(crate) fn send(
        &mut self,
        first: &mut dyn Port,
        frames: &mut Vec<Frame>,
    ) -> Result<(), PortError> {
        for frame in frames.drain(..) {
            let to = frame.bytes().first_chunk::<6>();
            let known = self.addresses.iter().position(|own| Some(own) == to);
            match known {
                Some(host) => self.outgoing[host].push(frame),
                None => self.outgoing.iter_mut().for_each(|host| host.push(frame.clone())),
            }
        }
        for (number, frames) in self.outgoing.iter_mut().enumerate() {
            if frames.is_empty() {
                continue;
            }
            let port: &mut dyn Port = match number.checked_sub(1) {
                None => &mut *first,
                Some(other) => &mut *self.others[other],
            };
            port.send(frames)?;
            frames.clear();
        }
        Ok(())
    }

    /// Returns the numbers of frames that the other hosts' ports lost outside the model: on
    /// reception, and on sending.
    pub(crate) fn lost(&mut self) -> (u64, u64) {
        let counters = self.others.iter_mut().map(|port| port.counters());
        counters.fold((0, 0), |(receiving, sending), counters| {
            (receiving + lost_receiving(&counters), sending + lost_sending(&counters))
        })
    }

    pub(crate) fn statistics(&self, with_trace: bool) -> Vec<DirectionStatistics> {
        self.ways.iter().map(|way| way.statistics(0, with_trace)).collect()
    }
}
