use link::LinkError;

/// The reason why a world cannot be created.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A link, or a later change of a link, is invalid.
    #[error("link {name}: {source}")]
    Link {
        /// The link's name in the topology.
        name: String,
        /// The mistake in the link's description.
        source: LinkError,
    },
    /// No path of links joins the ends of a flow or tunnel.
    #[error("no way leads from node {from} to node {to}: add a link between them")]
    NoRoute {
        /// The number of the path's first node.
        from: u32,
        /// The number of the path's last node.
        to: u32,
    },
    /// A flow has the same node at both ends.
    #[error("flow {flow} goes from node {node} to itself: give it another end")]
    SameNode {
        /// The flow's index in the world.
        flow: usize,
        /// The number of the node.
        node: u32,
    },
    /// A flow or tunnel ends at a node that the topology lacks.
    #[error("there is no node {node}: the topology has {nodes}")]
    NoNode {
        /// The number of the node, counted from 0.
        node: u32,
        /// The number of nodes in the topology.
        nodes: u32,
    },
    /// A flow names a tunnel that is missing or has other ends than the flow.
    #[error("flow {flow} is in tunnel {tunnel}, which does not join its ends: name one that does")]
    NoTunnel {
        /// The flow's index in the world.
        flow: usize,
        /// The index of the tunnel in [`crate::WorldConfig::tunnels`].
        tunnel: usize,
    },
    /// A setting of the hosts, a flow or a tunnel is out of bounds.
    #[error("{setting}: {advice}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// The valid values.
        advice: &'static str,
    },
    /// A parameter of CAQM's host algorithm is out of bounds.
    #[error("{0}")]
    Caqm(#[from] cc::caqm::OutOfBounds),
    /// A world has more flows or links than its indices can number.
    #[error("a world holds at most {limit} {what}: use fewer")]
    TooMany {
        /// The name of the items: "flows" or "links".
        what: &'static str,
        /// Maximum number of items of this kind.
        limit: usize,
    },
}
