//! The egress queues of a port. `set_queue` and `enqueue` choose a queue, and the rate of the queue
//! limits its frames.

use std::collections::BTreeMap;
use std::time::Duration;

use flow::request::QueueStatistics;
use indexmap::IndexMap;
use link::{Capacity, LinkError, QueueConfig};
use port::Frame;
use settings::{Leaf, Mistakes, Node, Setting, What, table};
use units::Time;

use super::shaper::Shaper;

/// The settings of the egress queues, by number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EgressQueues(BTreeMap<u32, EgressQueue>);

table! {
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct EgressQueue {
        /// The rate of the queue's frames. Without a rate, only the port's rate limit applies to
        /// these frames.
        pub rate: Option<Leaf<Capacity>>,
        /// The queueing discipline before the rate limit.
        pub queue: Option<Leaf<QueueConfig>>,
    }
}

impl EgressQueues {
    /// Checks the queues.
    pub(super) fn new(queues: BTreeMap<u32, EgressQueue>) -> Result<Self, String> {
        for (number, queue) in &queues {
            if *number > LAST {
                return Err(format!(
                    "egress-queue {number}: the queues have the numbers 0 to {LAST}"
                ));
            }
            if queue.queue.is_some() && queue.rate.is_none() {
                return Err(format!("egress-queue {number}: queue needs a rate: set one"));
            }
            Shaper::new(queue.rate.as_deref(), queue.queue.as_deref(), Time::ZERO)
                .map_err(|error| format!("egress-queue {number}: {error}"))?;
        }
        Ok(Self(queues))
    }

    pub(super) fn get(&self, number: u32) -> Option<&EgressQueue> {
        self.0.get(&number)
    }

    pub(super) fn has_any(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Setting for EgressQueues {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        let known = mistakes.found().len();
        let queues = IndexMap::<String, EgressQueue>::read(node, mistakes)?;
        // An error about all queues together may be a consequence of a mistake in one queue.
        if mistakes.found().len() > known {
            return None;
        }
        let checked = Self::numbered(queues);
        checked.map_err(|problem| mistakes.add(node.span(), What::Refused(problem))).ok()
    }
}

impl EgressQueues {
    fn numbered(queues: IndexMap<String, EgressQueue>) -> Result<Self, String> {
        let numbered = queues.into_iter().map(|(name, queue)| {
            let number = name.parse::<u32>().ok().filter(|number| number.to_string() == name);
            let wrong =
                || format!("egress-queue {name:?}: the queues have the numbers 0 to {LAST}");
            Ok((number.ok_or_else(wrong)?, queue))
        });
        Self::new(numbered.collect::<Result<_, String>>()?)
    }
}

/// The egress queues of an open port.
#[derive(Debug, Default)]
pub(super) struct PortQueues {
    settings: EgressQueues,
    queues: BTreeMap<u32, RunningQueue>,
}

#[derive(Debug)]
struct RunningQueue {
    shaper: Option<Shaper>,
    sent_packets: u64,
    sent_bytes: u64,
    opened: Time,
}

impl PortQueues {
    pub(super) fn new(settings: &EgressQueues, now: Time) -> Result<Self, LinkError> {
        let mut queues = Self::default();
        queues.change(settings, now)?;
        Ok(queues)
    }

    pub(super) fn settings(&self) -> &EgressQueues {
        &self.settings
    }

    /// Changes the settings. A queue whose settings stay the same keeps its frames and counters;
    /// the frames of other queues are dropped. Returns the number of frames that the removed queues
    /// have dropped, now or earlier.
    pub(super) fn change(&mut self, settings: &EgressQueues, now: Time) -> Result<u64, LinkError> {
        let mut queues = BTreeMap::new();
        for (number, wanted) in &settings.0 {
            let is_same = self.settings.0.get(number) == Some(wanted);
            let kept = if is_same { self.queues.remove(number) } else { None };
            let queue = match kept {
                Some(queue) => queue,
                None => RunningQueue {
                    shaper: Shaper::new(wanted.rate.as_deref(), wanted.queue.as_deref(), now)?,
                    sent_packets: 0,
                    sent_bytes: 0,
                    opened: now,
                },
            };
            queues.insert(*number, queue);
        }
        // `self.queues` now holds only the queues to be removed.
        self.clear();
        let dropped = self.dropped();
        (self.settings, self.queues) = (settings.clone(), queues);
        Ok(dropped)
    }

    /// Takes the frames of a queue with a rate out of `frames`, and counts the frames of other
    /// queues as sent. As in Open vSwitch, frames of an unknown queue are in queue 0.
    pub(super) fn enqueue(
        &mut self,
        queue: u32,
        frames: &mut Vec<Frame>,
        arrival: impl Fn(&Frame) -> Time,
    ) {
        let number = if self.queues.contains_key(&queue) { queue } else { 0 };
        let Some(queue) = self.queues.get_mut(&number) else { return };
        match &mut queue.shaper {
            Some(shaper) => {
                Frame::finish_all(frames);
                shaper.enqueue(frames, arrival);
            }
            None => frames.iter().for_each(|frame| queue.count(frame)),
        }
    }

    /// Returns the frames that may leave by `horizon`, in the order of their departures.
    pub(super) fn release(&mut self, horizon: Time) -> Vec<(Time, Frame)> {
        let mut left = Vec::new();
        for queue in self.queues.values_mut() {
            let Some(shaper) = &mut queue.shaper else { continue };
            let first = left.len();
            while let Some(departure) = shaper.release_next(horizon) {
                left.push(departure);
            }
            left[first..].iter().for_each(|(_, frame)| queue.count(frame));
        }
        left.sort_by_key(|(at, _)| *at);
        left
    }

    /// Returns the time at which the next frame may leave.
    pub(super) fn next(&self) -> Option<Time> {
        self.shapers().filter_map(Shaper::next).min()
    }

    /// Drops all frames.
    pub(super) fn clear(&mut self) {
        let shapers = self.queues.values_mut().filter_map(|queue| queue.shaper.as_mut());
        shapers.for_each(Shaper::clear);
    }

    /// Returns the number of frames that the queues have dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.shapers().map(Shaper::dropped).sum()
    }

    pub(super) fn statistics(&self, now: Time) -> Vec<QueueStatistics> {
        let of_queue = |(number, queue): (&u32, &RunningQueue)| QueueStatistics {
            queue: *number,
            sent_packets: queue.sent_packets,
            sent_bytes: queue.sent_bytes,
            dropped: queue.shaper.as_ref().map_or(0, Shaper::dropped),
            duration: Duration::from_nanos(now.since(queue.opened).nanos()),
        };
        self.queues.iter().map(of_queue).collect()
    }

    fn shapers(&self) -> impl Iterator<Item = &Shaper> {
        self.queues.values().filter_map(|queue| queue.shaper.as_ref())
    }
}

impl RunningQueue {
    fn count(&mut self, frame: &Frame) {
        let (packets, bytes) = frame.on_wire();
        self.sent_packets += packets;
        self.sent_bytes += bytes;
    }
}

/// The highest queue number of Linux's HTB in Open vSwitch (lib/netdev-linux.c).
const LAST: u32 = 0xefff;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<EgressQueues, settings::Mistake> {
        settings::parse(text)
    }

    fn frames(number: usize) -> Vec<Frame> {
        vec![Frame::from_bytes(&[0; 125], Time::ZERO); number]
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn each_queue_sends_at_its_own_rate_and_counts_its_frames() {
        let text =
            "1 = { rate = \"1mbit\", queue = \"droptail:3p\" }\n2 = { rate = \"2mbit\" }\n0 = {}";
        let mut queues = PortQueues::new(&settings(text).unwrap(), Time::ZERO).unwrap();
        let mut passed = frames(4);
        queues.enqueue(9, &mut passed, |_| Time::ZERO);
        assert_eq!(passed.len(), 4, "frames of an unknown queue are in queue 0, without a rate");
        for (queue, number) in [(1, 9), (2, 4)] {
            let mut sent = frames(number);
            queues.enqueue(queue, &mut sent, |_| Time::ZERO);
            assert!(sent.is_empty());
        }
        // A frame takes a millisecond in queue 1, and half a millisecond in queue 2.
        assert_eq!(queues.next(), Some(Time::from_nanos(MS / 2)));
        let left: Vec<u64> =
            queues.release(Time::from_nanos(2 * MS)).iter().map(|(at, _)| at.nanos()).collect();
        assert_eq!(left, [MS / 2, MS, MS, 3 * MS / 2, 2 * MS, 2 * MS]);
        let counts: Vec<_> = queues
            .statistics(Time::from_nanos(5 * MS))
            .iter()
            .map(|queue| (queue.queue, queue.sent_packets, queue.sent_bytes, queue.dropped))
            .collect();
        assert_eq!(counts, [(0, 4, 500, 0), (1, 2, 250, 5), (2, 4, 500, 0)]);
    }

    #[test]
    fn a_queue_whose_settings_stay_keeps_its_frames_and_counters() {
        let first = settings("1 = { rate = \"1mbit\" }\n2 = { rate = \"1mbit\" }").unwrap();
        let mut queues = PortQueues::new(&first, Time::ZERO).unwrap();
        for queue in [1, 2] {
            queues.enqueue(queue, &mut frames(3), |_| Time::ZERO);
        }
        assert_eq!(queues.release(Time::from_nanos(MS)).len(), 2);
        let second = settings("1 = { rate = \"1mbit\" }\n2 = { rate = \"4mbit\" }").unwrap();
        let dropped = queues.change(&second, Time::from_nanos(MS)).unwrap();
        assert_eq!(dropped, 2, "the frames that waited in queue 2");
        assert_eq!(queues.release(Time::from_nanos(9 * MS)).len(), 2, "of queue 1 alone");
        let counts = queues.statistics(Time::from_nanos(9 * MS));
        assert_eq!((counts[0].sent_packets, counts[1].sent_packets), (3, 0));
        assert_eq!(counts[1].duration, Duration::from_millis(8));
    }

    #[test]
    fn impossible_queue_settings_are_refused_with_the_number_of_the_queue() {
        for (text, words) in [
            ("x = {}", "egress-queue \"x\": the queues have the numbers 0 to 61439"),
            ("61440 = {}", "egress-queue 61440"),
            ("1 = { queue = \"fq_codel\" }", "egress-queue 1: queue needs a rate"),
            ("1 = { rate = \"1mbit\", burst = 1 }", "burst"),
        ] {
            let error = settings(text).unwrap_err().what.to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
