/// An event and its owner, packed into 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// A link may have something to deliver.
    Delivery,
    Start,
    Stop,
    /// The application writes.
    Write,
    /// A sender's timers expire: retransmission, probe, reordering.
    Sender,
    Pace,
    Receiver,
    /// The traces record a point.
    Sample,
    /// The measurement begins.
    Measure,
    /// The opening period of the world ends.
    Opened,
    /// A link changes its configuration.
    Change,
    /// An end of a tunnel handles its timers and arrived packets.
    Tunnel,
}

impl Event {
    #[inline]
    pub(crate) fn new(kind: EventKind, whose: usize) -> Self {
        Self((kind as u64) << 32 | whose as u64)
    }

    #[inline]
    pub(crate) fn whose(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    #[inline]
    pub(crate) fn kind(self) -> EventKind {
        EVENT_KINDS[(self.0 >> 32) as usize]
    }
}

const EVENT_KINDS: [EventKind; 12] = [
    EventKind::Delivery,
    EventKind::Start,
    EventKind::Stop,
    EventKind::Write,
    EventKind::Sender,
    EventKind::Pace,
    EventKind::Receiver,
    EventKind::Sample,
    EventKind::Measure,
    EventKind::Opened,
    EventKind::Change,
    EventKind::Tunnel,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_its_kind_and_owner() {
        for kind in EVENT_KINDS {
            let event = Event::new(kind, 123_456);
            assert_eq!((event.kind(), event.whose()), (kind, 123_456));
        }
    }
}
