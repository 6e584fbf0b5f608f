use link::LinkConfig;

/// Nodes and the one-way links between them. Ways are the shortest, counted in links; where there
/// are several, a hash of the flow chooses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Topology {
    nodes: u32,
    links: Vec<Joint>,
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
        self.links.push(Joint { name: name.into(), from, to, config: config.clone() });
        LinkId(self.links.len() as u32 - 1)
    }

    /// Both directions alike.
    pub fn cable(&mut self, name: &str, a: Node, b: Node, config: &LinkConfig) -> (LinkId, LinkId) {
        let there = self.link(format!("{name} >"), a, b, config);
        let back = self.link(format!("{name} <"), b, a, config);
        (there, back)
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
}
