/// State of a test; one signed byte on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum State {
    TestStart = 1,
    TestRunning = 2,
    TestEnd = 4,
    ExchangeParameters = 9,
    CreateStreams = 10,
    ServerTerminate = 11,
    ClientTerminate = 12,
    ExchangeResults = 13,
    DisplayResults = 14,
    Start = 15,
    Done = 16,
    /// A state that iperf3 lacks. Sent between parameters and streams, only to a client that
    /// identified itself as weir. A message with the server's features beyond iperf3 follows.
    WeirOffer = 64,
    AccessDenied = -1,
    /// Two 32-bit numbers follow: iperf3's own code and errno.
    ServerError = -2,
}

impl State {
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.byte() == byte)
    }

    pub fn byte(self) -> u8 {
        (self as i8).cast_unsigned()
    }

    const ALL: [Self; 14] = [
        Self::TestStart,
        Self::TestRunning,
        Self::TestEnd,
        Self::ExchangeParameters,
        Self::CreateStreams,
        Self::ServerTerminate,
        Self::ClientTerminate,
        Self::ExchangeResults,
        Self::DisplayResults,
        Self::Start,
        Self::Done,
        Self::WeirOffer,
        Self::AccessDenied,
        Self::ServerError,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_decodes_to_a_state_or_is_rejected() {
        let known = (0..=255_u8).filter_map(|byte| State::from_byte(byte).map(|s| (byte, s)));
        let known: Vec<_> = known.collect();
        assert_eq!(known.len(), State::ALL.len());
        assert!(known.iter().all(|(byte, state)| state.byte() == *byte));
        assert_eq!(State::from_byte(255), Some(State::AccessDenied));
        assert_eq!(State::from_byte(254), Some(State::ServerError));
    }
}
