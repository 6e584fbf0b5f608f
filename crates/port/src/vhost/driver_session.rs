//! The driver's side of the negotiation with a device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use thiserror::Error;

use super::driver_rings::{DriverMemory, ReceiveRing, SIZE, TransmitRing};
use super::message::{
    HEADER, Header, MessageError, NEED_REPLY, Request, RingFile, RingState, features, message,
};
use crate::unix_peer;

#[derive(Debug)]
pub(super) struct Negotiated {
    pub(super) receive: ReceiveRing,
    pub(super) transmit: TransmitRing,
    /// A descriptor that becomes readable when the device has written a frame, if the driver asked
    /// for calls.
    pub(super) call: OwnedFd,
}

#[derive(Debug, Error)]
pub(super) enum NegotiationError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Message(#[from] MessageError),
    #[error("the device does not answer: another driver may have it")]
    Silence,
    #[error("the device answers another message than the one sent")]
    Reply,
    #[error("the device lacks virtio 1 or mergeable buffers")]
    Features,
    #[error("the device refused the memory")]
    Refused,
}

/// Sets up a device with one queue in each direction.
pub(super) fn negotiate(stream: &UnixStream) -> Result<Negotiated, NegotiationError> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let needed = features::VERSION_1 | features::MERGEABLE_BUFFERS;
    tell(stream, &Request::SetOwner, &[])?;
    let offered = ask(stream, &Request::GetFeatures)?;
    if offered & needed != needed {
        return Err(NegotiationError::Features);
    }
    let accepted = needed | offered & features::PROTOCOL_FEATURES;
    let mut has_replies = false;
    if accepted & features::PROTOCOL_FEATURES != 0 {
        let offered = ask(stream, &Request::GetProtocolFeatures)?;
        let wanted = offered & features::PROTOCOL_REPLY_ACK;
        tell(stream, &Request::SetProtocolFeatures(wanted), &[])?;
        has_replies = wanted != 0;
    }
    tell(stream, &Request::SetFeatures(accepted), &[])?;

    let memory = DriverMemory::new()?;
    let calls = [event()?, event()?];
    let kicks = [event()?, event()?];
    let [receive_kick, transmit_kick] = &kicks;
    // Initialize the rings before the device sees them.
    let receive = ReceiveRing::new(&memory, receive_kick.try_clone()?);
    let transmit = TransmitRing::new(&memory, transmit_kick.try_clone()?);
    let table = Request::SetMemoryTable(vec![DriverMemory::region()]);
    let flags = if has_replies { NEED_REPLY } else { 0 };
    write(stream, &table, flags, &[memory.file.as_fd()])?;
    if has_replies && reply(stream, &table)? != 0 {
        return Err(NegotiationError::Refused);
    }
    for (ring, (call, kick)) in (0..).zip(calls.iter().zip(&kicks)) {
        let file = RingFile { ring, has_file: true };
        let size = RingState { ring, value: u32::from(SIZE) };
        tell(stream, &Request::SetRingSize(size), &[])?;
        tell(stream, &Request::SetRingBase(RingState { ring, value: 0 }), &[])?;
        tell(stream, &Request::SetRingAddresses(DriverMemory::addresses(ring)), &[])?;
        tell(stream, &Request::SetRingCall(file), &[call.as_fd()])?;
        tell(stream, &Request::SetRingKick(file), &[kick.as_fd()])?;
    }
    if accepted & features::PROTOCOL_FEATURES != 0 {
        for ring in 0..2 {
            tell(stream, &Request::EnableRing(RingState { ring, value: 1 }), &[])?;
        }
    }
    // The reply shows that the device has handled all earlier messages.
    ask(stream, &Request::GetFeatures)?;
    let [call, _] = calls;
    Ok(Negotiated { receive, transmit, call })
}

fn tell(
    stream: &UnixStream,
    request: &Request,
    files: &[BorrowedFd<'_>],
) -> Result<(), NegotiationError> {
    write(stream, request, 0, files)
}

fn ask(stream: &UnixStream, request: &Request) -> Result<u64, NegotiationError> {
    write(stream, request, 0, &[])?;
    reply(stream, request)
}

fn write(
    stream: &UnixStream,
    request: &Request,
    flags: u32,
    files: &[BorrowedFd<'_>],
) -> Result<(), NegotiationError> {
    let (number, payload) = request.encode();
    Ok(unix_peer::send(stream, &message(number, flags, &payload), files)?)
}

/// Returns the number in the reply to a request.
fn reply(stream: &UnixStream, request: &Request) -> Result<u64, NegotiationError> {
    let read = |bytes: &mut [u8]| {
        unix_peer::receive_exactly(stream, bytes, &mut Vec::new()).map_err(|error| {
            match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => NegotiationError::Silence,
                _ => error.into(),
            }
        })
    };
    let mut bytes = [0; HEADER];
    read(&mut bytes)?;
    let header = Header::parse(bytes)?;
    if header.request != request.encode().0 || !header.is_reply() || header.size != 8 {
        return Err(NegotiationError::Reply);
    }
    let mut word = [0; 8];
    read(&mut word)?;
    Ok(u64::from_ne_bytes(word))
}

fn event() -> Result<OwnedFd, NegotiationError> {
    let made = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
    Ok(made.map_err(io::Error::from)?)
}

const PATIENCE: Duration = Duration::from_secs(2);
