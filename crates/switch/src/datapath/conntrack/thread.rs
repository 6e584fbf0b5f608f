use std::sync::Arc;

use units::Time;

use super::{Conntrack, Headers, View};
use crate::datapath::{Packet, TrackCall, Tracked, Tracker, flag};

/// A thread's access to connection tracking.
#[derive(Debug, Clone)]
pub struct ThreadTracker {
    table: Arc<Conntrack>,
}

impl ThreadTracker {
    #[must_use]
    pub fn new(table: Arc<Conntrack>) -> Self {
        Self { table }
    }
}

impl Tracker for ThreadTracker {
    #[inline]
    fn hash(&self, packet: &Packet, zone: u16) -> u64 {
        self.table.hash(&packet.key, packet.frame.bytes(), headers(packet), zone)
    }

    #[inline]
    fn warm(&self, hashes: &[u64]) {
        self.table.warm(hashes);
    }

    #[inline]
    fn track(
        &mut self,
        packet: &mut Packet,
        call: &TrackCall<'_>,
        hash: Option<u64>,
        now: Time,
    ) -> Tracked {
        let headers = headers(packet);
        let mut view = View { key: &mut packet.key, frame: packet.frame.bytes_mut(), headers };
        self.table.track(&mut view, call, hash, now)
    }
}

/// A packet that is not IP, or no longer, has no headers to track.
#[inline]
fn headers(packet: &Packet) -> Headers {
    let layout = packet.layout;
    if layout.flags & (flag::IPV4 | flag::IPV6) == 0 {
        return Headers::default();
    }
    Headers {
        network: layout.network as usize,
        transport: layout.transport as usize,
        end: layout.end as usize,
    }
}
