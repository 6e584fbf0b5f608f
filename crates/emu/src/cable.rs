use crate::Access;
use link::LinkConfig;
use port::Port;
use units::Span;

pub struct Cable {
    pub name: String,
    pub a: Box<dyn Port>,
    pub b: Box<dyn Port>,
    /// The link from `a` to `b`.
    pub forward: LinkConfig,
    /// The link from `b` to `a`.
    pub backward: LinkConfig,
    /// Minimum time between two deliveries to an endpoint, as between a network card's interrupts.
    /// Frames that become due within this time after a delivery are delivered together. A later
    /// frame is delivered at once.
    pub interrupts: Span,
    /// The access links, if several hosts share side `a`.
    pub access: Option<Access>,
    /// The TPID of the CAQM tags to count; `None` counts no tags.
    pub tpid: Option<u16>,
}

impl std::fmt::Debug for Cable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cable").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

impl Direction {
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Forward => 0,
            Self::Backward => 1,
        }
    }
}
