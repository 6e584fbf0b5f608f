//! Key exchange groups.

use rustls::crypto::aws_lc_rs::kx_group;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, ProtocolVersion};

/// Returns the groups by preference. The hybrid of ML-KEM and X25519 comes first, so that a
/// recorded connection stays secret even from a future quantum computer. The client also sends an
/// X25519 share, for servers without the hybrid.
pub(super) fn groups() -> Vec<&'static dyn SupportedKxGroup> {
    // This memory leaks, but only once per process.
    let logged =
        |group| -> &'static dyn SupportedKxGroup { Box::leak(Box::new(LoggedGroup(group))) };
    let groups =
        [kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
    groups.map(logged).into()
}

/// Logs the group at debug level when a server uses it.
#[derive(Debug)]
struct LoggedGroup(&'static dyn SupportedKxGroup);

impl SupportedKxGroup for LoggedGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        self.0.start()
    }

    /// rustls calls this method only at a server, which has the client's share.
    fn start_and_complete(&self, share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let completed = self.0.start_and_complete(share)?;
        tracing::debug!(group = ?completed.group, "completed the key exchange with a client");
        Ok(completed)
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        self.0.ffdhe_group()
    }

    fn name(&self) -> NamedGroup {
        self.0.name()
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        self.0.usable_for_version(version)
    }
}
