//! The agreement between the pipeline and a datapath. The datapath itself is not written yet.

pub mod step;
