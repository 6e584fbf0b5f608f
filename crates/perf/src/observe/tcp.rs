//! TCP_INFO of every data stream, over time and over the measured window.

pub(crate) mod far;
mod limits;
mod tables;

pub use limits::LimitedBy;

use super::StreamSocket;
use super::series::{Origin, Series};
use crate::event::PathFacts;
use probe::tcp::TcpInfo;
use std::ops::RangeInclusive;
use tables::{Reading, Tables};
use units::{Bytes, Rate, Share, Span, Time};

/// Samples the streams of one test. The sampler keeps only sums, extremes and bounded series.
#[derive(Debug)]
pub struct TcpSampler {
    origin: Origin,
    streams: Vec<SampledStream>,
    tables: Option<Tables>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StreamPath {
    pub id: u32,
    /// True if this side sends. The path facts of a receiver say little, because a receiver sends
    /// only acknowledgements.
    pub sends: bool,
    pub facts: PathFacts,
    pub limited: Option<LimitedBy>,
    pub retransmits: Option<u64>,
    /// Retransmitted segments as a share of the data segments sent.
    pub retransmit_share: Option<Share>,
    pub timeouts: Option<u64>,
    /// The last `tcpi_delivery_rate`, and whether the sender was application-limited at that time.
    pub delivery_rate: Option<Rate>,
    pub delivery_rate_app_limited: Option<bool>,
    /// The minimum round-trip time since the connection was opened. Unlike the other round-trip
    /// times, the minimum is not smoothed.
    pub least_rtt: Option<Span>,
}

#[derive(Debug)]
struct SampledStream {
    id: u32,
    sends: bool,
    /// Time and TCP_INFO at the start of the measured window.
    base: Option<(Time, TcpInfo)>,
    last: Option<(Time, TcpInfo)>,
    bytes: (Time, Bytes),
    rtt: Rtts,
    max_cwnd: Option<Bytes>,
    max_send_window: Option<Bytes>,
    samples: u64,
    full_samples: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Rtts {
    sum: Span,
    count: u64,
    min: Option<Span>,
    max: Option<Span>,
}

impl TcpSampler {
    /// Begins to sample these streams. `series`: also keep the streams' time series.
    pub fn begin(now: Time, sockets: &[StreamSocket<'_>], series: bool) -> Self {
        let streams: Vec<_> =
            sockets.iter().map(|socket| SampledStream::new(now, socket)).collect();
        let ids = || streams.iter().map(|stream| (stream.id, stream.sends));
        let tables = series.then(|| Tables::new(ids()));
        let mut watch = Self { origin: Origin(now), streams, tables };
        watch.read(now, sockets, false);
        watch.reset(now);
        watch
    }

    pub fn sample(&mut self, now: Time, sockets: &[StreamSocket<'_>]) {
        self.read(now, sockets, true);
    }

    /// Excludes the samples so far from the results; the time series keep them.
    pub fn reset(&mut self, now: Time) {
        for stream in &mut self.streams {
            stream.base = stream.last.map(|(_, info)| (now, info));
            stream.rtt = Rtts::default();
            (stream.max_cwnd, stream.max_send_window) = (None, None);
            (stream.samples, stream.full_samples) = (0, 0);
        }
    }

    pub fn latest(&self, id: u32) -> Option<&TcpInfo> {
        let stream = self.streams.iter().find(|stream| stream.id == id)?;
        stream.last.as_ref().map(|(_, info)| info)
    }

    /// Returns the last smoothed round-trip times of the sending streams, or of all streams if none
    /// sends.
    pub fn round_trips(&self) -> impl Iterator<Item = Span> {
        let any_sends = self.streams.iter().any(|stream| stream.sends);
        self.streams
            .iter()
            .filter(move |stream| stream.sends || !any_sends)
            .filter_map(|stream| stream.last.as_ref()?.1.rtt)
            .filter(|rtt| *rtt > Span::ZERO)
    }

    pub fn paths(&self) -> Vec<StreamPath> {
        self.streams.iter().filter_map(SampledStream::path).collect()
    }

    pub fn into_series(self) -> Vec<Series> {
        self.tables.map(Tables::into_series).unwrap_or_default()
    }

    fn read(&mut self, now: Time, sockets: &[StreamSocket<'_>], keep: bool) {
        let mut readings = Vec::with_capacity(self.streams.len());
        for stream in &mut self.streams {
            let socket = sockets.iter().find(|socket| socket.id == stream.id);
            readings.push(socket.map_or_else(Reading::default, |socket| stream.read(now, socket)));
        }
        if let Some(tables) = self.tables.as_mut().filter(|_| keep) {
            tables.push(self.origin.until(now), &readings);
        }
    }
}

impl SampledStream {
    fn new(now: Time, socket: &StreamSocket<'_>) -> Self {
        Self {
            id: socket.id,
            sends: socket.sends,
            base: None,
            last: None,
            bytes: (now, socket.bytes),
            rtt: Rtts::default(),
            max_cwnd: None,
            max_send_window: None,
            samples: 0,
            full_samples: 0,
        }
    }

    fn read(&mut self, now: Time, socket: &StreamSocket<'_>) -> Reading {
        let (before, had) = std::mem::replace(&mut self.bytes, (now, socket.bytes));
        let mut reading = Reading::at(rate(socket.bytes - had, now.since(before)));
        // A UDP socket has no TCP_INFO. The socket's owner reports a broken stream.
        let Some(info) = socket.tcp.and_then(|socket| probe::tcp::of_socket(socket).ok()) else {
            return reading;
        };
        // A sender counts acknowledged bytes: bytes that the socket took may still be in its
        // buffer.
        let acked = |info: &TcpInfo| info.bytes_acked.filter(|_| socket.sends);
        if let Some((at, last)) = &self.last
            && let (Some(acked), Some(had)) = (acked(&info), acked(last))
        {
            reading.throughput = rate(acked - had, now.since(*at));
        }
        reading.fill(&info, self.last.as_ref().map(|(at, last)| info.since(last, now.since(*at))));
        if let Some(rtt) = info.rtt.filter(|rtt| *rtt > Span::ZERO) {
            self.rtt.add(rtt);
        }
        if socket.sends {
            self.samples += 1;
            self.full_samples += u64::from(shows_full_link(&info));
        }
        self.max_cwnd = self.max_cwnd.max(info.cwnd());
        self.max_send_window = self.max_send_window.max(info.snd_wnd);
        self.last = Some((now, info));
        reading
    }

    fn path(&self) -> Option<StreamPath> {
        let (begun, base) = self.base.as_ref()?;
        let (at, last) = self.last.as_ref()?;
        let used = last.since(base, at.since(*begun));
        let facts = PathFacts {
            min_rtt: self.rtt.min,
            mean_rtt: self.rtt.mean(),
            max_rtt: self.rtt.max,
            max_cwnd: self.max_cwnd,
            max_send_window: self.max_send_window,
            reorder_seen: used.reord_seen,
            busy: used.busy,
            rwnd_limited: used.rwnd_limited,
            sndbuf_limited: used.sndbuf_limited,
            bytes_retransmitted: used.bytes_retrans,
            full_link: Share::new(self.full_samples as f64 / self.samples.max(1) as f64),
        };
        Some(StreamPath {
            id: self.id,
            sends: self.sends,
            facts,
            limited: LimitedBy::of(&used),
            retransmits: used.retrans.map(u64::from),
            retransmit_share: used.retransmit_share(),
            timeouts: used.timeouts.map(u64::from),
            delivery_rate: last.delivery_rate,
            delivery_rate_app_limited: last.delivery_rate_app_limited,
            least_rtt: last.min_rtt,
        })
    }
}

/// True if packets queue at the link, or if the link delivers at the pacing rate of the congestion
/// control. BBR paces at the rate that the link delivered.
fn shows_full_link(info: &TcpInfo) -> bool {
    let queue = info.rtt.zip(info.min_rtt).map(|(rtt, min)| (rtt.saturating_sub(min), min));
    let stands = queue.is_some_and(|(queue, min)| queue >= LEAST_QUEUE.max(min / 4));
    let paced = info.delivery_rate.zip(info.pacing_rate).is_some_and(|(delivered, paced)| {
        let ratio = delivered.bits_per_second() as f64 / paced.bits_per_second().max(1) as f64;
        NEAR.contains(&ratio)
    });
    stands || (paced && paces_itself(info) && info.delivery_rate_app_limited == Some(false))
}

/// True if the congestion control itself, as in BBR, sets the pacing rate. BBR paces below one
/// window per round trip, because its window holds two round trips of data. The kernel paces CUBIC
/// and Reno at 1.2 windows per round trip (net/ipv4/tcp_input.c, `tcp_update_pacing_rate`).
/// Delivery near that rate shows only that a loss has just reduced the window.
fn paces_itself(info: &TcpInfo) -> bool {
    let window = info.cwnd().zip(info.rtt).and_then(|(window, rtt)| rate(window, rtt));
    info.pacing_rate.zip(window).is_some_and(|(paced, window)| paced < window)
}

impl Rtts {
    fn add(&mut self, rtt: Span) {
        self.sum = self.sum + rtt;
        self.count += 1;
        self.min = Some(self.min.map_or(rtt, |min| min.min(rtt)));
        self.max = self.max.max(Some(rtt));
    }

    fn mean(&self) -> Option<Span> {
        (self.count > 0).then(|| self.sum / self.count)
    }
}

pub(super) fn rate(bytes: Bytes, elapsed: Span) -> Option<Rate> {
    let seconds = elapsed.secs_f64();
    let bits = bytes.count() as f64 * 8.0;
    (seconds > 0.0).then(|| Rate::from_bits_per_second((bits / seconds) as u64))
}

/// Minimum delay that counts as a queue: busy hosts cause shorter delays, too.
const LEAST_QUEUE: Span = Span::from_millis(1);
const NEAR: RangeInclusive<f64> = 0.9..=1.1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn the_measured_window_begins_after_the_discarded_samples() {
        let (near, mut far) = pair();
        let mut pass = |mut near: &TcpStream, count: usize| {
            near.write_all(&vec![7; count]).unwrap();
            far.read_exact(&mut vec![0; count]).unwrap();
            // The acknowledgement may be delayed.
            let unacked = || probe::tcp::of_socket(near.as_fd()).unwrap().unacked;
            while unacked() != Some(0) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        let second = |count: u64| Time::from_nanos(count * 1_000_000_000);
        let sample = |bytes| StreamSocket {
            id: 3,
            sends: true,
            tcp: Some(near.as_fd()),
            bytes: Bytes::new(bytes),
        };
        let mut watch = TcpSampler::begin(second(0), &[sample(0)], true);
        assert!(watch.round_trips().next().is_some());
        pass(&near, 1000);
        watch.sample(second(1), &[sample(1000)]);
        watch.reset(second(1));
        assert_eq!(watch.paths()[0].facts.max_rtt, None);
        pass(&near, 500);
        watch.sample(second(2), &[sample(1500)]);
        let path = watch.paths().remove(0);
        assert_eq!((path.id, path.sends, path.retransmits), (3, true, Some(0)));
        assert!(path.facts.min_rtt.is_some() && path.facts.min_rtt <= path.facts.max_rtt);
        assert!(path.facts.max_cwnd > Some(Bytes::ZERO));
        let limited = path.limited.unwrap();
        assert!(limited.application.percent() > 50.0, "{limited:?}");
        let series = watch.into_series();
        let named = |name: &str| series.iter().find(|series| series.name == name).unwrap();
        assert_eq!(named("throughput").lines[0].values, [Some(0.008), Some(0.004)]);
        assert_eq!(named("limited_by").stream, Some(3));
        assert_eq!(named("rtt").time_s, [1.0, 2.0]);
    }

    fn info([rtt, min_rtt]: [u64; 2], [delivered, paced]: [u64; 2]) -> TcpInfo {
        let mut info = TcpInfo::default();
        info.rtt = Some(Span::from_micros(rtt));
        info.min_rtt = Some(Span::from_micros(min_rtt));
        info.delivery_rate = Some(Rate::from_bits_per_second(delivered * 1_000_000));
        info.pacing_rate = Some(Rate::from_bits_per_second(paced * 1_000_000));
        info.delivery_rate_app_limited = Some(false);
        // BBR's window: two round trips of the pacing.
        info.snd_mss = Some(Bytes::new(1000));
        info.snd_cwnd = Some((2 * paced * rtt / 8 / 1000) as u32);
        info
    }

    #[test]
    fn a_standing_queue_or_delivery_at_the_pacing_rate_shows_a_saturated_link() {
        for full in [
            // A droptail queue of 30 ms on a path of 20 ms, and a queue of 5 ms on a short path.
            info([50_000, 20_000], [95, 130]),
            info([5_300, 300], [48, 60]),
            // BBR at the rate of the link.
            info([20_400, 20_000], [48, 49]),
            info([10_100, 10_000], [940, 900]),
        ] {
            assert!(shows_full_link(&full), "{full:?}");
        }
        let mut held = info([20_400, 20_000], [48, 49]);
        held.delivery_rate_app_limited = Some(true);
        // CUBIC after a loss: a window of 12 kB each 20 ms, and the kernel's pacing of 1.2 windows.
        let mut cubic = info([20_400, 20_000], [6, 6]);
        cubic.snd_cwnd = Some(12);
        for free in [
            // A window that losses keep small, and a short path of a busy host.
            info([20_100, 20_000], [7, 9]),
            info([400, 40], [20_000, 30_000]),
            // BBR probes for more bandwidth, or was limited before.
            info([20_400, 20_000], [30, 49]),
            held,
            cubic,
            TcpInfo::default(),
        ] {
            assert!(!shows_full_link(&free), "{free:?}");
        }
    }

    #[test]
    fn streams_that_are_not_tcp_have_a_rate_and_no_path() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let of = |bytes| StreamSocket {
            id: 1,
            sends: true,
            tcp: Some(socket.as_fd()),
            bytes: Bytes::new(bytes),
        };
        let mut watch = TcpSampler::begin(Time::from_nanos(0), &[of(0)], true);
        watch.sample(Time::from_nanos(1_000_000_000), &[of(125_000)]);
        assert_eq!(watch.paths(), []);
        let series = watch.into_series();
        assert_eq!(series.len(), 1);
        assert_eq!(series[0].lines[0].values, [Some(1.0)]);
    }
}
