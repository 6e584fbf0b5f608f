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

    /// Returns `None` if these bytes cannot be a cookie: a client of another protocol may connect.
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        let (end, text) = bytes.split_last()?;
        (*end == 0 && text.iter().all(u8::is_ascii_graphic)).then_some(Self(bytes))
    }

    pub fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0[..Self::LENGTH - 1]).unwrap_or_default()
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({})", self.as_str())
    }
}

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
    fn bytes_with_another_ending_or_unprintable_bytes_are_no_cookie() {
        assert_eq!(Cookie::from_bytes([b'a'; 37]), None);
        let mut http = [0; 37];
        http[..16].copy_from_slice(b"GET / HTTP/1.1\r\n");
        assert_eq!(Cookie::from_bytes(http), None);
    }
}
