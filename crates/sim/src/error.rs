use link::LinkError;

/// Why a world cannot be created.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    #[error("link {name}: {source}")]
    Link { name: String, source: LinkError },
    #[error("no way leads from node {from} to node {to}: add a link between them")]
    NoRoute { from: u32, to: u32 },
    #[error("flow {flow} goes from node {node} to itself: give it another end")]
    SameNode { flow: usize, node: u32 },
    #[error("there is no node {node}: the topology has {nodes}")]
    NoNode { node: u32, nodes: u32 },
    #[error("flow {flow} is in tunnel {tunnel}, which does not join its ends: name one that does")]
    NoTunnel { flow: usize, tunnel: usize },
    #[error("{setting}: {advice}")]
    Setting { setting: &'static str, advice: &'static str },
    #[error("{0}")]
    Caqm(#[from] cc::caqm::OutOfBounds),
    #[error("more than {limit} {what}: the world holds no more")]
    TooMany { what: &'static str, limit: usize },
}
