/// An event and its owner, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// A link may have something to deliver.
    Delivery,
    Start,
    Stop,
    /// The application writes.
    Write,
    /// A sender's timers: retransmission, probe, reordering.
    Sender,
    Pace,
    Receiver,
    /// Traces take samples.
    Sample,
    /// The measurement begins.
    Measure,
    /// The opening ends.
    Opened,
    /// A link changes its configuration.
    Change,
    /// An end of a tunnel: its timers, and arrived packets.
    Tunnel,
}

impl Event {
    #[inline]
    pub(crate) fn new(occasion: Occasion, whose: usize) -> Self {
        Self((occasion as u64) << 32 | whose as u64)
    }

    #[inline]
    pub(crate) fn whose(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    #[inline]
    pub(crate) fn occasion(self) -> Occasion {
        OCCASIONS[(self.0 >> 32) as usize]
    }
}

const OCCASIONS: [Occasion; 12] = [
    Occasion::Delivery,
    Occasion::Start,
    Occasion::Stop,
    Occasion::Write,
    Occasion::Sender,
    Occasion::Pace,
    Occasion::Receiver,
    Occasion::Sample,
    Occasion::Measure,
    Occasion::Opened,
    Occasion::Change,
    Occasion::Tunnel,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_unpacks_as_packed() {
        for occasion in OCCASIONS {
            let event = Event::new(occasion, 123_456);
            assert_eq!((event.occasion(), event.whose()), (occasion, 123_456));
        }
    }
}
