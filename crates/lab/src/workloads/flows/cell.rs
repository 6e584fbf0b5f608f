//! The workload of one cell: the flows, the link and the network around it.

use super::settings::FlowsSettings;
use crate::model::file::{
    Document, Ends, FileError, LinkSettings, Senders, Shape, TO, TopologySettings, VIA,
};
use link::{Capacity, LinkConfig};
use results::Axes;
use sim::TcpConfig;

#[derive(Debug, Clone)]
pub(crate) struct FlowsCell {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) flows: FlowsSettings,
    pub(super) topology: TopologySettings,
    /// The link between the sending and the receiving host, and the TCP settings of the hosts.
    /// `None` over a host's loopback.
    pub(super) link: Option<(LinkSettings, TcpConfig)>,
}

impl FlowsCell {
    pub(super) fn parse(document: &Document, axes: &Axes, ends: &Ends) -> Result<Self, FileError> {
        check_link(document, axes, ends)?;
        let flows = FlowsSettings::parse(document, axes)?;
        let cell = Self::with(document, axes, ends, flows)?;
        // An incast has one sender for each flow from the beginning.
        if cell.topology.shape == Shape::Incast && cell.flows.arrivals.is_some() {
            let message = "an incast has one sender for each flow from the beginning: \
                           remove `arrivals`, or use another shape";
            return Err(document
                .source
                .error(document.place_of_workload(&[super::ARRIVALS]), message));
        }
        Ok(cell)
    }

    /// Builds a cell with a flow without end for each stream.
    pub(crate) fn of_streams(
        document: &Document,
        axes: &Axes,
        ends: &Ends,
    ) -> Result<Self, FileError> {
        Self::with(document, axes, ends, FlowsSettings::endless(ends.streams))
    }

    /// Returns the hosts of an incast on a machine, in the order of their flows: competing flows
    /// first.
    pub(super) fn senders(&self) -> Vec<String> {
        let count = match self.topology.shape {
            Shape::Incast => self.flows.own + self.flows.beside.map_or(0, |beside| beside.count),
            _ => 1,
        };
        (0..count).map(|number| Senders::name(&self.from, number)).collect()
    }

    /// Returns the links of the cell on a machine. The link of an incast is a switch's port, and
    /// each sender has an access link to the switch.
    pub(super) fn machine_links(&self, links: Vec<LinkSettings>) -> Vec<LinkSettings> {
        let incast = self.topology.shape == Shape::Incast;
        let of_port = |link: LinkSettings| {
            if !incast || !link.joins(&self.from, &self.to) {
                return link;
            }
            let mut link = link.seen_from(&self.from);
            let own = link.way_from(&self.from).map(|way| way.rate.clone());
            let rate = self.topology.access.clone().or(own).unwrap_or_default();
            let access = LinkConfig { rate, ..LinkConfig::default() };
            link.senders = Some(Senders { count: self.senders().len() as u32, access });
            link
        };
        links.into_iter().map(of_port).collect()
    }

    fn with(
        document: &Document,
        axes: &Axes,
        ends: &Ends,
        flows: FlowsSettings,
    ) -> Result<Self, FileError> {
        let topology = document.topology_at(axes)?;
        let (from, to) = (ends.from.clone(), ends.to.clone());
        let links = document.links_at(axes)?;
        let link = match links.into_iter().find(|link| link.joins(&from, &to)) {
            Some(link) => {
                let hosts = document.tcp_at(axes, &link)?;
                document.check_systems_at(axes, link.product_from(&from))?;
                Some((link, hosts))
            }
            None => None,
        };
        Ok(Self { from, to, flows, topology, link })
    }
}

/// Checks that the flows share an emulated link with a rate.
fn check_link(document: &Document, axes: &Axes, ends: &Ends) -> Result<(), FileError> {
    let links = document.links_at(axes)?;
    let link = links.iter().find(|link| link.joins(&ends.from, &ends.to));
    let message = match link.and_then(|link| link.way_from(&ends.from)) {
        None => "flows share an emulated link, and this way is a plain cable",
        Some(config) if config.rate == Capacity::Unlimited => {
            "flows share a link with a `rate`: without one their rate would grow without end"
        }
        Some(_) => return Ok(()),
    };
    document.refuse(document.place_of_workload(&[VIA, TO]), message)
}
