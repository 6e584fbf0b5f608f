//! Parses the responses of a connection (RFC 9112) as their bytes arrive. Bodies are counted and
//! dropped, so the memory for a response is bounded.

use super::Fault;

#[derive(Debug, Clone, Default)]
pub struct Response {
    state: State,
    /// The bytes so far of the head, or of a line of a chunked body.
    line: Vec<u8>,
    status: u16,
    body: u64,
    closes: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// A body with a known length; the number of its bytes that are still missing.
    Body(u64),
    UntilClosed,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    Complete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The response is incomplete.
    Open,
    /// The response is complete. `used`: the number of bytes that belong to the response.
    Complete { used: usize },
}

impl Response {
    /// Parses the next bytes of the connection, at least one.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Progress, Fault> {
        let mut rest = bytes;
        while self.state != State::Complete {
            if rest.is_empty() {
                return Ok(Progress::Open);
            }
            let used = self.step(rest)?;
            rest = &rest[used..];
        }
        Ok(Progress::Complete { used: bytes.len() - rest.len() })
    }

    /// Handles the close of the connection. `Ok` if the response is complete.
    pub fn end(&mut self) -> Result<(), Fault> {
        match self.state {
            State::UntilClosed | State::Complete => {
                self.state = State::Complete;
                Ok(())
            }
            _ => Err(Fault::Cut),
        }
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the number of bytes of the body, without the framing of chunks.
    pub fn body(&self) -> u64 {
        self.body
    }

    pub fn closes(&self) -> bool {
        self.closes
    }

    /// Prepares for the next response; reuses the memory of this response.
    pub fn reset(&mut self) {
        self.line.clear();
        let line = std::mem::take(&mut self.line);
        *self = Self { line, ..Self::default() };
    }

    /// Parses at least one of the bytes; returns the number of parsed bytes.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let most = |left: u64| usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        match self.state {
            State::Head => self.head(bytes),
            State::Body(left) => {
                let used = most(left);
                self.body += used as u64;
                self.state = match left - used as u64 {
                    0 => State::Complete,
                    left => State::Body(left),
                };
                Ok(used)
            }
            State::UntilClosed => {
                self.body += bytes.len() as u64;
                Ok(bytes.len())
            }
            State::Chunk(left) => {
                let used = most(left);
                self.body += used as u64;
                self.state = match left - used as u64 {
                    0 => State::ChunkEnd,
                    left => State::Chunk(left),
                };
                Ok(used)
            }
            State::ChunkSize => self.line(bytes, |own, line| {
                own.state = match chunk_size(line)? {
                    0 => State::Trailer,
                    size => State::Chunk(size),
                };
                Ok(())
            }),
            State::ChunkEnd => self.line(bytes, |own, line| {
                own.state = State::ChunkSize;
                if line.is_empty() { Ok(()) } else { Err(Fault::Length) }
            }),
            State::Trailer => self.line(bytes, |own, line| {
                if line.is_empty() {
                    own.state = State::Complete;
                }
                Ok(())
            }),
            State::Complete => Ok(0),
        }
    }

    /// Parses bytes up to the end of a line. Passes a complete line, without its line end, to
    /// `then`.
    fn line(
        &mut self,
        bytes: &[u8],
        then: impl FnOnce(&mut Self, &[u8]) -> Result<(), Fault>,
    ) -> Result<usize, Fault> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(bytes.len(), |end| end + 1);
        if self.line.len() + used > LONGEST_LINE {
            return Err(Fault::Malformed);
        }
        self.line.extend_from_slice(&bytes[..used]);
        if end.is_some() {
            let mut line = std::mem::take(&mut self.line);
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            then(self, text)?;
            line.clear();
            self.line = line;
        }
        Ok(used)
    }

    /// Parses bytes of the head. Most heads arrive whole and need no copy.
    fn head(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let begun = self.line.len();
        if begun == 0
            && let Some(end) = end_of_head(bytes, 0)
        {
            return self.read_head(&bytes[..end]).map(|()| end);
        }
        if begun + bytes.len() > LONGEST_HEAD {
            // The head may still end within the limit.
            let room = LONGEST_HEAD - begun;
            self.line.extend_from_slice(&bytes[..room]);
        } else {
            self.line.extend_from_slice(bytes);
        }
        // Check the start at once: a server of another protocol may never send an empty line.
        let known = self.line.len().min(VERSION.len());
        if self.line[..known] != VERSION[..known] {
            return Err(Fault::Malformed);
        }
        match end_of_head(&self.line, begun.saturating_sub(3)) {
            Some(end) => {
                let mut line = std::mem::take(&mut self.line);
                let read = self.read_head(&line[..end]);
                line.clear();
                self.line = line;
                read.map(|()| end - begun)
            }
            None if self.line.len() >= LONGEST_HEAD => Err(Fault::Malformed),
            None => Ok(bytes.len()),
        }
    }

    fn read_head(&mut self, head: &[u8]) -> Result<(), Fault> {
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        let (status, minor) = status_line(lines.next().unwrap_or_default())?;
        let (mut length, mut chunked, mut coded) = (None, false, false);
        let mut keeps = minor >= 1;
        for line in lines.filter(|line| !line.is_empty()) {
            let colon = line.iter().position(|byte| *byte == b':').ok_or(Fault::Malformed)?;
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.is_empty() || name.iter().any(|byte| byte.is_ascii_whitespace()) {
                return Err(Fault::Malformed);
            }
            if name.eq_ignore_ascii_case(b"content-length") {
                // A list of equal lengths counts as a single length (RFC 9112 section 6.3).
                for one in value.split(|byte| *byte == b',') {
                    let one = number(one.trim_ascii(), 10).ok_or(Fault::Length)?;
                    if length.replace(one).is_some_and(|before| before != one) {
                        return Err(Fault::Length);
                    }
                }
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                coded = true;
                chunked = value
                    .split(|byte| *byte == b',')
                    .next_back()
                    .is_some_and(|last| last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
            } else if name.eq_ignore_ascii_case(b"connection") {
                let has = |word: &[u8]| {
                    let mut words = value.split(|byte| *byte == b',');
                    words.any(|one| one.trim_ascii().eq_ignore_ascii_case(word))
                };
                keeps = (keeps || has(b"keep-alive")) && !has(b"close");
            }
        }
        // An interim response has no body, and the final response follows (RFC 9110 section
        // 15.2).
        if (100..200).contains(&status) {
            return if status == SWITCHING { Err(Fault::Malformed) } else { Ok(()) };
        }
        self.status = status;
        self.closes = !keeps;
        let bodiless = status == NO_CONTENT || status == NOT_MODIFIED;
        self.state = match (coded, length) {
            (true, Some(_)) => return Err(Fault::Length),
            _ if bodiless => State::Complete,
            (true, None) if chunked => State::ChunkSize,
            (false, Some(0)) => State::Complete,
            (false, Some(length)) => State::Body(length),
            (_, None) => {
                self.closes = true;
                State::UntilClosed
            }
        };
        Ok(())
    }
}

/// Parses a status line, such as `HTTP/1.1 200 OK`; returns the status and the minor version.
fn status_line(line: &[u8]) -> Result<(u16, u8), Fault> {
    let rest = line.strip_prefix(VERSION).ok_or(Fault::Malformed)?;
    let [minor @ b'0'..=b'9', b' ', status @ ..] = rest else { return Err(Fault::Malformed) };
    let digits = status.get(..3).ok_or(Fault::Malformed)?;
    if status.get(3).is_some_and(|byte| *byte != b' ') {
        return Err(Fault::Malformed);
    }
    let status = number(digits, 10).filter(|status| *status >= 100).ok_or(Fault::Malformed)?;
    Ok((status as u16, minor - b'0'))
}

/// Parses the line with the size of a chunk, which extensions may follow.
fn chunk_size(line: &[u8]) -> Result<u64, Fault> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    number(digits.trim_ascii(), 16).ok_or(Fault::Length)
}

/// Parses a number of digits only: the standard library would also accept a sign.
fn number(text: &[u8], radix: u64) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| {
        let digit = char::from(*byte).to_digit(radix as u32)?;
        sum.checked_mul(radix)?.checked_add(digit.into())
    })
}

/// Returns the offset behind the empty line that ends a response head. `from`: the offset at which
/// the search begins.
fn end_of_head(head: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(found) = head.get(at..)?.iter().position(|byte| *byte == b'\n') {
        at += found + 1;
        match head.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

const VERSION: &[u8] = b"HTTP/1.";
const SWITCHING: u16 = 101;
const NO_CONTENT: u16 = 204;
const NOT_MODIFIED: u16 = 304;
const LONGEST_HEAD: usize = 64 << 10;
const LONGEST_LINE: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses `bytes` in segments of `size`, then a close of the connection. Returns status and
    /// body, or the fault, and the number of bytes that belong to the response.
    fn of(bytes: &[u8], size: usize) -> (Result<(u16, u64), Fault>, usize) {
        let mut response = Response::default();
        let mut used = 0;
        for piece in bytes.chunks(size) {
            match response.take(piece) {
                Ok(Progress::Open) => used += piece.len(),
                Ok(Progress::Complete { used: last }) => {
                    return (Ok((response.status(), response.body())), used + last);
                }
                Err(fault) => return (Err(fault), used),
            }
        }
        let end = response.end();
        (end.map(|()| (response.status(), response.body())), used)
    }

    const GOOD: [(&str, u16, u64); 9] = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, 5),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\nA: b\r\n\r\nhello", 200, 5),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, 0),
        ("HTTP/1.1 404\r\ncontent-length:3\r\n\r\nnot", 404, 3),
        ("HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, 13),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, 1),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\nT: t\r\n\r\n",
            200,
            15,
        ),
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", 200, 2),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 700\r\n\r\n", 304, 0),
    ];

    #[test]
    fn an_http_response_parses_the_same_in_segments_of_any_size() {
        for (text, status, body) in GOOD {
            for size in 1..=text.len() {
                let (found, used) = of(text.as_bytes(), size);
                assert_eq!(found, Ok((status, body)), "{text:?} in pieces of {size}");
                assert_eq!(used, text.len(), "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn every_truncated_http_response_is_a_fault() {
        for (text, ..) in GOOD.iter().filter(|(text, ..)| !text.starts_with("HTTP/1.0")) {
            for end in 0..text.len() {
                let (found, _) = of(&text.as_bytes()[..end], 7);
                assert_eq!(found, Err(Fault::Cut), "{:?}", &text[..end]);
            }
        }
    }

    #[test]
    fn wrong_lengths_and_other_protocols_are_different_faults() {
        let length = |head: &str| format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\nhello");
        for (text, fault) in [
            (length("Content-Length: 5\r\nContent-Length: 6"), Fault::Length),
            (length("Content-Length: -1"), Fault::Length),
            (length("Content-Length: +5"), Fault::Length),
            (length("Content-Length:"), Fault::Length),
            (length("Content-Length: 99999999999999999999"), Fault::Length),
            (length("Content-Length: 5\r\nTransfer-Encoding: chunked"), Fault::Length),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(),
                Fault::Length,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n".to_owned(),
                Fault::Length,
            ),
            (length("no colon"), Fault::Malformed),
            (length("Content-Length : 5"), Fault::Malformed),
            ("SSH-2.0-OpenSSH_9.2\r\n".to_owned(), Fault::Malformed),
            ("HTTP/2 200\r\n\r\n".to_owned(), Fault::Malformed),
            ("HTTP/1.1 99 Low\r\n\r\n".to_owned(), Fault::Malformed),
            ("HTTP/1.1 2000 OK\r\n\r\n".to_owned(), Fault::Malformed),
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned(), Fault::Malformed),
            (format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(LONGEST_HEAD)), Fault::Malformed),
        ] {
            for size in [1, 3, 1000, usize::MAX] {
                let (found, _) = of(text.as_bytes(), size.min(text.len()));
                assert_eq!(found, Err(fault), "{:.80}", text);
            }
        }
    }

    #[test]
    fn bytes_behind_an_http_response_do_not_belong_to_it() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi!";
        let mut response = Response::default();
        let progress = response.take(text).unwrap();
        assert_eq!(progress, Progress::Complete { used: text.len() - 1 });
    }

    #[test]
    fn the_response_decides_whether_an_http_connection_stays_open() {
        let closes = |head: &str| {
            let mut response = Response::default();
            response.take(format!("{head}Content-Length: 0\r\n\r\n").as_bytes()).unwrap();
            response.closes()
        };
        assert!(!closes("HTTP/1.1 200 OK\r\n"));
        assert!(closes("HTTP/1.1 200 OK\r\nConnection: close\r\n"));
        assert!(closes("HTTP/1.1 200 OK\r\nConnection: Upgrade, Close\r\n"));
        assert!(closes("HTTP/1.0 200 OK\r\n"));
        assert!(!closes("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n"));
    }

    proptest! {
        #[test]
        fn parsing_any_bytes_as_an_http_response_causes_no_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            begins in any::<bool>(),
            size in 1_usize..50,
        ) {
            let head: &[u8] = if begins { b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" } else { b"" };
            let text = [head, &bytes].concat();
            let (whole, _) = of(&text, text.len().max(1));
            let (pieces, _) = of(&text, size);
            prop_assert_eq!(whole, pieces);
        }
    }
}
