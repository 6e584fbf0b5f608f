use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Finds the addresses of names.
pub trait Resolve: Send + Sync + std::fmt::Debug {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// Resolves as the system does: hosts file, name servers and the other sources in nsswitch.conf.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            if let Ok(address) = name.parse::<IpAddr>() {
                return Ok(vec![address.to_canonical()]);
            }
            let name = name.to_owned();
            tokio::task::spawn_blocking(move || look_up(&name)).await?
        })
    }
}

/// Asks the system for the addresses of a name. Blocks until a name server answers.
pub(crate) fn look_up(name: &str) -> io::Result<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in (name, 0).to_socket_addrs()?.map(|found| found.ip().to_canonical()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}
