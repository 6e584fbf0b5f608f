mod account;
mod client;
mod ideal;
mod machine;
mod nginx;

pub(crate) use account::account_queues;
pub(crate) use machine::{WayUsed, lasting, measure};
pub(crate) use nginx::{NOT_INSTALLED, find as find_server};
