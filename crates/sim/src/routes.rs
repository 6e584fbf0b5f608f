use crate::topology::LinkSpec;
use crate::{Node, SimError};
use std::collections::{HashMap, VecDeque};

/// The paths of all flows, each stored once, in one table. A packet carries an index in the table.
#[derive(Debug)]
pub(crate) struct Routes {
    hops: Vec<u32>,
    known: HashMap<Vec<u32>, u32>,
    /// For a destination, the distance of each node in links.
    distances: HashMap<u32, Vec<u32>>,
    outgoing: Vec<Vec<u32>>,
    incoming: Vec<Vec<u32>>,
}

impl Routes {
    pub(crate) fn new(nodes: usize, link_specs: &[LinkSpec]) -> Self {
        let (mut outgoing, mut incoming) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
        for (index, link_spec) in link_specs.iter().enumerate() {
            outgoing[link_spec.from.0 as usize].push(index as u32);
            incoming[link_spec.to.0 as usize].push(index as u32);
        }
        Self {
            hops: Vec::new(),
            known: HashMap::new(),
            distances: HashMap::new(),
            outgoing,
            incoming,
        }
    }

    /// Returns the link at an index in the table; `None` at the end of the path.
    #[inline]
    pub(crate) fn hop(&self, place: u32) -> Option<usize> {
        let link = self.hops[place as usize];
        (link != ARRIVED).then_some(link as usize)
    }

    /// Returns the index at which the path of a flow begins in the table.
    pub(crate) fn way(
        &mut self,
        link_specs: &[LinkSpec],
        from: Node,
        to: Node,
        flow: u64,
    ) -> Result<u32, SimError> {
        let Self { outgoing, incoming, .. } = self;
        let distances =
            self.distances.entry(to.0).or_insert_with(|| distances(link_specs, incoming, to));
        if distances[from.0 as usize] == UNREACHABLE {
            return Err(SimError::NoRoute { from: from.0, to: to.0 });
        }
        let mut way = Vec::new();
        let mut at = from;
        while at != to {
            let left = distances[at.0 as usize];
            let nearer =
                |link: &&u32| distances[link_specs[**link as usize].to.0 as usize] + 1 == left;
            let choices: Vec<u32> =
                outgoing[at.0 as usize].iter().filter(nearer).copied().collect();
            let hash = link::mix(flow ^ link::mix(u64::from(at.0) + 1));
            let link = choices[(hash % choices.len() as u64) as usize];
            way.push(link);
            at = link_specs[link as usize].to;
        }
        way.push(ARRIVED);
        let next = self.hops.len() as u32;
        let hops = &mut self.hops;
        Ok(*self.known.entry(way).or_insert_with_key(|way| {
            hops.extend_from_slice(way);
            next
        }))
    }
}

fn distances(link_specs: &[LinkSpec], incoming: &[Vec<u32>], to: Node) -> Vec<u32> {
    let mut distances = vec![UNREACHABLE; incoming.len()];
    distances[to.0 as usize] = 0;
    let mut ahead = VecDeque::from([to.0]);
    while let Some(node) = ahead.pop_front() {
        for link in &incoming[node as usize] {
            let before = link_specs[*link as usize].from.0;
            if distances[before as usize] == UNREACHABLE {
                distances[before as usize] = distances[node as usize] + 1;
                ahead.push_back(before);
            }
        }
    }
    distances
}

const ARRIVED: u32 = u32::MAX;
/// The distance of an unreachable node: one less than the maximum, because the search adds one to a
/// distance.
const UNREACHABLE: u32 = u32::MAX - 1;
