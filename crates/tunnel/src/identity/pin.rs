use super::IdentityError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// The SHA-256 of a certificate's public key (SubjectPublicKeyInfo), as in RFC 7469 section 2.4.
/// The pin stays the same when the certificate is renewed with the same key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pin([u8; 32]);

impl Pin {
    pub fn of_public_key(subject_public_key_info: &[u8]) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, subject_public_key_info);
        let mut hash = [0; 32];
        hash.copy_from_slice(digest.as_ref());
        Self(hash)
    }

    pub const fn from_bytes(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Display for Pin {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "sha256/{}", STANDARD_NO_PAD.encode(self.0))
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        Display::fmt(self, f)
    }
}

/// Accepts base64 with or without padding, and hex with or without colons, behind `sha256/`,
/// `sha256:` (as in hysteria and openssl) or no prefix.
impl FromStr for Pin {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let wrong = || IdentityError::Pin(text.to_owned());
        let prefix = text.get(..7).filter(|start| {
            start.eq_ignore_ascii_case("sha256/") || start.eq_ignore_ascii_case("sha256:")
        });
        let rest = &text[prefix.map_or(0, str::len)..];
        let digits: String = rest.chars().filter(|letter| *letter != ':').collect();
        if digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            let mut hash = [0; 32];
            for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
                let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
                *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
            }
            return Ok(Self(hash));
        }
        let bytes = STANDARD_NO_PAD.decode(rest.trim_end_matches('=')).map_err(|_| wrong())?;
        bytes.try_into().map(Self).map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_printed_pin_parses_to_itself(hash: [u8; 32]) {
            let pin = Pin(hash);
            prop_assert_eq!(pin.to_string().parse::<Pin>().unwrap(), pin);
            prop_assert_eq!(format!("{pin}=").parse::<Pin>().unwrap(), pin);
            prop_assert_eq!(pin.hex().parse::<Pin>().unwrap(), pin);
            let colons: Vec<String> = hash.iter().map(|byte| format!("{byte:02X}")).collect();
            prop_assert_eq!(format!("SHA256:{}", colons.join(":")).parse::<Pin>().unwrap(), pin);
        }

        #[test]
        fn parsing_any_text_as_a_pin_causes_no_panic(text: String) {
            let _ = text.parse::<Pin>();
        }
    }

    #[test]
    fn a_malformed_pin_is_refused() {
        for text in ["", "sha256/", "sha256/AAAA", "sha1/AAAA", &"é".repeat(9), &"f".repeat(63)] {
            assert!(text.parse::<Pin>().is_err(), "{text}");
        }
    }
}
