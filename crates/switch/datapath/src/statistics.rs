/// Counts of one datapath since its start, or since [`super::Datapath::clear_statistics`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that arrived. A super-packet counts as one frame, here and below.
    pub received: u64,
    /// Passes after a recirculation.
    pub recirculated: u64,
    /// Calls of [`super::Datapath::process`] with at least one frame.
    pub batches: u64,
    /// Passes in which a packet found a megaflow.
    pub megaflow_hits: u64,
    /// Number of hash tables searched by passes that found a megaflow. Each mask has one hash
    /// table.
    pub masks_probed: u64,
    /// Passes in which the pipeline translated the packet.
    pub upcalls: u64,
    /// Upcalls of packets whose megaflow was older than the last change of the rules.
    pub revalidated: u64,
    /// Packets that no step sent to a port.
    pub dropped: u64,
    /// Packets that a meter dropped.
    pub dropped_by_meter: u64,
    /// Packets that connection tracking dropped.
    pub dropped_by_tracker: u64,
    /// Packets that recirculated more than [`super::MAX_PASSES`] times, and copies beyond the
    /// limit.
    pub dropped_by_depth: u64,
    /// Frames handed to the sink.
    pub sent: u64,
    /// Packets handed to controllers.
    pub packet_ins: u64,
    /// Megaflows that were removed because no packet used them.
    pub expired: u64,
    pub stages: Stages,
}

/// The time of each stage, in ticks of the datapath's clock. A batch in every [`Stages::SAMPLING`]
/// is measured, so that reading the clock costs nearly nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    /// The number of packets in the measured batches.
    pub packets: u64,
    /// Parsing of frames, and the prefetches that run in the same loop.
    pub parse: u64,
    /// Lookups of megaflows.
    pub cache: u64,
    /// The pipeline, for packets without a current megaflow.
    pub classifier: u64,
    pub conntrack: u64,
    /// Changes, copies and all other operations.
    pub actions: u64,
    pub transmit: u64,
}

impl Stages {
    pub const SAMPLING: u64 = 16;
}
