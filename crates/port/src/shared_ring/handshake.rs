//! The first messages on the socket: the creator passes the memory, and the other process checks
//! the memory.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use thiserror::Error;

use super::layout::{Geometry, Violation};
use crate::shared_memory::SharedMemory;
use crate::unix_peer;

#[derive(Debug)]
pub(super) struct Handed {
    pub(super) memory: Arc<SharedMemory>,
    pub(super) geometry: Geometry,
}

#[derive(Debug, Error)]
pub(super) enum HandshakeError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("no answer: another program may be attached already")]
    Silence,
    #[error("the peer speaks another version of the ring protocol: use the same weir at both ends")]
    Greeting,
    #[error("the peer's memory is refused: {0}")]
    Memory(&'static str),
    #[error("the peer's memory is refused: {0}")]
    Violation(#[from] Violation),
}

pub(super) fn create(stream: &UnixStream, geometry: Geometry) -> Result<Handed, HandshakeError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("weir-ring", flags).map_err(io::Error::from)?;
    rustix::fs::ftruncate(&file, geometry.memory_len() as u64).map_err(io::Error::from)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(io::Error::from)?;
    let memory = SharedMemory::map_present(&file, 0, geometry.memory_len())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    unix_peer::send(stream, &greeting(geometry), &[file.as_fd()])?;
    let mut answer = [0; ATTACHED.len()];
    read(stream, &mut answer, &mut Vec::new())?;
    if answer != *ATTACHED {
        return Err(HandshakeError::Greeting);
    }
    Ok(Handed { memory: Arc::new(memory), geometry })
}

pub(super) fn attach(stream: &UnixStream) -> Result<Handed, HandshakeError> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut bytes = [0; GREETING];
    let mut files = Vec::new();
    read(stream, &mut bytes, &mut files)?;
    let geometry = parse(&bytes).ok_or(HandshakeError::Greeting)?.check()?;
    let [file] = &files[..] else {
        return Err(HandshakeError::Memory("it comes with another number of descriptors than one"));
    };
    let sealed =
        rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    if !sealed {
        return Err(HandshakeError::Memory("the peer could cut it off: it is not sealed"));
    }
    let size = rustix::fs::fstat(file).map_err(io::Error::from)?.st_size;
    if usize::try_from(size).map_or(true, |size| size < geometry.memory_len()) {
        return Err(HandshakeError::Memory("it is smaller than announced"));
    }
    let memory = SharedMemory::map_present(file, 0, geometry.memory_len())?;
    unix_peer::send(stream, ATTACHED, &[])?;
    Ok(Handed { memory: Arc::new(memory), geometry })
}

fn read(
    stream: &UnixStream,
    bytes: &mut [u8],
    files: &mut Vec<OwnedFd>,
) -> Result<(), HandshakeError> {
    unix_peer::receive_exactly(stream, bytes, files).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => HandshakeError::Silence,
        _ => error.into(),
    })
}

fn greeting(geometry: Geometry) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&geometry.descriptors.to_le_bytes());
    bytes[12..].copy_from_slice(&geometry.area.to_le_bytes());
    bytes
}

fn parse(bytes: &[u8; GREETING]) -> Option<Geometry> {
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    (bytes[..8] == *MAGIC).then_some(())?;
    Some(Geometry { descriptors: number(8)?, area: number(12)? })
}

/// The last byte is the version of the protocol.
const MAGIC: &[u8; 8] = b"weirrng\x01";
const ATTACHED: &[u8; 8] = b"attached";
const GREETING: usize = 16;
const PATIENCE: Duration = Duration::from_secs(2);
