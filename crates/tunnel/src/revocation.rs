//! Closes open connections whose peer is no longer trusted: its certificate has expired or was
//! revoked, or the trusted list has changed.

use crate::identity::{IdentityError, PeerName, ServerTrust, TrustedPeer, good_until};
use crate::transport::Connection;
use rustls::pki_types::UnixTime;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Runs at a server: closes the connection once the server no longer admits the peer. Checks the
/// list immediately, because a reload may have replaced the list since the handshake.
pub(crate) async fn watch_peer<C: Connection, L>(
    connection: C,
    peer: PeerName,
    mut list: watch::Receiver<L>,
    trusted: impl Fn(&L) -> &[TrustedPeer],
) {
    loop {
        // Copy the certificates at each check: an idle session then holds no copy.
        let shown = connection.certificates();
        let good = good_until(&peer, &shown, trusted(&list.borrow_and_update()), UnixTime::now());
        drop(shown);
        let Some(end) = end_of(good, &connection, &peer) else { return };
        tokio::select! {
            // A connection that has ended has no certificates to check.
            biased;
            _ = connection.closed() => return,
            changed = list.changed() => if changed.is_err() { return },
            () = past(end) => {}
        }
    }
}

/// Closes a client's connection once the server's certificate has expired or `trust` no longer
/// covers the certificate. Checks at once, because a reload may have replaced the trust since the
/// handshake.
pub(crate) async fn watch_server<C: Connection>(
    connection: C,
    name: String,
    mut trust: watch::Receiver<ServerTrust>,
) {
    let shown = connection.certificates();
    loop {
        let good = trust.borrow_and_update().good_until(&shown, UnixTime::now());
        let Some(end) = end_of(good, &connection, &name) else { return };
        tokio::select! {
            _ = connection.closed() => return,
            changed = trust.changed() => if changed.is_err() { return },
            () = past(end) => {}
        }
    }
}

/// Returns when the connection must be checked again. Closes a connection that is no longer
/// trusted, and returns `None`.
fn end_of<C: Connection>(
    good: Result<Option<Duration>, IdentityError>,
    connection: &C,
    peer: &dyn std::fmt::Display,
) -> Option<Option<Duration>> {
    good.inspect_err(|error| {
        tracing::info!(%peer, %error, "no longer let in");
        connection.close("this identity is no longer let in");
    })
    .ok()
}

/// Waits until the wall clock has passed `end`, counted from 1970. Reads the clock every minute,
/// because the clock may be set, and a sleep does not advance while the machine is suspended.
async fn past(end: Option<Duration>) {
    let Some(end) = end else { return std::future::pending().await };
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let left = (end + Duration::from_secs(1)).saturating_sub(now);
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(CLOCK_CHECK_INTERVAL)).await;
    }
}

const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);
