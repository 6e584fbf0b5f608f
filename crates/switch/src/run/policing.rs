use datapath::{Meters, Verdict};
use flow::request::{Band, BandKind, MeterEntry};
use settings::table;
use units::{Bytes, Rate, Time};

table! {
    /// The limits of the frames that a port receives. Frames beyond a limit are dropped at
    /// reception.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Policing in kebab {
        /// The rate in multiples of 1 kbit/s, counted over whole frames.
        pub rate: Option<Rate>,
        /// The bucket size of `rate`, by default 1 MB as in Open vSwitch.
        pub burst: Option<Bytes>,
        /// Maximum number of frames per second.
        pub packet_rate: Option<u32>,
        /// The bucket size of `packet-rate`, by default 16,000 frames as in Open vSwitch.
        pub packet_burst: Option<u32>,
    }
}

/// The token buckets of a port.
#[derive(Debug)]
pub(super) struct Policer {
    settings: Policing,
    meters: Meters,
}

impl Policing {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.rate.is_some_and(|rate| kbit(rate).is_none_or(|rate| rate == 0)) {
            return Err("policing.rate: use 1kbit to 4294gbit".to_owned());
        }
        if self.burst.is_some_and(|burst| kbit_of(burst).is_none_or(|burst| burst == 0)) {
            return Err("policing.burst: use 125B to 500GB".to_owned());
        }
        if self.packet_rate == Some(0) || self.packet_burst == Some(0) {
            return Err("policing.packet-rate and policing.packet-burst: use 1 or more".to_owned());
        }
        if self.burst.is_some() && self.rate.is_none() {
            return Err("policing.burst needs policing.rate: set one, such as 100mbit".to_owned());
        }
        if self.packet_burst.is_some() && self.packet_rate.is_none() {
            return Err("policing.packet-burst needs policing.packet-rate: set one".to_owned());
        }
        Ok(())
    }
}

impl Policer {
    /// Creates a policer with full buckets; `None` if the settings have no limit.
    pub(super) fn new(settings: &Policing, now: Time) -> Option<Self> {
        let meters = Meters::default();
        let configure = |meter: u32, rate: u32, burst: u32| {
            let entry = MeterEntry {
                meter,
                is_in_packets: meter == FRAMES,
                has_burst: true,
                has_statistics: false,
                bands: vec![Band { kind: BandKind::Drop, rate, burst }],
            };
            meters.configure(&entry, now);
        };
        if let Some(rate) = settings.rate.and_then(kbit) {
            configure(BITS, rate, settings.burst.and_then(kbit_of).unwrap_or(USUAL_KBIT));
        }
        if let Some(rate) = settings.packet_rate {
            configure(FRAMES, rate, settings.packet_burst.unwrap_or(USUAL_FRAMES));
        }
        let limits_any = settings.rate.is_some() || settings.packet_rate.is_some();
        limits_any.then(|| Self { settings: settings.clone(), meters })
    }

    pub(super) fn settings(&self) -> &Policing {
        &self.settings
    }

    /// Whether a frame of `length` bytes that arrived at `arrival` is within the limits.
    pub(super) fn admits(&self, length: usize, arrival: Time) -> bool {
        // If a meter is not configured, it lets all frames pass.
        [BITS, FRAMES]
            .into_iter()
            .all(|meter| self.meters.measure(meter, length, arrival) == Verdict::Passes)
    }
}

fn kbit(rate: Rate) -> Option<u32> {
    u32::try_from(rate.bits_per_second() / 1000).ok()
}

fn kbit_of(size: Bytes) -> Option<u32> {
    u32::try_from(size.count() / BYTES_PER_KBIT).ok()
}

/// The IDs of the two meters.
const BITS: u32 = 1;
const FRAMES: u32 = 2;
const BYTES_PER_KBIT: u64 = 125;
/// Open vSwitch's default bucket sizes (vswitchd/vswitch.xml).
const USUAL_KBIT: u32 = 8_000;
const USUAL_FRAMES: u32 = 16_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policer_admits_its_burst_and_then_its_rate() {
        let mut settings = Policing {
            rate: Some("1mbit".parse().unwrap()),
            burst: Some(Bytes::new(5_000)),
            ..Policing::default()
        };
        settings.check().unwrap();
        let admitted = |settings: &Policing| {
            let policer = Policer::new(settings, Time::ZERO).unwrap();
            // A frame of 1,000 bits every 0.1 ms is ten times the limit.
            let arrivals = (0..10_000).map(|number: u64| Time::from_nanos(number * 100_000));
            arrivals.filter(|arrival| policer.admits(125, *arrival)).count()
        };
        assert_eq!(admitted(&settings), 40 + 999);
        // The lower of two limits decides.
        (settings.packet_rate, settings.packet_burst) = (Some(100), Some(10));
        assert_eq!(admitted(&settings), 10 + 99);
        settings = Policing { rate: settings.rate, ..Policing::default() };
        assert_eq!(admitted(&settings), 8_000 + 999);
        assert!(Policer::new(&Policing::default(), Time::ZERO).is_none());
    }

    #[test]
    fn impossible_policing_limits_are_refused() {
        let problem = |text: &str| settings::parse::<Policing>(text).unwrap().check().unwrap_err();
        for (text, words) in [
            ("rate = \"100bit\"", "use 1kbit"),
            ("burst = \"1MB\"", "needs policing.rate"),
            ("rate = \"1mbit\"\nburst = \"10B\"", "use 125B"),
            ("packet-rate = 0", "use 1 or more"),
            ("packet-burst = 5", "needs policing.packet-rate"),
        ] {
            assert!(problem(text).contains(words), "{text}: {}", problem(text));
        }
    }
}
