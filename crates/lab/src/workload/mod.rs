//! The workloads of a lab.

pub(crate) mod bulk;
pub(crate) mod crowd;
pub(crate) mod download;
pub(crate) mod flows;
pub(crate) mod link_accuracy;
pub(crate) mod messages;
pub(crate) mod validate;
