use crate::conditions::{Conditions, Policer};
use link::LinkConfig;
use units::{Span, Time};

/// Nodes and the one-way links between them. A flow's path has the fewest links; among several such
/// paths, a hash of the flow chooses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Topology {
    nodes: u32,
    links: Vec<LinkSpec>,
    changes: Vec<Change>,
}

/// A host or a switch. The value is valid in the topology that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub(crate) u32);

/// A link in one direction. The value is valid in the topology that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub(crate) u32);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinkSpec {
    pub(crate) name: String,
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) config: LinkConfig,
    pub(crate) conditions: Conditions,
}

/// A change of a link, and its time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) link: LinkId,
    pub(crate) at: Time,
    pub(crate) config: LinkConfig,
}

impl Topology {
    /// Creates a topology without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node without links.
    pub fn node(&mut self) -> Node {
        self.nodes += 1;
        Node(self.nodes - 1)
    }

    /// Adds `count` nodes without links.
    pub fn nodes(&mut self, count: usize) -> Vec<Node> {
        (0..count).map(|_| self.node()).collect()
    }

    /// Adds a link in one direction. A link that has only a delay is a wire, which costs little.
    pub fn link(
        &mut self,
        name: impl Into<String>,
        from: Node,
        to: Node,
        config: &LinkConfig,
    ) -> LinkId {
        let (name, config) = (name.into(), config.clone());
        self.links.push(LinkSpec { name, from, to, config, conditions: Conditions::default() });
        LinkId(self.links.len() as u32 - 1)
    }

    /// Adds a link in each direction, with the same configuration.
    pub fn cable(&mut self, name: &str, a: Node, b: Node, config: &LinkConfig) -> (LinkId, LinkId) {
        let there = self.link(format!("{name} >"), a, b, config);
        let back = self.link(format!("{name} <"), b, a, config);
        (there, back)
    }

    /// Changes the link to `config` at `at`. [`link::Link::reconfigure`] describes the effect on
    /// packets in the link.
    pub fn change(&mut self, link: LinkId, at: Time, config: &LinkConfig) {
        self.changes.push(Change { link, at, config: config.clone() });
    }

    /// Adds a policer before the link.
    pub fn police(&mut self, link: LinkId, policer: Policer) {
        if let Some(link_spec) = self.links.get_mut(link.0 as usize) {
            link_spec.conditions.policer = Some(policer);
        }
    }

    /// Releases the link's packets together, once in each interval.
    pub fn release_every(&mut self, link: LinkId, every: Span) {
        if let Some(link_spec) = self.links.get_mut(link.0 as usize) {
            link_spec.conditions.release_every = Some(every);
        }
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes as usize
    }

    /// Whether the topology has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    pub(crate) fn link_specs(&self) -> &[LinkSpec] {
        &self.links
    }

    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub(crate) fn changes_later(&self, link: usize) -> bool {
        self.changes.iter().any(|change| change.link.0 as usize == link)
    }
}
