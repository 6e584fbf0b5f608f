//! Open connections whose other end is let in no longer: its certificate has ended or was revoked, or the list of those
//! trusted is another one.

use crate::identity::{IdentityError, PeerName, ServerTrust, TrustedPeer, good_until};
use crate::transport::Connection;
use rustls::pki_types::UnixTime;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// At a server: closes the connection when the peer would be let in no longer. The list is looked at when this begins:
/// it may have been replaced since the handshake.
pub(crate) async fn of_peer<C: Connection, L>(
    connection: C,
    peer: PeerName,
    mut list: watch::Receiver<L>,
    trusted: impl Fn(&L) -> &[TrustedPeer],
) {
    let shown = connection.certificates();
    loop {
        let good = good_until(&peer, &shown, trusted(&list.borrow_and_update()), UnixTime::now());
        let Some(end) = end_of(good, &connection, &peer) else { return };
        tokio::select! {
            _ = connection.closed() => return,
            changed = list.changed() => if changed.is_err() { return },
            () = past(end) => {}
        }
    }
}

/// At a client: closes the connection when the server's certificate has ended.
pub(crate) async fn of_server<C: Connection>(connection: C, name: String, trust: ServerTrust) {
    let shown = connection.certificates();
    loop {
        let good = trust.good_until(&shown, UnixTime::now());
        let Some(end) = end_of(good, &connection, &name) else { return };
        tokio::select! {
            _ = connection.closed() => return,
            () = past(end) => {}
        }
    }
}

/// `None`: it was closed.
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

/// Until the last second of this time, since 1970, is over. The wall clock is read again each minute: it may be set, and
/// sleep does not count while the machine is suspended.
async fn past(end: Option<Duration>) {
    let Some(end) = end else { return std::future::pending().await };
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let left = (end + Duration::from_secs(1)).saturating_sub(now);
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK_AT_THE_CLOCK)).await;
    }
}

const LOOK_AT_THE_CLOCK: Duration = Duration::from_secs(60);
