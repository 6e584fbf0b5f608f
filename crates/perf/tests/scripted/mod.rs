//! A server that follows a script up to a point, and then dies or hangs.
#![allow(dead_code)]

use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Reads 37 bytes.
    Cookie,
    State(i8),
    Expect(i8),
    ReadJson,
    Results,
    /// Accepts a stream with its cookie, and reads all its data.
    Stream,
    Error(i32, i32),
    RawClient(Vec<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    Die,
    /// Keeps the sockets open until the test that uses them has ended.
    Hang,
}

#[derive(Debug)]
pub(crate) struct Server {
    port: u16,
    thread: Option<JoinHandle<io::Result<()>>>,
    release: Option<Sender<()>>,
}

impl Server {
    pub(crate) fn start(steps: Vec<Step>, after: After) -> Self {
        Self::start_at(0, steps, after)
    }

    pub(crate) fn start_at(port: u16, steps: Vec<Step>, after: After) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (release, released) = channel();
        let thread = thread::spawn(move || play(&listener, &steps, after, &released));
        Self { port, thread: Some(thread), release: Some(release) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Joins the server's thread, which must have reached the script's end.
    pub(crate) fn has_done_all(mut self) {
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.release.take();
        if let Some(thread) = self.thread.take() {
            // Ignores the thread's result: the client's error shows how far the script came.
            let _ = thread.join();
        }
    }
}

/// Returns the script of a whole TCP test.
pub(crate) fn whole() -> Vec<Step> {
    let mut steps = running();
    steps.extend([
        Step::Expect(4),
        Step::State(13),
        Step::ReadJson,
        Step::Results,
        Step::State(14),
    ]);
    steps
}

/// Returns the steps up to the transfer of data.
pub(crate) fn running() -> Vec<Step> {
    vec![
        Step::Cookie,
        Step::State(9),
        Step::ReadJson,
        Step::State(10),
        Step::Stream,
        Step::State(1),
        Step::State(2),
    ]
}

/// Returns every incomplete beginning of the whole script.
pub(crate) fn prefixes() -> Vec<Vec<Step>> {
    let whole = whole();
    (0..whole.len()).map(|length| whole[..length].to_vec()).collect()
}

fn play(
    listener: &TcpListener,
    steps: &[Step],
    after: After,
    released: &Receiver<()>,
) -> io::Result<()> {
    let mut control = listener.accept()?.0;
    let mut streams = Vec::new();
    for step in steps {
        match step {
            Step::Cookie => control.read_exact(&mut [0; 37])?,
            Step::State(state) => control.write_all(&state.to_ne_bytes())?,
            Step::Expect(state) => {
                let mut byte = [0];
                control.read_exact(&mut byte)?;
                assert_eq!(i8::from_ne_bytes(byte), *state);
            }
            Step::ReadJson => drop(read_json(&mut control)?),
            Step::Results => control.write_all(&encoded(&json!({
                "cpu_util_total": 1, "cpu_util_user": 1, "cpu_util_system": 0,
                "sender_has_retransmits": -1,
                "streams": [{"id": 1, "bytes": 1000, "retransmits": -1, "jitter": 0,
                    "errors": 0, "packets": 0, "start_time": 0, "end_time": 0.05}],
            })))?,
            Step::Stream => {
                let mut stream = listener.accept()?.0;
                stream.read_exact(&mut [0; 37])?;
                streams.push(stream.try_clone()?);
                thread::spawn(move || io::copy(&mut stream, &mut io::sink()));
            }
            Step::Error(code, errno) => {
                control.write_all(&(-2_i8).to_ne_bytes())?;
                control.write_all(&code.to_be_bytes())?;
                control.write_all(&errno.to_be_bytes())?;
            }
            Step::RawClient(bytes) => control.write_all(bytes)?,
        }
    }
    match after {
        After::Hang => drop(released.recv()),
        After::Die => {
            for stream in &streams {
                // `shutdown` ends the reading thread's copy of the socket too. The call fails if
                // the client has already closed the stream.
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        }
    }
    Ok(())
}

fn read_json(control: &mut TcpStream) -> io::Result<Value> {
    let mut length = [0; 4];
    control.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    control.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

pub(crate) fn encoded(value: &Value) -> Vec<u8> {
    let body = value.to_string();
    let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(body.as_bytes());
    bytes
}
