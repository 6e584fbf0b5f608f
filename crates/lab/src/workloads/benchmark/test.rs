use perf::local::Over;
use units::Bytes;

/// A benchmark that a lab file can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    Stream { is_udp: bool, size: Bytes },
    Rr,
    Crr,
    UdpRr,
    Latency { over: Over, size: Bytes },
    Bandwidth { over: Over, size: Bytes },
    Web { is_tls: bool, keep_alive: bool },
}

impl Test {
    /// Returns the names that a lab file uses, in the order of the CAQM report.
    pub(super) fn names() -> Vec<&'static str> {
        NAMES.iter().map(|(name, _)| *name).collect()
    }

    /// Parses a test's name. `size`: bytes of a message, or of a read and a write.
    pub(super) fn read(name: &str, size: Option<Bytes>) -> Result<Self, String> {
        let known = NAMES.iter().find(|(known, _)| *known == name);
        let Some((_, test)) = known else {
            let hint = units::did_you_mean(name, Self::names());
            return Err(format!("no test `{name}`{hint}; there are {}", Self::names().join(", ")));
        };
        match (*test, size) {
            (Self::Stream { is_udp, size: usual }, size) => {
                let size = size.unwrap_or(usual);
                match is_udp && size > LARGEST_DATAGRAM {
                    true => Err(format!("a datagram has at most {LARGEST_DATAGRAM}")),
                    false => Ok(Self::Stream { is_udp, size }),
                }
            }
            (Self::Latency { over, .. }, Some(size)) => Ok(Self::Latency { over, size }),
            (Self::Bandwidth { over, .. }, Some(size)) => Ok(Self::Bandwidth { over, size }),
            (_, Some(_)) => Err(format!("`{name}` has no `size`: write `-`")),
            (test, None) => Ok(test),
        }
    }
}

const fn latency(over: Over) -> Test {
    Test::Latency { over, size: Over::MESSAGE }
}

const fn bandwidth(over: Over) -> Test {
    Test::Bandwidth { over, size: Over::BLOCK }
}

const NAMES: [(&str, Test); 15] = [
    ("TCP_STREAM", Test::Stream { is_udp: false, size: Bytes::new(65_536) }),
    ("UDP_STREAM", Test::Stream { is_udp: true, size: Bytes::new(32_768) }),
    ("TCP_RR", Test::Rr),
    ("TCP_CRR", Test::Crr),
    ("UDP_RR", Test::UdpRr),
    ("lat_unix", latency(Over::Unix)),
    ("lat_pipe", latency(Over::Pipe)),
    ("lat_tcp", latency(Over::Tcp)),
    ("bw_pipe", bandwidth(Over::Pipe)),
    ("bw_unix", bandwidth(Over::Unix)),
    ("bw_tcp", bandwidth(Over::Tcp)),
    ("http_short", Test::Web { is_tls: false, keep_alive: false }),
    ("http_long", Test::Web { is_tls: false, keep_alive: true }),
    ("https_short", Test::Web { is_tls: true, keep_alive: false }),
    ("https_long", Test::Web { is_tls: true, keep_alive: true }),
];
/// The largest payload of a UDP datagram over IPv4.
const LARGEST_DATAGRAM: Bytes = Bytes::new(65_507);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_benchmark_is_parsed_by_its_name_and_the_size_it_needs() {
        let size = |count| Some(Bytes::new(count));
        let stream = Test::Stream { is_udp: true, size: Bytes::new(64) };
        assert_eq!(Test::read("UDP_STREAM", size(64)), Ok(stream));
        assert_eq!(Test::read("TCP_RR", None), Ok(Test::Rr));
        for (name, of, says) in [
            ("TCP_RR", size(1), "has no `size`"),
            ("TCP_STREM", None, "did you mean `TCP_STREAM`?"),
            ("UDP_STREAM", size(65_536), "at most"),
            ("http_short", size(10), "has no `size`"),
        ] {
            let error = Test::read(name, of).unwrap_err();
            assert!(error.contains(says), "{name}: {error}");
        }
    }
}
