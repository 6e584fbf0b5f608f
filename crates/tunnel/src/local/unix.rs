use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// A UNIX stream. The stream's application gets an error if this process dies before
/// [`Self::finish`].
///
/// A UNIX socket has no reset. However, if a byte is unread at the close, the kernel gives the
/// other end ECONNRESET instead of an end of file (unix_release_sock in net/unix/af_unix.c). This
/// type therefore leaves the last byte of a short request in the socket, although the tunnel has
/// passed the byte on. An application that has sent nothing, or many bytes at once, gets an end of
/// file.
#[derive(Debug)]
pub(crate) struct UnixLocal {
    stream: UnixStream,
    unread: Mutex<Unread>,
}

/// Which bytes that the tunnel has already passed on are still in the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unread {
    /// No byte. The tunnel has passed on all bytes that arrived before the last read.
    Nothing,
    LastByte,
    /// No byte, because the application sends much. A byte that stays would occupy its whole kernel
    /// buffer, and a full socket would block the application.
    Busy,
    /// No byte. The application has received all bytes.
    Finished,
}

impl UnixLocal {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, unread: Mutex::new(Unread::Nothing) }
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(super) fn try_read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        let mut unread = self.unread();
        if *unread != Unread::Finished {
            let request = || self.read_request(&mut unread, buffer);
            if let Some(count) = self.stream.try_io(Interest::READABLE, request)? {
                return Ok(count);
            }
        }
        self.stream.try_read_buf(buffer)
    }

    /// Makes a later close appear to the application as an end of file.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut unread = self.unread();
        self.discard(&mut unread)?;
        *unread = Unread::Finished;
        Ok(())
    }

    fn unread(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all new bytes but leaves the last byte in the socket. Returns `None` for more bytes
    /// than a short request has.
    fn read_request(
        &self,
        unread: &mut Unread,
        buffer: &mut BytesMut,
    ) -> io::Result<Option<usize>> {
        // Check for the end first, because no bytes arrive after it.
        let has_ended = self.has_ended()?;
        let kept = usize::from(*unread == Unread::LastByte);
        let new = (rustix::io::ioctl_fionread(&self.stream)? as usize).saturating_sub(kept);
        if new == 0 {
            if *unread == Unread::Busy {
                *unread = Unread::Nothing;
            }
            return match has_ended {
                true => self.stream.take_error()?.map_or(Ok(Some(0)), Err),
                false => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        self.discard(unread)?;
        let mut request = [0; MOST_KEPT];
        if *unread == Unread::Busy || new > request.len() {
            *unread = Unread::Busy;
            return Ok(None);
        }
        let mut count = 0;
        if new > 1 {
            let before = &mut request[..new - 1];
            count = rustix::net::recv(&self.stream, before, RecvFlags::empty())?.1;
        }
        if count + 1 == new {
            rustix::net::recv(&self.stream, &mut request[count..new], RecvFlags::PEEK)?;
            *unread = Unread::LastByte;
            count = new;
        }
        buffer.extend_from_slice(&request[..count]);
        Ok(Some(count))
    }

    fn discard(&self, unread: &mut Unread) -> io::Result<()> {
        if *unread == Unread::LastByte {
            rustix::net::recv(&self.stream, &mut [0; 1], RecvFlags::empty())?;
            *unread = Unread::Nothing;
        }
        Ok(())
    }

    /// Whether the application has ended its half.
    fn has_ended(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polled, Some(&at_once))?;
        let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        Ok(polled[0].revents().intersects(ends))
    }
}

/// Maximum length of a request that counts as short.
const MOST_KEPT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream as Peer;

    fn pair() -> (UnixLocal, Peer) {
        let (own, peer) = Peer::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        (UnixLocal::new(UnixStream::from_std(own).unwrap()), peer)
    }

    async fn read(local: &UnixLocal) -> io::Result<Vec<u8>> {
        let mut buffer = BytesMut::with_capacity(16 * 1024);
        loop {
            local.stream().readable().await?;
            match local.try_read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read.map(|count| buffer[..count].to_vec()),
            }
        }
    }

    #[tokio::test]
    async fn reads_of_any_size_return_each_byte_once() {
        let (local, mut peer) = pair();
        let sizes = [1, 2, 1, 1023, 1024, 1025, 1, 5000, 20_000, 7, 1, 40_000, 3];
        for pause in [false, true] {
            let sent: Vec<u8> = (0..sizes.iter().sum()).map(|at: usize| (at % 251) as u8).collect();
            let mut left = &sent[..];
            let mut received = Vec::new();
            for size in sizes {
                let (now, later) = left.split_at(size);
                peer.write_all(now).unwrap();
                left = later;
                while pause && received.len() < sent.len() - left.len() {
                    received.extend(read(&local).await.unwrap());
                }
            }
            while received.len() < sent.len() {
                received.extend(read(&local).await.unwrap());
            }
            assert!(received == sent, "{} of {}", received.len(), sent.len());
        }
        peer.write_all(b"last").unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(read(&local).await.unwrap(), b"last");
        assert_eq!(read(&local).await.unwrap(), b"");
    }

    #[tokio::test]
    async fn only_a_finished_stream_closes_with_an_end_of_file() {
        for is_finished in [false, true] {
            let (local, mut peer) = pair();
            peer.write_all(b"a request").unwrap();
            assert_eq!(read(&local).await.unwrap(), b"a request");
            if is_finished {
                local.finish().unwrap();
                peer.write_all(b"more").unwrap();
                assert_eq!(read(&local).await.unwrap(), b"more");
            }
            drop(local);
            let end = peer.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(end, if is_finished { Ok(0) } else { Err(ErrorKind::ConnectionReset) });
        }
    }

    #[tokio::test]
    async fn a_peer_with_a_small_send_buffer_can_send_all_its_data() {
        let (local, peer) = pair();
        socket2::SockRef::from(&peer).set_send_buffer_size(8192).unwrap();
        peer.set_nonblocking(true).unwrap();
        let peer = UnixStream::from_std(peer).unwrap();
        for size in (1..2000).step_by(97) {
            let bytes = vec![7; size];
            peer.writable().await.unwrap();
            assert_eq!(peer.try_write(&bytes).unwrap(), size);
            let mut received = 0;
            while received < size {
                received += read(&local).await.unwrap().len();
            }
        }
    }
}
