use crate::conditions::{Conditions, Policer};
use link::LinkConfig;
use units::{Span, Time};

/// Nodes and the one-way links between them. Ways are the shortest, counted in links; where there
/// are several, a hash of the flow chooses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Topology {
    nodes: u32,
    links: Vec<Joint>,
    changes: Vec<Change>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub(crate) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub(crate) u32);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Joint {
    pub(crate) name: String,
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) config: LinkConfig,
    pub(crate) conditions: Conditions,
}

/// What a link becomes, and when.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) link: LinkId,
    pub(crate) at: Time,
    pub(crate) config: LinkConfig,
}

impl Topology {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn node(&mut self) -> Node {
        self.nodes += 1;
        Node(self.nodes - 1)
    }

    pub fn nodes(&mut self, count: usize) -> Vec<Node> {
        (0..count).map(|_| self.node()).collect()
    }

    /// One direction. A link without a rate, a loss or anything else but a delay is a wire: it costs
    /// little.
    pub fn link(
        &mut self,
        name: impl Into<String>,
        from: Node,
        to: Node,
        config: &LinkConfig,
    ) -> LinkId {
        let (name, config) = (name.into(), config.clone());
        self.links.push(Joint { name, from, to, config, conditions: Conditions::default() });
        LinkId(self.links.len() as u32 - 1)
    }

    /// Both directions alike.
    pub fn cable(&mut self, name: &str, a: Node, b: Node, config: &LinkConfig) -> (LinkId, LinkId) {
        let there = self.link(format!("{name} >"), a, b, config);
        let back = self.link(format!("{name} <"), b, a, config);
        (there, back)
    }

    /// From `at` on the link is like `config`: see [`link::Link::reconfigure`] for what becomes of the
    /// packets inside.
    pub fn change(&mut self, link: LinkId, at: Time, config: &LinkConfig) {
        self.changes.push(Change { link, at, config: config.clone() });
    }

    /// A policer before the link.
    pub fn police(&mut self, link: LinkId, policer: Policer) {
        if let Some(joint) = self.links.get_mut(link.0 as usize) {
            joint.conditions.policer = Some(policer);
        }
    }

    /// What the link delivers comes out every so often, all together.
    pub fn release_every(&mut self, link: LinkId, every: Span) {
        if let Some(joint) = self.links.get_mut(link.0 as usize) {
            joint.conditions.release_every = Some(every);
        }
    }

    pub fn len(&self) -> usize {
        self.nodes as usize
    }

    pub fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    pub(crate) fn joints(&self) -> &[Joint] {
        &self.links
    }

    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub(crate) fn changes_later(&self, link: usize) -> bool {
        self.changes.iter().any(|change| change.link.0 as usize == link)
    }
}
