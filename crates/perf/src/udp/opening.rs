use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// The client's first datagram on a stream, from which the server learns the client's address. The
/// datagram has four bytes in the client's byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// True for the hello of iperf3 before 3.10.
    legacy: bool,
    /// True if the client's byte order differs from this host's.
    swapped: bool,
}

pub fn is_hello(datagram: &[u8]) -> Option<Hello> {
    let word = u32::from_ne_bytes(*datagram.first_chunk()?);
    [(HELLO, false), (LEGACY_HELLO, true)].into_iter().find_map(|(hello, legacy)| {
        let swapped = word == hello.swap_bytes();
        (word == hello || swapped).then_some(Hello { legacy, swapped })
    })
}

/// Returns the server's reply to a hello, in the client's byte order.
pub fn answer(hello: Hello) -> [u8; 4] {
    let answer = if hello.legacy { LEGACY_ANSWER } else { ANSWER };
    if hello.swapped { answer.swap_bytes().to_ne_bytes() } else { answer.to_ne_bytes() }
}

/// Recognises a server's reply, in either byte order.
pub fn is_answer(datagram: &[u8]) -> bool {
    datagram.first_chunk().is_some_and(|word| {
        let word = u32::from_ne_bytes(*word);
        [ANSWER, LEGACY_ANSWER].iter().any(|answer| word == *answer || word == answer.swap_bytes())
    })
}

#[derive(Debug)]
pub struct Opening<'a> {
    socket: &'a UdpSocket,
    until: Instant,
}

impl<'a> Opening<'a> {
    /// `socket` must be connected to the server; `within` is the timeout for the reply.
    pub fn new(socket: &'a UdpSocket, within: Duration) -> Self {
        Self { socket, until: Instant::now() + within }
    }

    /// Sends the hello and waits for the server's reply; fails with `WouldBlock` on a timeout.
    /// Drops data of a sending server that overtakes the reply.
    pub fn run(&self) -> io::Result<()> {
        let mut datagram = [0; 64];
        self.socket.send(&HELLO.to_ne_bytes())?;
        // Send a single hello, as iperf3 does: the listener of an iperf3 server takes each hello
        // for a new client, so a second hello would open a second stream.
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.recv(&mut datagram) {
                Ok(count) if is_answer(&datagram[..count]) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

const HELLO: u32 = 0x3637_3839;
const ANSWER: u32 = 0x3938_3736;
const LEGACY_HELLO: u32 = 123_456_789;
const LEGACY_ANSWER: u32 = 987_654_321;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_udp_hello_gets_the_reply_that_its_client_accepts() {
        for (hello, answered) in [(HELLO, ANSWER), (LEGACY_HELLO, LEGACY_ANSWER)] {
            let ours = is_hello(&hello.to_ne_bytes()).unwrap();
            assert_eq!(answer(ours), answered.to_ne_bytes());
            let theirs = is_hello(&hello.swap_bytes().to_ne_bytes()).unwrap();
            assert_eq!(answer(theirs), answered.swap_bytes().to_ne_bytes());
            assert!(is_answer(&answer(ours)) && is_answer(&answer(theirs)));
        }
        assert_eq!(is_hello(b"9876"), is_hello(&HELLO.to_le_bytes()));
    }

    #[test]
    fn other_bytes_are_neither_a_udp_hello_nor_a_reply() {
        for bytes in [&b""[..], b"678", b"GET / HTTP/1.1", &[0; 1500]] {
            assert_eq!(is_hello(bytes), None);
            assert!(!is_answer(bytes));
        }
    }

    #[test]
    fn a_client_sends_a_single_udp_hello_and_waits_for_the_reply() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        let serving = std::thread::spawn(move || {
            let mut bytes = [0; 64];
            let (count, from) = server.recv_from(&mut bytes).unwrap();
            server.send_to(&[0; 1400], from).unwrap();
            let hello = is_hello(&bytes[..count]).unwrap();
            server.send_to(&answer(hello), from).unwrap();
        });
        Opening::new(&client, Duration::from_secs(10)).run().unwrap();
        serving.join().unwrap();
    }

    #[test]
    fn the_wait_for_a_reply_to_a_udp_hello_ends_at_the_timeout() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        let error = Opening::new(&client, Duration::from_millis(1)).run().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
