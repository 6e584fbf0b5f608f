use super::lenient;
use crate::options::{Amount, Direction, Protocol, TestOptions};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use units::{Bytes, Rate, Span};

/// The client's request, in iperf3's keys. A client writes the request like iperf3's
/// `send_parameters`; a server reads requests from any peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parameters {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::flag")]
    pub tcp: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::flag")]
    pub udp: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::flag")]
    pub sctp: bool,
    #[serde(deserialize_with = "lenient::number")]
    pub omit: f64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::whole")]
    pub server_affinity: Option<i64>,
    #[serde(default = "usual_time", deserialize_with = "lenient::number")]
    pub time: f64,
    #[serde(deserialize_with = "lenient::number")]
    pub num: f64,
    #[serde(deserialize_with = "lenient::number")]
    pub blockcount: f64,
    #[serde(
        rename = "MSS",
        skip_serializing_if = "is_default",
        deserialize_with = "lenient::number"
    )]
    pub mss: f64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::flag")]
    pub nodelay: bool,
    #[serde(deserialize_with = "lenient::number")]
    pub parallel: f64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::flag")]
    pub reverse: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::flag")]
    pub bidirectional: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::number")]
    pub window: f64,
    #[serde(deserialize_with = "lenient::number")]
    pub len: f64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::number")]
    pub bandwidth: f64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::number")]
    pub fqrate: f64,
    #[serde(deserialize_with = "lenient::number")]
    pub pacing_timer: f64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::number")]
    pub burst: f64,
    #[serde(
        rename = "TOS",
        skip_serializing_if = "is_default",
        deserialize_with = "lenient::number"
    )]
    pub tos: f64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::number")]
    pub flowlabel: f64,
    #[serde(skip_serializing_if = "is_default")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub extra_data: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub congestion: Option<String>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::number")]
    pub get_server_output: f64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::number")]
    pub udp_counters_64bit: f64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::number")]
    pub repeating_payload: f64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::number")]
    pub zerocopy: f64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::number")]
    pub dont_fragment: f64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::number")]
    pub skip_rx_copy: f64,
    #[serde(skip_serializing_if = "is_default")]
    pub authtoken: Option<String>,
    pub client_version: Option<String>,
    /// A key that iperf3 lacks: the client's requests beyond iperf3's protocol. Present if the
    /// client understands [`super::State::WeirOffer`].
    #[serde(skip_serializing_if = "is_default")]
    pub weir: Option<Value>,
}

/// Key in [`Parameters::weir`]: asks the server for time series of its kernel's metrics. At the end
/// of the test the server sends the series of the streams on which the server sent data.
pub(crate) const SERIES_WISH: &str = "series";
/// Key in [`Parameters::weir`]: asks the server to sample in these periods
/// ([`crate::observe::probe_cost::SamplingPeriods`]). The server's offer tells whether the server
/// will sample in these periods.
pub(crate) const PERIODS_WISH: &str = "turns";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParametersError {
    #[error("SCTP was requested, but only TCP and UDP are served: test one of these")]
    Sctp,
    #[error("a password was sent, but this server has no accounts")]
    Authentication,
    #[error("`{key}` is {value}, and the range is {allowed}")]
    OutOfRange { key: &'static str, value: String, allowed: String },
    #[error(
        "both ends must send at once and in reverse: choose one of `reverse` and `bidirectional`"
    )]
    TwoDirections,
}

impl Parameters {
    pub fn of(options: &TestOptions) -> Self {
        let (time, num, blockcount) = match options.amount {
            Amount::Time(time) => (time.secs_f64(), 0.0, 0.0),
            Amount::Bytes(bytes) => (0.0, bytes as f64, 0.0),
            Amount::Blocks(blocks) => (0.0, 0.0, blocks as f64),
        };
        let flag = |on| f64::from(u8::from(on));
        Self {
            tcp: options.protocol == Protocol::Tcp,
            udp: options.protocol == Protocol::Udp,
            sctp: false,
            // iperf3 counts whole seconds, and truncates a fraction.
            omit: options.omit.secs_f64(),
            server_affinity: options.server_affinity.and_then(|cpu| i64::try_from(cpu).ok()),
            time,
            num,
            blockcount,
            mss: options.mss.map_or(0.0, f64::from),
            nodelay: options.no_delay,
            parallel: options.streams.into(),
            reverse: options.direction == Direction::Reverse,
            bidirectional: options.direction == Direction::Both,
            window: options.window.map_or(0.0, |window| window.count() as f64),
            len: options.block_bytes() as f64,
            bandwidth: options.rate.map_or(0.0, |rate| rate.bits_per_second() as f64),
            fqrate: options.kernel_rate.map_or(0.0, |rate| rate.bits_per_second() as f64),
            pacing_timer: options.pacing_timer.micros_f64(),
            burst: if options.burst > 1 { options.burst.into() } else { 0.0 },
            tos: options.type_of_service.into(),
            flowlabel: options.flow_label.map_or(0.0, f64::from),
            title: options.title.clone(),
            extra_data: options.extra_data.clone(),
            congestion: options.congestion.clone(),
            get_server_output: flag(options.server_output),
            udp_counters_64bit: flag(options.udp_wide_counters),
            repeating_payload: flag(options.repeating_payload),
            zerocopy: flag(options.zero_copy),
            dont_fragment: flag(options.dont_fragment),
            skip_rx_copy: flag(options.skip_receive_copy),
            authtoken: None,
            client_version: Some(SPOKEN.to_owned()),
            weir: None,
        }
    }

    /// Converts the parameters to a server's options. Refuses impossible numbers, and rounds no
    /// number.
    pub fn options(&self) -> Result<TestOptions, ParametersError> {
        if self.sctp {
            return Err(ParametersError::Sctp);
        }
        if self.authtoken.is_some() {
            return Err(ParametersError::Authentication);
        }
        let direction = match (self.reverse, self.bidirectional) {
            (true, true) => return Err(ParametersError::TwoDirections),
            (true, false) => Direction::Reverse,
            (false, true) => Direction::Both,
            (false, false) => Direction::Forward,
        };
        let num = whole("num", self.num, 0, MOST_BYTES)?;
        let blockcount = whole("blockcount", self.blockcount, 0, MOST_BYTES)?;
        let time = seconds("time", self.time)?;
        let amount = match (num, blockcount) {
            (0, 0) => Amount::Time(time),
            (0, blocks) => Amount::Blocks(blocks),
            (bytes, _) => Amount::Bytes(bytes),
        };
        let longest = if self.udp { MOST_UDP_BLOCK } else { MOST_TCP_BLOCK };
        let block = whole("len", self.len, 0, longest)?;
        let usual = TestOptions::default().block_bytes() as u64;
        let none_if_zero = |count: u64| (count > 0).then_some(count);
        let rate = |key, value| {
            whole(key, value, 0, MOST_RATE).map(|r| none_if_zero(r).map(Rate::from_bits_per_second))
        };
        Ok(TestOptions {
            protocol: if self.udp { Protocol::Udp } else { Protocol::Tcp },
            direction,
            amount,
            omit: seconds("omit", self.omit)?,
            streams: narrow("parallel", self.parallel.max(1.0), 1, 128)?,
            // A client whose user chose no block size sends the default size.
            block: none_if_zero(block).filter(|block| self.udp || *block != usual).map(Bytes::new),
            rate: rate("bandwidth", self.bandwidth)?,
            burst: narrow("burst", self.burst, 0, 1000)?.max(1),
            pacing_timer: match whole("pacing_timer", self.pacing_timer, 0, 10_000_000)? {
                0 => TestOptions::default().pacing_timer,
                micros => Span::from_micros(micros),
            },
            kernel_rate: rate("fqrate", self.fqrate)?,
            window: none_if_zero(whole("window", self.window, 0, MOST_WINDOW)?).map(Bytes::new),
            mss: none_if_zero(whole("MSS", self.mss, 0, 65_535)?).map(|mss| mss as u32),
            no_delay: self.nodelay,
            congestion: self.congestion.clone(),
            type_of_service: narrow("TOS", self.tos, 0, 255)? as u8,
            flow_label: match narrow("flowlabel", self.flowlabel, 0, 0xf_ffff)? {
                0 => None,
                label => Some(label),
            },
            zero_copy: self.zerocopy > 0.0,
            skip_receive_copy: self.skip_rx_copy > 0.0,
            repeating_payload: self.repeating_payload > 0.0,
            dont_fragment: self.dont_fragment > 0.0,
            udp_wide_counters: self.udp_counters_64bit > 0.0,
            server_output: self.get_server_output > 0.0,
            server_affinity: self.server_affinity.and_then(|cpu| usize::try_from(cpu).ok()),
            title: self.title.clone(),
            extra_data: self.extra_data.clone(),
        })
    }
}

fn seconds(key: &'static str, value: f64) -> Result<Span, ParametersError> {
    if value.is_finite() && (0.0..=MOST_SECONDS).contains(&value) {
        return Ok(Span::from_nanos((value * 1e9) as u64));
    }
    Err(out_of_range(key, value, format!("0 to {MOST_SECONDS:.0} seconds")))
}

fn whole(key: &'static str, value: f64, least: u64, most: u64) -> Result<u64, ParametersError> {
    if value.is_finite() && value >= least as f64 && value <= most as f64 {
        return Ok(value as u64);
    }
    Err(out_of_range(key, value, format!("{least} to {most}")))
}

fn narrow(key: &'static str, value: f64, least: u32, most: u32) -> Result<u32, ParametersError> {
    whole(key, value, least.into(), most.into()).map(|count| count as u32)
}

fn out_of_range(key: &'static str, value: f64, allowed: String) -> ParametersError {
    ParametersError::OutOfRange { key, value: value.to_string(), allowed }
}

/// Returns iperf3's duration of a test whose client names no duration, in seconds.
fn usual_time() -> f64 {
    10.0
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The version that Weir reports to peers, in iperf3's format.
const SPOKEN: &str = concat!("3.12 (weir ", env!("CARGO_PKG_VERSION"), ")");
/// A day, as in iperf3.
const MOST_SECONDS: f64 = 86_400.0;
/// Maximum number of bytes: up to here a double holds every whole number.
const MOST_BYTES: u64 = 1 << 53;
const MOST_RATE: u64 = 1 << 53;
const MOST_WINDOW: u64 = 512 << 20;
const MOST_TCP_BLOCK: u64 = 1 << 20;
const MOST_UDP_BLOCK: u64 = 65_507;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_reads_the_parameters_that_a_client_writes() {
        let options = TestOptions {
            protocol: Protocol::Udp,
            direction: Direction::Both,
            amount: Amount::Bytes(12_345_678),
            omit: Span::from_secs(1),
            streams: 4,
            block: Some(Bytes::new(1200)),
            rate: Some(Rate::from_bits_per_second(50_000_000)),
            burst: 10,
            window: Some(Bytes::new(400_000)),
            mss: Some(1400),
            no_delay: true,
            congestion: Some("reno".to_owned()),
            type_of_service: 0x20,
            zero_copy: true,
            udp_wide_counters: true,
            server_output: true,
            ..TestOptions::default()
        };
        let text = serde_json::to_string(&Parameters::of(&options)).unwrap();
        let read: Parameters = serde_json::from_str(&text).unwrap();
        assert_eq!(read.options().unwrap(), options);
    }

    #[test]
    fn parameters_of_other_implementations_are_read() {
        let read =
            |text: &str| serde_json::from_str::<Parameters>(text).unwrap().options().unwrap();
        let usual = TestOptions::default();
        assert_eq!(read(r#"{"tcp":true}"#), usual);
        let text = r#"{"tcp":1,"udp":false,"omit":null,"time":10.0,"parallel":1.0,"nodelay":0,
            "reverse":null,"server_affinity":null,"title":null,"unknown":{"a":[1]},"gso":1,
            "udp_counters_64bit":false,"len":131072.0,"client_version":"3.1.3"}"#;
        assert_eq!(read(text), usual);
        let text = r#"{"udp":1,"time":5,"reverse":1,"udp_counters_64bit":true,"zerocopy":true,
            "get_server_output":true,"server_affinity":2.0,"bandwidth":1048576}"#;
        let options = read(text);
        assert_eq!((options.protocol, options.direction), (Protocol::Udp, Direction::Reverse));
        assert_eq!(options.amount, Amount::Time(Span::from_secs(5)));
        assert!(options.udp_wide_counters && options.zero_copy && options.server_output);
        assert_eq!(options.server_affinity, Some(2));
        for wrong in [r#"{"time":"soon"}"#, r#"{"reverse":[]}"#, r#"{"server_affinity":1.5}"#] {
            assert!(serde_json::from_str::<Parameters>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn impossible_numbers_are_refused_with_the_parameters_name() {
        let refused = |text: &str| {
            serde_json::from_str::<Parameters>(text).unwrap().options().unwrap_err().to_string()
        };
        assert!(refused(r#"{"tcp":true,"time":-5}"#).contains("`time` is -5"));
        assert!(refused(r#"{"tcp":true,"parallel":1e300}"#).contains("`parallel`"));
        assert!(refused(r#"{"udp":true,"len":70000}"#).contains("`len` is 70000"));
        assert!(refused(r#"{"sctp":true}"#).contains("SCTP"));
    }
}
