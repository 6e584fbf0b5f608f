use crate::{Capacity, Jitter, LinkError, Loss, Overhead, QueueConfig, Reorder};
use serde::{Deserialize, Serialize};
use units::{Share, Span};

/// A link as flags and lab files describe it. The default is a perfect wire.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkConfig {
    pub rate: Capacity,
    /// Propagation delay, from the end of serialisation to delivery.
    pub delay: Span,
    pub jitter: Jitter,
    pub loss: Loss,
    pub reorder: Reorder,
    /// The share of packets that arrive twice. The copy arrives directly after its original.
    pub duplicate: Share,
    /// The share of packets that have one bit flipped.
    pub corrupt: Share,
    pub queue: QueueConfig,
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
