use crate::{Capacity, Jitter, LinkError, Loss, Overhead, QueueConfig, Reorder};
use serde::{Deserialize, Serialize};
use units::{Share, Span};

/// A link as it is written in flags and lab files. The default is a perfect wire.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkConfig {
    pub rate: Capacity,
    /// Propagation, from the end of serialisation to delivery.
    pub delay: Span,
    pub jitter: Jitter,
    pub loss: Loss,
    pub reorder: Reorder,
    /// The share of packets that arrive twice; the copy arrives right behind its original.
    pub duplicate: Share,
    /// The share of packets of which one bit is flipped.
    pub corrupt: Share,
    pub queue: QueueConfig,
    pub overhead: Overhead,
    /// Every component's random stream comes from this and the component's name.
    pub seed: u64,
}

impl LinkConfig {
    /// Whether a link can be made like this; says what to change if not.
    pub fn validate(&self) -> Result<(), LinkError> {
        self.rate.validate()?;
        self.jitter.validate()?;
        self.loss.validate()?;
        self.reorder.validate()?;
        self.queue.validate()
    }
}
