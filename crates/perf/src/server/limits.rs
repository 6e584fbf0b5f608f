use std::net::{IpAddr, Ipv6Addr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TestLimits {
    pub(super) sessions: usize,
    pub(super) per_address: usize,
}

/// Numbers of tests that run now: `tests` in total.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) tests: usize,
    /// Number of tests that run now for clients at the same address.
    pub(super) of_address: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitReached {
    Sessions,
    /// The remaining sessions are reserved for addresses without a test.
    Reserved,
    PerAddress,
}

impl TestLimits {
    pub(super) fn room(self, share: Share) -> Result<(), LimitReached> {
        let shared = self.sessions - self.reserved();
        match share {
            Share { tests, .. } if tests >= self.sessions => Err(LimitReached::Sessions),
            Share { of_address, .. } if of_address >= self.per_address => {
                Err(LimitReached::PerAddress)
            }
            Share { tests, of_address: 1.. } if tests >= shared => Err(LimitReached::Reserved),
            _ => Ok(()),
        }
    }

    /// Returns the number of sessions that are reserved for addresses without a test: a quarter, or
    /// less if a single address could then not reach its own limit.
    fn reserved(self) -> usize {
        (self.sessions / 4).min(self.sessions.saturating_sub(self.per_address))
    }
}

impl LimitReached {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Sessions => "the maximum number of tests is running (--max-sessions)",
            Self::Reserved => {
                "the remaining tests are reserved for addresses that have none (--max-sessions)"
            }
            Self::PerAddress => {
                "the maximum number of tests from its address is already running (--sessions-per-address)"
            }
        }
    }
}

/// Maps the addresses of an IPv6 /64 to the same group, since a host can use all of them.
pub(super) fn address_group(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & NETWORK).into(),
    }
}

/// Mask of the first 64 bits.
const NETWORK: u128 = !0 << 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_sessions_is_reserved_for_new_addresses() {
        let most = TestLimits { sessions: 20, per_address: 4 };
        let room = |tests, of_address| most.room(Share { tests, of_address });
        assert_eq!(room(14, 3), Ok(()));
        assert_eq!(room(14, 4), Err(LimitReached::PerAddress));
        assert_eq!(room(15, 1), Err(LimitReached::Reserved));
        assert_eq!(room(19, 0), Ok(()));
        assert_eq!(room(20, 0), Err(LimitReached::Sessions));
    }

    #[test]
    fn a_single_address_can_use_its_whole_limit() {
        for (sessions, per_address) in [(1, 4), (5, 5), (8, 7), (32, 30), (32, 4)] {
            let most = TestLimits { sessions, per_address };
            for tests in 0..sessions.min(per_address) {
                assert_eq!(most.room(Share { tests, of_address: tests }), Ok(()), "{most:?}");
            }
        }
    }
}
