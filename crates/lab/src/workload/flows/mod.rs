mod caqm;
mod machine;
pub(crate) mod simulated;

pub(crate) use machine::{account_queue, measure};
