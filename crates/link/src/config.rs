use crate::{Capacity, Jitter, LinkError, Loss, Overhead, QueueConfig, Reorder};
use serde::{Deserialize, Serialize};
use units::{Share, Span};

/// A link as flags and lab files describe it. The default is a perfect wire.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkConfig {
    /// Rate of serialisation; unlimited by default.
    pub rate: Capacity,
    /// Propagation delay, from the end of serialisation to delivery.
    pub delay: Span,
    /// Variation of the propagation delay.
    pub jitter: Jitter,
    /// Loss on the medium, after serialisation. Drops by the queue do not count as loss.
    pub loss: Loss,
    /// Extra delay for a share of the packets, so that later packets overtake them.
    pub reorder: Reorder,
    /// The share of packets that arrive twice. The copy arrives directly after its original.
    pub duplicate: Share,
    /// The share of packets that have one bit flipped.
    pub corrupt: Share,
    /// Queue in front of the link; a drop-tail queue of 10,000 packets by default.
    pub queue: QueueConfig,
    /// Bytes that the medium carries for each frame in addition to the frame's size.
    pub overhead: Overhead,
    /// Each component derives its random stream from this seed and the component's name.
    pub seed: u64,
}

impl LinkConfig {
    /// Checks that a link can have this configuration. The error says what to change.
    pub fn validate(&self) -> Result<(), LinkError> {
        self.rate.validate()?;
        self.jitter.validate()?;
        self.loss.validate()?;
        self.reorder.validate()?;
        self.queue.validate()
    }
}
