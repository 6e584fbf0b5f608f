//! The device's side of a connection: the messages by which the driver sets up the rings.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use thiserror::Error;

use super::device::Rings;
use super::device_ring::{DeviceRing, RingError, RingSettings};
use super::memory::GuestMemory;
use super::message::{
    HEADER, Header, MessageError, REPLY, Request, RingAddresses, RingState, features, message,
};
use crate::unix_peer::{self, StopSignal, Wake};

/// The settings that a front end has sent so far.
pub(super) struct Session<'a> {
    stream: &'a UnixStream,
    rings: &'a Rings,
    features: u64,
    protocol_features: u64,
    memory: Option<Arc<GuestMemory>>,
    setups: Vec<Setup>,
}

#[derive(Debug, Default)]
struct Setup {
    size: Option<u32>,
    addresses: Option<RingAddresses>,
    /// Whether the driver has started the ring, with or without a descriptor.
    is_kicked: bool,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    is_enabled: bool,
}

#[derive(Debug, Error)]
pub(super) enum SessionError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Message(#[from] MessageError),
    #[error("{0}")]
    Ring(#[from] RingError),
    #[error("there is no ring {0}")]
    NoRing(u32),
    #[error("a message that needs one descriptor came with {0}")]
    Files(usize),
    #[error("features were accepted that were not offered")]
    Features,
}

impl<'a> Session<'a> {
    pub(super) fn new(stream: &'a UnixStream, rings: &'a Rings) -> Self {
        let setups = (0..rings.count()).map(|_| Setup::default()).collect();
        Self { stream, rings, features: 0, protocol_features: 0, memory: None, setups }
    }

    /// Serves the front end until it disconnects, breaks a rule, or `stop` is signalled.
    pub(super) fn run(mut self, stop: &StopSignal) -> Result<(), SessionError> {
        // The timeout ensures that an incomplete message does not block the thread for long.
        self.stream.set_read_timeout(Some(PATIENCE))?;
        self.stream.set_write_timeout(Some(PATIENCE))?;
        loop {
            if stop.wait(Some((self.stream.as_fd(), PollFlags::IN)), None) == Wake::Stop {
                return Ok(());
            }
            let mut files = Vec::new();
            let mut bytes = [0; HEADER];
            match unix_peer::receive(self.stream, &mut bytes[..1], &mut files) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            unix_peer::receive_exactly(self.stream, &mut bytes[1..], &mut files)?;
            let header = Header::parse(bytes)?;
            let mut payload = vec![0; header.size as usize];
            unix_peer::receive_exactly(self.stream, &mut payload, &mut files)?;
            self.answer(header, &payload, files)?;
        }
    }

    fn answer(
        &mut self,
        header: Header,
        payload: &[u8],
        files: Vec<OwnedFd>,
    ) -> Result<(), SessionError> {
        let outcome = match Request::parse(header.request, payload) {
            Ok(request) => self.handle(request, files),
            // Front ends of later protocol versions send further messages without negotiation.
            Err(MessageError::Unknown(request)) => {
                tracing::debug!("vhost-user: message {request} is ignored");
                Ok(Some(1_u64.to_ne_bytes().to_vec()).filter(|_| header.wants_reply()))
            }
            Err(error) => return Err(error.into()),
        };
        let is_asked =
            header.wants_reply() && self.protocol_features & features::PROTOCOL_REPLY_ACK != 0;
        let reply = match &outcome {
            Ok(Some(reply)) => Some(reply.clone()),
            Ok(None) => is_asked.then(|| 0_u64.to_ne_bytes().to_vec()),
            Err(_) => is_asked.then(|| 1_u64.to_ne_bytes().to_vec()),
        };
        if let Some(reply) = reply {
            unix_peer::send(self.stream, &message(header.request, REPLY, &reply), &[])?;
        }
        outcome.map(drop)
    }

    /// Handles a request. Returns the reply if the request has its own reply format.
    fn handle(
        &mut self,
        request: Request,
        files: Vec<OwnedFd>,
    ) -> Result<Option<Vec<u8>>, SessionError> {
        let word = |word: u64| Ok(Some(word.to_ne_bytes().to_vec()));
        match request {
            Request::GetFeatures => return word(OFFERED),
            Request::GetProtocolFeatures => return word(PROTOCOL_OFFERED),
            Request::GetQueueCount => return word(self.rings.count() as u64 / 2),
            Request::SetFeatures(accepted) => {
                if accepted & !OFFERED != 0 {
                    return Err(SessionError::Features);
                }
                self.features = accepted;
                self.rings.agree(accepted);
            }
            Request::SetProtocolFeatures(accepted) => {
                if accepted & !PROTOCOL_OFFERED != 0 {
                    return Err(SessionError::Features);
                }
                self.protocol_features = accepted;
            }
            Request::SetOwner | Request::Ignored(_) => {}
            Request::ResetOwner => self.stop_all(),
            Request::SetMemoryTable(regions) => {
                self.stop_all();
                self.memory = None;
                self.memory = Some(Arc::new(GuestMemory::map(&regions, &files)?));
                for ring in 0..self.setups.len() {
                    self.start(ring)?;
                }
            }
            Request::SetRingSize(RingState { ring, value }) => {
                self.change(ring, |setup| setup.size = Some(value))?;
            }
            Request::SetRingAddresses(addresses) => {
                self.change(addresses.ring, |setup| setup.addresses = Some(addresses))?;
            }
            // The memory also holds the index; see `DeviceRing::new`.
            Request::SetRingBase(state) => self.change(state.ring, |_| {})?,
            Request::GetRingBase(RingState { ring, .. }) => {
                let index = self.index(ring)?;
                let base = self.rings.stop(index);
                let setup = &mut self.setups[index];
                (setup.is_kicked, setup.kick, setup.call) = (false, None, None);
                let state = RingState { ring, value: u32::from(base) };
                return Ok(Some(Request::GetRingBase(state).encode().1));
            }
            Request::SetRingKick(of) => {
                let file = single(of.has_file, files)?;
                self.change(of.ring, |setup| {
                    (setup.is_kicked, setup.kick) = (true, file);
                })?;
            }
            Request::SetRingCall(of) => {
                let file = single(of.has_file, files)?;
                self.change(of.ring, |setup| setup.call = file)?;
            }
            Request::SetRingError(of) => {
                self.index(of.ring)?;
            }
            Request::EnableRing(RingState { ring, value }) => {
                self.change(ring, |setup| setup.is_enabled = value != 0)?;
            }
        }
        Ok(None)
    }

    fn index(&self, ring: u32) -> Result<usize, SessionError> {
        let index = usize::try_from(ring).ok().filter(|index| *index < self.setups.len());
        index.ok_or(SessionError::NoRing(ring))
    }

    /// Changes the settings of a ring. The ring must not run.
    fn change(&mut self, ring: u32, change: impl FnOnce(&mut Setup)) -> Result<(), SessionError> {
        let index = self.index(ring)?;
        self.rings.stop(index);
        change(&mut self.setups[index]);
        self.start(index)
    }

    /// Starts a ring if the front end has sent all settings of the ring.
    fn start(&mut self, index: usize) -> Result<(), SessionError> {
        let setup = &self.setups[index];
        let is_enabled = setup.is_enabled || self.features & features::PROTOCOL_FEATURES == 0;
        let (Some(memory), Some(size), Some(addresses)) =
            (&self.memory, setup.size, setup.addresses)
        else {
            return Ok(());
        };
        if !setup.is_kicked || !is_enabled {
            return Ok(());
        }
        let copy = |file: &Option<OwnedFd>| file.as_ref().map(OwnedFd::try_clone).transpose();
        let is_mergeable = self.features & features::MERGEABLE_BUFFERS != 0;
        let is_modern = self.features & features::VERSION_1 != 0;
        let settings = RingSettings {
            header: if is_mergeable || is_modern { 12 } else { 10 },
            is_mergeable,
            reads_offloads: self.features & features::CHECKSUM != 0,
            kick: copy(&setup.kick)?.map(|fd| self.rings.watch(index, fd)).transpose()?,
            call: copy(&setup.call)?,
        };
        let ring = DeviceRing::new(memory.clone(), size, addresses, settings)?;
        self.rings.start(index, ring);
        Ok(())
    }

    fn stop_all(&self) {
        for ring in 0..self.setups.len() {
            self.rings.stop(ring);
        }
    }
}

/// Returns the only descriptor of a message, after making the descriptor non-blocking.
fn single(is_expected: bool, mut files: Vec<OwnedFd>) -> Result<Option<OwnedFd>, SessionError> {
    if files.len() != usize::from(is_expected) {
        return Err(SessionError::Files(files.len()));
    }
    let file = files.pop();
    if let Some(file) = &file {
        let flags = fcntl_getfl(file).map_err(io::Error::from)?;
        fcntl_setfl(file, flags | OFlags::NONBLOCK).map_err(io::Error::from)?;
    }
    Ok(file)
}

const OFFERED: u64 = features::CHECKSUM
    | features::HOST_TSO4
    | features::HOST_TSO6
    | features::HOST_ECN
    | features::HOST_USO
    | features::GUEST_CHECKSUM
    | features::GUEST_TSO4
    | features::GUEST_TSO6
    | features::GUEST_ECN
    | features::GUEST_USO4
    | features::GUEST_USO6
    | features::MERGEABLE_BUFFERS
    | features::MULTIQUEUE
    | features::INDIRECT_DESCRIPTORS
    | features::PROTOCOL_FEATURES
    | features::VERSION_1;
const PROTOCOL_OFFERED: u64 = features::PROTOCOL_MULTIQUEUE | features::PROTOCOL_REPLY_ACK;
const PATIENCE: Duration = Duration::from_secs(2);
