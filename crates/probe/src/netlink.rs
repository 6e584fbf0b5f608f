use std::fmt::Debug;
use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::ProbeError;

/// A snapshot that one rtnetlink dump fills.
pub(crate) trait RouteDump: Default {
    /// The requested data, for errors.
    const WHAT: &str;

    fn request() -> RouteNetlinkMessage;

    fn add(&mut self, answer: RouteNetlinkMessage);
}

pub(crate) fn read_dump<S: RouteDump>() -> Result<S, ProbeError> {
    let mut snapshot = S::default();
    dump(NETLINK_ROUTE, S::WHAT, S::request(), |answer| snapshot.add(answer))?;
    Ok(snapshot)
}

/// Parses one datagram of the reply to a dump request.
pub(crate) fn parse_dump<S: RouteDump>(datagram: &[u8]) -> Result<S, ProbeError> {
    let mut snapshot = S::default();
    parse(datagram, S::WHAT, |answer| snapshot.add(answer))?;
    Ok(snapshot)
}

/// Requests a dump and passes each message of the reply to `each`.
pub(crate) fn dump<M>(
    protocol: isize,
    what: &'static str,
    request: M,
    each: impl FnMut(M),
) -> Result<(), ProbeError>
where
    M: NetlinkSerializable + NetlinkDeserializable + Debug,
    NetlinkPayload<M>: From<M>,
{
    exchange(protocol, what, NLM_F_REQUEST | NLM_F_DUMP, request, each)
}

/// Requests an object; `None` for an object that does not exist.
pub(crate) fn ask<M>(
    protocol: isize,
    what: &'static str,
    request: M,
) -> Result<Option<M>, ProbeError>
where
    M: NetlinkSerializable + NetlinkDeserializable + Debug,
    NetlinkPayload<M>: From<M>,
{
    let mut found = None;
    let asked = exchange(protocol, what, NLM_F_REQUEST, request, |answer| {
        found = Some(answer);
    });
    match asked {
        // The kernel returns ENOENT both for a missing object and for an unsupported request.
        Err(error) if error.is_not_supported() => Ok(None),
        asked => asked.map(|()| found),
    }
}

/// Sends a request through a new socket, which belongs to the calling thread's network namespace.
fn exchange<M>(
    protocol: isize,
    what: &'static str,
    flags: u16,
    request: M,
    mut each: impl FnMut(M),
) -> Result<(), ProbeError>
where
    M: NetlinkSerializable + NetlinkDeserializable + Debug,
    NetlinkPayload<M>: From<M>,
{
    let failed = |source| ProbeError::Kernel { what, source };
    let socket = Socket::new(protocol).map_err(failed)?;
    socket.connect(&SocketAddr::new(0, 0)).map_err(failed)?;

    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut buffer = vec![0; message.buffer_len()];
    message.serialize(&mut buffer);
    socket.send(&buffer, 0).map_err(failed)?;

    let mut buffer = Vec::with_capacity(DATAGRAM_MAX);
    loop {
        buffer.clear();
        match socket.recv(&mut buffer, 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            received => received.map_err(failed)?,
        };
        if take(&buffer, what, flags, &mut each)? {
            return Ok(());
        }
    }
}

/// Passes on the messages of one datagram. Returns whether the reply ends with this datagram.
fn take<M>(
    datagram: &[u8],
    what: &'static str,
    flags: u16,
    each: &mut impl FnMut(M),
) -> Result<bool, ProbeError>
where
    M: NetlinkDeserializable + Debug,
{
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkMessage::<M>::deserialize(rest)
            .map_err(|error| ProbeError::malformed(what, error.to_string()))?;
        let length = message.header.length as usize;
        match message.payload {
            NetlinkPayload::InnerMessage(inner) => {
                each(inner);
                // Only the reply to a dump has an explicit end.
                if flags & NLM_F_DUMP != NLM_F_DUMP {
                    return Ok(true);
                }
            }
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) if error.code.is_some() => {
                let source = io::Error::from_raw_os_error(error.raw_code().saturating_neg());
                return Err(match source.raw_os_error() {
                    Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT) => {
                        ProbeError::NotSupported {
                            feature: what,
                            hint: "the kernel module that answers is not there",
                        }
                    }
                    _ => ProbeError::Kernel { what, source },
                });
            }
            _ => {}
        }
        // Messages are aligned to four bytes (NLMSG_ALIGN); the last may lack its padding.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        if length == 0 {
            return Err(ProbeError::malformed(what, "a message of no length"));
        }
    }
    Ok(false)
}

/// Passes each message in one datagram of a dump to `each`.
pub(crate) fn parse<M>(
    datagram: &[u8],
    what: &'static str,
    mut each: impl FnMut(M),
) -> Result<(), ProbeError>
where
    M: NetlinkDeserializable + Debug,
{
    take(datagram, what, NLM_F_DUMP, &mut each).map(drop)
}

/// The kernel fills datagrams of at most 32 KiB (net/netlink/af_netlink.c, netlink_dump).
const DATAGRAM_MAX: usize = 64 * 1024;
