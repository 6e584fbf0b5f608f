use rand::RngExt;
use std::fmt;

/// Identifies the connections of one test: 36 letters and digits and a zero byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie([u8; Self::LENGTH]);

impl Cookie {
    pub const LENGTH: usize = 37;

    pub fn random() -> Self {
        let mut random = rand::rng();
        let mut bytes = [0; Self::LENGTH];
        for byte in &mut bytes[..Self::LENGTH - 1] {
            *byte = ALPHABET[random.random_range(0..ALPHABET.len())];
        }
        Self(bytes)
    }

    /// True if a cookie may contain the byte. The cookie of iperf3 before 3.2 begins with the
    /// client's host name, which on Windows may have letters beyond ASCII.
    pub(crate) fn may_contain(byte: u8) -> bool {
        byte > b' ' && byte != DELETE
    }

    /// Returns `None` if these bytes cannot be a cookie: a client of another protocol may connect.
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        let (end, text) = bytes.split_last()?;
        (*end == 0 && text.iter().all(|byte| Self::may_contain(*byte))).then_some(Self(bytes))
    }

    pub fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    /// Returns the cookie as text, up to the first byte that is not ASCII.
    pub fn as_str(&self) -> &str {
        let text = &self.0[..Self::LENGTH - 1];
        let end = text.iter().position(|byte| !byte.is_ascii_graphic()).unwrap_or(text.len());
        std::str::from_utf8(&text[..end]).unwrap_or_default()
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({})", self.as_str())
    }
}

const DELETE: u8 = 0x7f;
/// iperf3's alphabet of base 32.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_cookie_is_valid() {
        let cookie = Cookie::random();
        assert_eq!(Cookie::from_bytes(*cookie.as_bytes()), Some(cookie));
        assert_ne!(cookie, Cookie::random());
    }

    #[test]
    fn a_cookie_may_begin_with_any_host_name() {
        let mut bytes = [b'1'; 37];
        bytes[..5].copy_from_slice(b"pc\xcf\xca.");
        bytes[36] = 0;
        assert_eq!(Cookie::from_bytes(bytes).unwrap().as_str(), "pc");
    }

    #[test]
    fn bytes_with_another_ending_or_unprintable_bytes_are_no_cookie() {
        assert_eq!(Cookie::from_bytes([b'a'; 37]), None);
        let mut http = [0; 37];
        http[..16].copy_from_slice(b"GET / HTTP/1.1\r\n");
        assert_eq!(Cookie::from_bytes(http), None);
    }
}
