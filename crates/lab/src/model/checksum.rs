//! Computes SHA-256 checksums as text.

use aws_lc_rs::digest::{SHA256, digest};

pub(crate) fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(digest(&SHA256, bytes.as_ref()).as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum is that of FIPS 180-4's example.
    #[test]
    fn sha256_is_written_in_hexadecimal() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256("abc"), abc);
    }
}
