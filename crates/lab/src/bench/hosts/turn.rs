use super::LabHost;
use crate::bench::LabFile;
use crate::model::Cancel;
use crate::model::file::SystemSpec;
use results::Axes;
use std::net::IpAddr;
use units::Span;

/// A turn of a workload that runs programs between two hosts of any kind.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) lab: &'a LabFile,
    pub(crate) system: &'a SystemSpec,
    pub(crate) axes: &'a Axes,
    /// The host of the client.
    pub(crate) near: &'a dyn LabHost,
    /// The host of the server.
    pub(crate) far: &'a dyn LabHost,
    /// The addresses by which the client's host and the server's host reach each other.
    pub(crate) addresses: [IpAddr; 2],
    pub(crate) streams: u32,
    pub(crate) duration: Span,
    pub(crate) omit: Span,
    pub(crate) near_cpus: &'a [usize],
    pub(crate) far_cpus: &'a [usize],
    pub(crate) cancel: &'a Cancel,
}
