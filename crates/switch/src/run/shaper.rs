use link::{Capacity, Link, LinkConfig, LinkError, QueueConfig};
use port::Frame;
use units::{Bytes, Time};
use wire::caqm::Info;

/// The rate limit and the queue of a port, based on the link model of the emulator.
#[derive(Debug)]
pub(super) struct Shaper {
    link: Link<Carried>,
    start: Time,
    /// The number of frames that former links of this shaper lost.
    lost: u64,
}

/// A frame in the form that the link model needs.
#[derive(Debug, Clone)]
struct Carried(Frame);

impl Shaper {
    /// Creates a shaper. Returns `None` if the settings have no rate.
    pub(super) fn new(
        rate: Option<&Capacity>,
        queue: Option<&QueueConfig>,
        now: Time,
    ) -> Result<Option<Self>, LinkError> {
        let Some(rate) = rate else { return Ok(None) };
        let config = LinkConfig {
            rate: rate.clone(),
            queue: queue.copied().unwrap_or_default(),
            ..LinkConfig::default()
        };
        Ok(Some(Self { link: Link::new(&config, now)?, start: now, lost: 0 }))
    }

    /// Adds frames to the queue, which may drop or mark these frames. A frame counts as queued from
    /// its arrival, so that a late thread causes no burst.
    pub(super) fn enqueue(&mut self, frames: &mut Vec<Frame>, arrival: impl Fn(&Frame) -> Time) {
        for frame in frames.drain(..) {
            self.link.arrive(arrival(&frame), Carried(frame));
        }
    }

    /// Adds a frame that arrived at `arrival`.
    pub(super) fn enqueue_one(&mut self, arrival: Time, frame: Frame) {
        self.link.arrive(arrival, Carried(frame));
    }

    /// Appends the frames whose serialisation has ended.
    pub(super) fn release(&mut self, now: Time, frames: &mut Vec<Frame>) {
        while let Some((_, frame)) = self.release_next(now) {
            frames.push(frame);
        }
    }

    /// Returns the next frame whose serialisation has ended, with the time of its end.
    pub(super) fn release_next(&mut self, now: Time) -> Option<(Time, Frame)> {
        let delivery = self.link.deliver(now)?;
        Some((delivery.at, delivery.packet.0))
    }

    /// Drops all frames, as an interface does when it goes down.
    pub(super) fn clear(&mut self) {
        let (queued, _) = self.link.queued();
        self.lost = self.dropped() + queued as u64 + self.link.in_flight() as u64;
        match Link::new(self.link.config(), self.start) {
            Ok(link) => self.link = link,
            Err(error) => unreachable!("the same settings made a link before: {error}"),
        }
    }

    /// Returns the time at which the next frame leaves.
    pub(super) fn next(&self) -> Option<Time> {
        self.link.next_delivery()
    }

    /// Returns the number of frames that the queue has dropped, including frames that were in the
    /// queue when the port was set down.
    pub(super) fn dropped(&self) -> u64 {
        let stats = self.link.stats();
        let (queued, _) = self.link.queued();
        let inside = queued as u64 + self.link.in_flight() as u64;
        self.lost + stats.arrived.packets.saturating_sub(stats.delivered.packets + inside)
    }
}

impl link::Packet for Carried {
    fn size(&self) -> Bytes {
        self.0.size()
    }

    fn flow(&self) -> u64 {
        self.0.flow(0)
    }

    fn ecn_capable(&self) -> bool {
        self.0.ecn_capable()
    }

    fn mark_congestion(&mut self) {
        self.0.mark_congestion();
    }

    fn corrupt(&mut self, random: u64) {
        self.0.corrupt(random);
    }

    fn caqm(&self, tpid: u16) -> Option<Info> {
        self.0.caqm(tpid)
    }

    fn set_caqm(&mut self, tpid: u16, info: Info) {
        self.0.set_caqm(tpid, info);
    }

    fn answer_caqm_offer(&mut self, tpid: u16) {
        self.0.answer_caqm_offer(tpid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shaper_sends_at_its_rate_and_its_full_queue_drops_frames() {
        let rate = "1mbit".parse().unwrap();
        let queue = "droptail:10p".parse().unwrap();
        let mut shaper = Shaper::new(Some(&rate), Some(&queue), Time::ZERO).unwrap().unwrap();
        let mut frames = vec![Frame::from_bytes(&[0; 125], Time::ZERO); 20];
        shaper.enqueue(&mut frames, |_| Time::ZERO);
        let mut left = Vec::new();
        shaper.release(Time::from_nanos(3_500_000), &mut left);
        // At this rate, each frame takes a millisecond.
        assert_eq!(left.len(), 3);
        assert_eq!(shaper.next(), Some(Time::from_nanos(4_000_000)));
        shaper.release(Time::from_nanos(1_000_000_000), &mut left);
        assert_eq!(left.len() as u64 + shaper.dropped(), 20);
        assert!(shaper.dropped() >= 9);
    }

    #[test]
    fn late_frames_count_as_queued_since_their_arrival() {
        let rate = "1mbit".parse().unwrap();
        let queue = "droptail:3p".parse().unwrap();
        let mut shaper = Shaper::new(Some(&rate), Some(&queue), Time::ZERO).unwrap().unwrap();
        // Each frame arrives when the previous frame leaves.
        let arrival = |number: u64| Time::from_nanos(number * 1_000_000);
        let frame = |number| Frame::from_bytes(&[0; 125], arrival(number));
        let mut frames: Vec<Frame> = (1..=20).map(frame).collect();
        shaper.enqueue(&mut frames, Frame::arrival);
        let mut left = Vec::new();
        shaper.release(arrival(40), &mut left);
        assert_eq!((left.len(), shaper.dropped()), (20, 0));
    }

    #[test]
    fn frames_cleared_from_a_shaper_count_once_as_dropped() {
        let rate = "1mbit".parse().unwrap();
        let queue = "droptail:10p".parse().unwrap();
        let mut shaper = Shaper::new(Some(&rate), Some(&queue), Time::ZERO).unwrap().unwrap();
        let frames = |number| vec![Frame::from_bytes(&[0; 125], Time::ZERO); number];
        shaper.enqueue(&mut frames(20), |_| Time::ZERO);
        let mut left = Vec::new();
        shaper.release(Time::from_nanos(3_500_000), &mut left);
        shaper.clear();
        assert_eq!((left.len(), shaper.dropped(), shaper.next()), (3, 17, None));
        shaper.enqueue(&mut frames(1), |_| Time::from_nanos(10_000_000));
        shaper.release(Time::from_nanos(11_000_000), &mut left);
        assert_eq!((left.len(), shaper.dropped()), (4, 17));
    }

    #[test]
    fn a_port_without_a_rate_has_no_shaper() {
        assert!(Shaper::new(None, None, Time::ZERO).unwrap().is_none());
    }
}
