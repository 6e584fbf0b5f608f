use netlink_packet_core::{
    NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// The drops that an interface has counted since [`InterfaceDrops::watch`]. The kernel dropped
/// these packets before a port could receive them.
pub(crate) struct InterfaceDrops {
    socket: Socket,
    index: u32,
    side: Side,
    seen: u64,
}

/// The direction of the dropped packets: received by the interface, or sent into the interface.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Receive,
    Transmit,
}

impl InterfaceDrops {
    /// Watches an interface of the calling thread's namespace. Returns `None` if the interface's
    /// counters cannot be read.
    pub(crate) fn watch(index: u32, side: Side) -> Option<Self> {
        let socket = Socket::new(NETLINK_ROUTE).ok()?;
        socket.connect(&SocketAddr::new(0, 0)).ok()?;
        let mut this = Self { socket, index, side, seen: 0 };
        this.seen = this.read()?;
        Some(this)
    }

    /// Returns the number of drops since the last call.
    pub(crate) fn take(&mut self) -> u64 {
        let Some(now) = self.read() else { return 0 };
        now.saturating_sub(std::mem::replace(&mut self.seen, now))
    }

    fn read(&self) -> Option<u64> {
        let mut link = LinkMessage::default();
        link.header.index = self.index;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST;
        let mut request = NetlinkMessage::new(
            header,
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::GetLink(link)),
        );
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).ok()?;
        let (answer, _) = self.socket.recv_from_full().ok()?;
        NetlinkBuffer::new_checked(&answer).ok()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).ok()?;
        let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) = answer.payload
        else {
            return None;
        };
        link.attributes.iter().find_map(|attribute| match (attribute, self.side) {
            (LinkAttribute::Stats64(stats), Side::Receive) => Some(stats.rx_dropped),
            (LinkAttribute::Stats64(stats), Side::Transmit) => Some(stats.tx_dropped),
            _ => None,
        })
    }
}

impl std::fmt::Debug for InterfaceDrops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InterfaceDrops").field("index", &self.index).finish_non_exhaustive()
    }
}
