use std::io;
use std::os::fd::AsFd;

use rustix::net::sockopt;
use units::{Rate, Share, Span};

use crate::ProbeError;

pub fn congestion_control_of(socket: impl AsFd) -> Result<String, ProbeError> {
    sockopt::tcp_congestion(socket).map_err(|errno| ProbeError::Kernel {
        what: "the congestion control of a socket",
        source: errno.into(),
    })
}

/// Sets the algorithm and checks it by reading it back.
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> Result<(), Refused> {
    let refused = |source: Option<io::Error>, has| Refused {
        wanted: name.to_owned(),
        has,
        available: available(),
        source,
    };
    if let Err(errno) = sockopt::set_tcp_congestion(&socket, name) {
        let has = sockopt::tcp_congestion(&socket).unwrap_or_default();
        return Err(refused(Some(errno.into()), has));
    }
    match sockopt::tcp_congestion(&socket) {
        Ok(has) if has == name => Ok(()),
        Ok(has) => Err(refused(None, has)),
        Err(errno) => Err(refused(Some(errno.into()), String::new())),
    }
}

/// The kernel did not accept the requested congestion control.
#[derive(Debug, thiserror::Error)]
#[error(
    "congestion control {wanted:?} was refused{}; the socket keeps {has:?}; this kernel has: {}",
    reason(.source.as_ref()),
    .available.join(", ")
)]
pub struct Refused {
    pub wanted: String,
    pub has: String,
    /// The algorithms that a socket in this namespace can use without loading a module.
    pub available: Vec<String>,
    #[source]
    pub source: Option<io::Error>,
}

/// The algorithm's own data about a connection (`INET_DIAG_VEGASINFO` and similar attributes).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum CongestionInfo {
    Vegas {
        enabled: bool,
        round_trips: u32,
        rtt: Span,
        /// `None` before the first sample.
        min_rtt: Option<Span>,
    },
    Dctcp {
        enabled: bool,
        marked: bool,
        /// The smoothed share of marked bytes.
        alpha: Share,
        bytes_marked: u32,
        bytes_acked: u32,
    },
    Bbr {
        bandwidth: Rate,
        /// `None` before the first sample.
        min_rtt: Option<Span>,
        pacing_gain: f64,
        cwnd_gain: f64,
    },
}

impl CongestionInfo {
    /// Parses an attribute; `kind` is the attribute's type in the kernel's reply. Returns `None`
    /// for other attributes, and for bytes of another length (linux/inet_diag.h).
    pub fn parse(kind: u16, bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            let bytes = bytes.get(4 * index..4 * index + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let micros = |count: u32| Span::from_micros(count.into());
        let sampled = |count: u32| (count != NO_SAMPLE).then(|| micros(count));
        Some(match kind {
            VEGAS => Self::Vegas {
                enabled: word(0)? != 0,
                round_trips: word(1)?,
                rtt: micros(word(2)?),
                min_rtt: sampled(word(3)?),
            },
            DCTCP => {
                let half = |at: usize| {
                    let bytes = bytes.get(at..at + 2)?;
                    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
                };
                Self::Dctcp {
                    enabled: half(0)? != 0,
                    marked: half(2)? != 0,
                    alpha: Share::new(f64::from(word(1)?) / DCTCP_MAX_ALPHA)?,
                    bytes_marked: word(2)?,
                    bytes_acked: word(3)?,
                }
            }
            BBR => Self::Bbr {
                bandwidth: Rate::from_bits_per_second(
                    (u64::from(word(1)?) << 32 | u64::from(word(0)?)).saturating_mul(8),
                ),
                min_rtt: sampled(word(2)?),
                pacing_gain: f64::from(word(3)?) / BBR_UNIT,
                cwnd_gain: f64::from(word(4)?) / BBR_UNIT,
            },
            _ => return None,
        })
    }
}

fn reason(source: Option<&io::Error>) -> String {
    match source {
        None => " (the kernel chose another)".to_owned(),
        Some(error) => match error.raw_os_error() {
            Some(libc::ENOENT) => " (no such algorithm)".to_owned(),
            Some(libc::EPERM) => {
                " (not in net.ipv4.tcp_allowed_congestion_control, and no CAP_NET_ADMIN)".to_owned()
            }
            _ => format!(" ({error})"),
        },
    }
}

fn available() -> Vec<String> {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .unwrap_or_default()
        .split_ascii_whitespace()
        .map(str::to_owned)
        .collect()
}

const VEGAS: u16 = 3;
const DCTCP: u16 = 9;
const BBR: u16 = 16;
const NO_SAMPLE: u32 = u32::MAX;
/// The value for a share of 1 (net/ipv4/tcp_dctcp.h, DCTCP_MAX_ALPHA).
const DCTCP_MAX_ALPHA: f64 = 1024.0;
/// The value for a gain of 1 (net/ipv4/tcp_bbr.c, BBR_UNIT).
const BBR_UNIT: f64 = 256.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(words: [u32; 5]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn the_data_of_each_congestion_control_algorithm_is_parsed() {
        let bbr = bytes([1_000_000, 0, 20_000, 739, 512]);
        let Some(CongestionInfo::Bbr { bandwidth, min_rtt, pacing_gain, cwnd_gain }) =
            CongestionInfo::parse(BBR, &bbr)
        else {
            panic!("no BBR");
        };
        assert_eq!(bandwidth, Rate::from_mbit(8));
        assert_eq!(min_rtt, Some(Span::from_millis(20)));
        assert_eq!((pacing_gain, cwnd_gain), (739.0 / 256.0, 2.0));

        let unsampled = bytes([0, 1, u32::MAX, 0, 0]);
        assert!(matches!(
            CongestionInfo::parse(BBR, &unsampled),
            Some(CongestionInfo::Bbr { bandwidth, min_rtt: None, .. })
                if bandwidth.bits_per_second() == 8 << 32
        ));
        let dctcp = bytes([u32::from_ne_bytes([1, 0, 1, 0]), 512, 7, 9, 0]);
        assert!(matches!(
            CongestionInfo::parse(DCTCP, &dctcp[..16]),
            Some(CongestionInfo::Dctcp { alpha, .. }) if alpha.percent() == 50.0
        ));
        assert_eq!(CongestionInfo::parse(VEGAS, &[1; 15]), None);
        assert_eq!(CongestionInfo::parse(BBR, &[1; 16]), None);
        assert_eq!(CongestionInfo::parse(10, &[1; 20]), None);
    }

    proptest! {
        #[test]
        fn the_parser_of_congestion_control_data_never_panics(kind in 0u16..20, bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = CongestionInfo::parse(kind, &bytes);
        }
    }
}
