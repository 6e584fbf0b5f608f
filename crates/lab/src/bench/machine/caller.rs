//! The client side of a workload that opens its own connections.

use crate::model::{Cancel, Failure};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The address to connect to, and the algorithm of the connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) target: SocketAddr,
    pub(crate) congestion: Option<&'a str>,
    pub(crate) cancel: &'a Cancel,
    /// The timeout of each call.
    pub(crate) patience: Duration,
}

/// A connection whose first message was sent and answered.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) socket: TcpStream,
    /// The time from before the connection was opened to the answer's first byte.
    pub(crate) first_byte: Duration,
    /// The time from the first message to its complete answer.
    pub(crate) first_message: Duration,
}

impl<'a> Caller<'a> {
    /// Builds a caller with the usual timeout, whose connections use the host's default algorithm.
    pub(crate) fn new(target: SocketAddr, cancel: &'a Cancel) -> Self {
        Self { target, congestion: None, cancel, patience: PATIENCE }
    }

    /// Opens a connection, sends `message` and waits for an answer of the same size.
    pub(crate) fn call(&self, message: &[u8], room: &mut [u8]) -> Result<Call, Failure> {
        let begun = Instant::now();
        let wrong = |error: std::io::Error| Failure::io("connecting", &error);
        let socket = TcpStream::connect_timeout(&self.target, self.patience).map_err(wrong)?;
        socket.set_nodelay(true).map_err(wrong)?;
        socket.set_read_timeout(Some(self.patience)).map_err(wrong)?;
        socket.set_write_timeout(Some(self.patience)).map_err(wrong)?;
        if let Some(name) = self.congestion {
            probe::tcp::set_congestion_control(&socket, name)
                .map_err(|refused| Failure::Workload(refused.to_string()))?;
        }
        let sent = Instant::now();
        let first = self.exchange(&socket, message, room)?;
        let first_byte = first.duration_since(begun);
        Ok(Call { socket, first_byte, first_message: sent.elapsed() })
    }

    /// Sends `message` and waits for an answer of the same size. Returns the time of the first
    /// byte.
    pub(crate) fn exchange(
        &self,
        mut socket: &TcpStream,
        message: &[u8],
        room: &mut [u8],
    ) -> Result<Instant, Failure> {
        if self.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        socket.write_all(message).map_err(|error| Failure::io("sending a message", &error))?;
        let (mut missing, mut first) = (message.len(), None);
        while missing > 0 {
            let most = missing.min(room.len());
            match socket.read(&mut room[..most]) {
                Ok(0) => {
                    let text = "a connection was closed before its message was answered";
                    return Err(Failure::Workload(text.to_owned()));
                }
                Ok(count) => {
                    first.get_or_insert_with(Instant::now);
                    missing -= count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    let text =
                        format!("a message was not answered within {} s", self.patience.as_secs());
                    return Err(Failure::Workload(text));
                }
                Err(error) => return Err(Failure::io("waiting for an answer", &error)),
            }
        }
        Ok(first.unwrap_or_else(Instant::now))
    }

    /// Repeats the call until a first message passes the programs between client and server, which
    /// may have to connect first.
    pub(crate) fn warm_up(&self, message: &[u8], room: &mut [u8]) -> Result<Call, Failure> {
        let begun = Instant::now();
        loop {
            match self.call(message, room) {
                Ok(call) => return Ok(call),
                Err(Failure::Interrupted) => return Err(Failure::Interrupted),
                Err(failure) if begun.elapsed() > self.patience => return Err(failure),
                Err(_) => std::thread::sleep(AGAIN),
            }
        }
    }
}

/// The usual timeout of a call. Several losses in a row are no failure, although each loss doubles
/// TCP's timeout.
const PATIENCE: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(20);
