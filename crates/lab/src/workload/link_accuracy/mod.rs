mod datagrams;
mod machine;

pub(crate) use machine::measure;
