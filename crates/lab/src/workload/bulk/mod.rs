mod arrived;
mod machine;
mod programs;
mod sample;
mod transfer;

pub(crate) use machine::measure;
pub(crate) use programs::IPERF3;
