use std::time::Duration;

/// The header of each datagram: its send time and its sequence number in big-endian order. iperf3
/// numbers datagrams from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub seconds: u32,
    pub micros: u32,
    /// The sequence number on the wire; a narrow number wraps to zero after 2^32 − 1.
    pub number: u64,
}

/// Width of the sequence number: 32 or 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    Narrow,
    /// 64 bits, with `--udp-counters-64bit`.
    Wide,
}

impl Counter {
    pub fn of(wide: bool) -> Self {
        if wide { Self::Wide } else { Self::Narrow }
    }

    pub fn header_bytes(self) -> usize {
        match self {
            Self::Narrow => 12,
            Self::Wide => 16,
        }
    }
}

impl Header {
    pub fn new(sent: Duration, number: u64) -> Self {
        Self { seconds: sent.as_secs() as u32, micros: sent.subsec_micros(), number }
    }

    /// Reads the header; `None` if the datagram is too short for a header.
    pub fn read(datagram: &[u8], counter: Counter) -> Option<Self> {
        let (seconds, rest) = datagram.split_first_chunk()?;
        let (micros, rest) = rest.split_first_chunk()?;
        let number = match counter {
            Counter::Narrow => u32::from_be_bytes(*rest.first_chunk()?).into(),
            Counter::Wide => u64::from_be_bytes(*rest.first_chunk()?),
        };
        Some(Self {
            seconds: u32::from_be_bytes(*seconds),
            micros: u32::from_be_bytes(*micros),
            number,
        })
    }

    /// Writes the header to the start of `datagram`, as far as it fits.
    pub fn write(self, datagram: &mut [u8], counter: Counter) {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.seconds.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.micros.to_be_bytes());
        match counter {
            Counter::Narrow => {
                bytes[8..12].copy_from_slice(&(self.number as u32).to_be_bytes());
            }
            Counter::Wide => bytes[8..].copy_from_slice(&self.number.to_be_bytes()),
        }
        let count = counter.header_bytes().min(datagram.len());
        datagram[..count].copy_from_slice(&bytes[..count]);
    }

    /// Returns the send time in nanoseconds on the sender's clock. Any value from the peer is
    /// valid.
    pub fn sent_nanos(self) -> i64 {
        i64::from(self.seconds) * 1_000_000_000 + i64::from(self.micros) * 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_udp_header_is_encoded_as_in_iperf3() {
        let header = Header::new(Duration::new(0x0102_0304, 5_000), 0x0a0b_0c0d);
        let mut bytes = [0xff; 16];
        header.write(&mut bytes, Counter::Narrow);
        assert_eq!(bytes, [1, 2, 3, 4, 0, 0, 0, 5, 10, 11, 12, 13, 255, 255, 255, 255]);
        header.write(&mut bytes, Counter::Wide);
        assert_eq!(bytes, [1, 2, 3, 4, 0, 0, 0, 5, 0, 0, 0, 0, 10, 11, 12, 13]);
    }

    proptest! {
        #[test]
        fn an_encoded_udp_header_decodes_to_the_same_header(seconds: u32, micros in 0u32..1_000_000, number: u64) {
            let header = Header { seconds, micros, number };
            let mut bytes = [0; 16];
            header.write(&mut bytes, Counter::Wide);
            prop_assert_eq!(Header::read(&bytes, Counter::Wide), Some(header));
        }

        #[test]
        fn any_bytes_decode_to_a_udp_header_or_are_refused(bytes: Vec<u8>, wide: bool) {
            let counter = Counter::of(wide);
            let read = Header::read(&bytes, counter);
            prop_assert_eq!(read.is_some(), bytes.len() >= counter.header_bytes());
            if let Some(header) = read {
                header.sent_nanos();
            }
        }
    }
}
