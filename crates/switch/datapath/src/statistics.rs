/// Counts of one datapath since its start, or since [`super::Datapath::clear_statistics`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that arrived; a super-packet is one, here and below.
    pub received: u64,
    /// Passes after a recirculation.
    pub recirculated: u64,
    /// Calls of [`super::Datapath::process`] with at least one frame.
    pub batches: u64,
    /// Passes that a megaflow took.
    pub megaflow_hits: u64,
    /// Hash tables that those passes looked at in all: one for each mask.
    pub masks_probed: u64,
    /// Passes for which the pipeline was asked.
    pub upcalls: u64,
    /// Among them, those whose megaflow was older than the last change of the rules.
    pub revalidated: u64,
    /// Packets that no step sent anywhere.
    pub dropped: u64,
    /// Packets that a meter dropped.
    pub dropped_by_meter: u64,
    /// Packets that connection tracking dropped.
    pub dropped_by_tracker: u64,
    /// Packets that recirculated more than [`super::MAX_PASSES`] times, or whose copies were too
    /// many.
    pub dropped_by_depth: u64,
    /// Frames handed to the sink.
    pub sent: u64,
    /// Packets handed to controllers.
    pub packet_ins: u64,
    /// Megaflows that were removed because no packet used them.
    pub expired: u64,
    pub stages: Stages,
}

/// Where the time goes, in the ticks of the datapath's clock. One batch in [`Stages::SAMPLING`] is
/// measured, so that reading the clock costs nearly nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    /// The packets of the measured batches.
    pub packets: u64,
    /// With the start of the first lookups, which overlaps with it.
    pub parse: u64,
    /// Lookups of megaflows.
    pub cache: u64,
    /// The pipeline, for packets without a megaflow.
    pub classifier: u64,
    pub conntrack: u64,
    /// Changes, copies and all other steps.
    pub actions: u64,
    pub transmit: u64,
}

impl Stages {
    pub const SAMPLING: u64 = 16;
}
