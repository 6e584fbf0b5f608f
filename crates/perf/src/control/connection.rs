use super::{Cookie, Message, MessageError, State};
use crate::PerfError;
use crate::event::Stop;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// One side of a control connection. Every wait has a timeout and obeys a call to stop.
#[derive(Debug)]
pub struct Control {
    socket: TcpStream,
    peer: String,
    patience: Duration,
    stop: Stop,
}

impl Control {
    /// `peer`: the peer's name in messages. `patience`: the timeout of each step.
    pub fn new(
        socket: TcpStream,
        peer: String,
        patience: Duration,
        stop: Stop,
    ) -> Result<Self, PerfError> {
        let wrong = |e| PerfError::system("preparing the control connection", e);
        socket.set_nonblocking(true).map_err(wrong)?;
        socket.set_nodelay(true).map_err(wrong)?;
        Ok(Self { socket, peer, patience, stop })
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub fn peer(&self) -> &str {
        &self.peer
    }

    pub fn send_cookie(&mut self, cookie: &Cookie) -> Result<(), PerfError> {
        self.send(cookie.as_bytes(), "the test was opened")
    }

    pub fn send_state(&mut self, state: State) -> Result<(), PerfError> {
        self.send(&[state.byte()], "a state was sent")
    }

    /// Sends `State::ServerError` and the two numbers that iperf3 sends behind it.
    pub fn send_server_error(&mut self, code: i32, errno: i32) -> Result<(), PerfError> {
        let mut bytes = vec![State::ServerError.byte()];
        bytes.extend_from_slice(&code.to_be_bytes());
        bytes.extend_from_slice(&errno.to_be_bytes());
        self.send(&bytes, "an error was sent")
    }

    pub fn send_json<T: Serialize>(&mut self, value: &T) -> Result<(), PerfError> {
        let bytes = Message::encode(value).map_err(|e| self.foreign(&e))?;
        self.send(&bytes, "a message was sent")
    }

    /// Waits for the next state; `doing` completes "… while …" in an error.
    pub fn receive_state(&mut self, doing: &'static str) -> Result<State, PerfError> {
        let deadline = Instant::now() + self.patience;
        let mut byte = [0];
        self.receive(&mut byte, deadline, doing)?;
        self.state(byte[0])
    }

    /// Returns the next state if the state has arrived. The loop of a running test calls this
    /// method.
    pub fn try_state(&mut self, doing: &'static str) -> Result<Option<State>, PerfError> {
        let mut byte = [0];
        match self.socket.read(&mut byte) {
            Ok(0) => Err(PerfError::Gone { peer: self.peer.clone(), doing }),
            Ok(_) => self.state(byte[0]).map(Some),
            Err(error) if is_transient(&error) => Ok(None),
            Err(error) => Err(self.lost(error, doing)),
        }
    }

    /// Receives the two numbers behind `State::ServerError`: iperf3's own and errno.
    pub fn receive_server_error(&mut self) -> Result<(i32, i32), PerfError> {
        let deadline = Instant::now() + self.patience;
        let (mut code, mut errno) = ([0; 4], [0; 4]);
        self.receive(&mut code, deadline, SAYING)?;
        match self.receive(&mut errno, deadline, SAYING) {
            // iperf3 before 3.19 sends no errno with a refused account.
            Ok(()) | Err(PerfError::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok((i32::from_be_bytes(code), i32::from_be_bytes(errno)))
    }

    pub fn receive_json<T: DeserializeOwned>(
        &mut self,
        longest: usize,
        doing: &'static str,
    ) -> Result<T, PerfError> {
        let deadline = Instant::now() + self.patience;
        let mut message = Message::new(longest);
        let mut piece = vec![0; 4096];
        loop {
            let wants = message.wants().map_err(|e| self.foreign(&e))?;
            if wants == 0 {
                return message.parse().map_err(|e| self.foreign(&e));
            }
            let room = wants.min(piece.len());
            let came = self.receive_some(&mut piece[..room], deadline, doing)?;
            message.take(&piece[..came]);
        }
    }

    fn receive(
        &mut self,
        bytes: &mut [u8],
        deadline: Instant,
        doing: &'static str,
    ) -> Result<(), PerfError> {
        let mut have = 0;
        while have < bytes.len() {
            have += self.receive_some(&mut bytes[have..], deadline, doing)?;
        }
        Ok(())
    }

    fn receive_some(
        &mut self,
        bytes: &mut [u8],
        deadline: Instant,
        doing: &'static str,
    ) -> Result<usize, PerfError> {
        loop {
            match self.socket.read(bytes) {
                Ok(0) => return Err(PerfError::Gone { peer: self.peer.clone(), doing }),
                Ok(count) => return Ok(count),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(self.lost(error, doing)),
            }
            self.wait(PollFlags::IN, deadline, doing)?;
        }
    }

    fn send(&mut self, mut bytes: &[u8], doing: &'static str) -> Result<(), PerfError> {
        let deadline = Instant::now() + self.patience;
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_transient(&error) => {
                    self.wait(PollFlags::OUT, deadline, doing)?;
                }
                Err(error) => return Err(self.lost(error, doing)),
            }
        }
        Ok(())
    }

    /// Polls in short turns, because a call to stop comes from another thread.
    fn wait(
        &self,
        flags: PollFlags,
        deadline: Instant,
        doing: &'static str,
    ) -> Result<(), PerfError> {
        loop {
            if self.stop.is_called() {
                return Err(PerfError::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let peer = self.peer.clone();
                return Err(PerfError::Silent { peer, within: self.patience, doing });
            }
            if ready(self.socket.as_fd(), flags, left.min(POLL_INTERVAL))? {
                return Ok(());
            }
        }
    }

    fn state(&self, byte: u8) -> Result<State, PerfError> {
        State::from_byte(byte).ok_or_else(|| PerfError::NotIperf {
            peer: self.peer.clone(),
            saw: format!("{byte} is not a state of a test"),
        })
    }

    fn foreign(&self, error: &MessageError) -> PerfError {
        PerfError::NotIperf { peer: self.peer.clone(), saw: error.to_string() }
    }

    fn lost(&self, error: io::Error, doing: &'static str) -> PerfError {
        let gone = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
        if gone.contains(&error.kind()) {
            return PerfError::Gone { peer: self.peer.clone(), doing };
        }
        PerfError::system(format!("the control connection to {}", self.peer), error)
    }
}

pub(crate) fn ready(
    fd: BorrowedFd<'_>,
    flags: PollFlags,
    within: Duration,
) -> Result<bool, PerfError> {
    let timeout = Timespec {
        tv_sec: i64::try_from(within.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: within.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(PerfError::system("waiting for a socket", error.into())),
    }
}

pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

const SAYING: &str = "reporting its error";
const POLL_INTERVAL: Duration = Duration::from_millis(100);
