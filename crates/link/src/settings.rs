use crate::{
    Capacity, DropTailConfig, Jitter, Limit, LinkConfig, LinkError, Loss, Overhead, QueueConfig,
    QueueOfPath, Reorder, Trace,
};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::sync::Arc;
use units::{Bytes, Share, Span};

/// Declares [`Settings`]. Each line is a key whose value is the text of a field of [`LinkConfig`],
/// in the order in which people list them.
macro_rules! settings {
    ($($(#[$doc:meta])* $key:ident: $type:ty,)*) => {
        /// The settings of one direction by their keys, as flags, link files and lab files write
        /// them. A setting that is `None` was not given.
        ///
        /// People write settings as `KEY=VALUE`, programs as a JSON object.
        ///
        /// A lab file has the same keys except `seed`, which the runner sets, and reads them by the
        /// types of these fields. In a lab file, values have axes, the rate is fixed, the trace may
        /// be a list of rates, the directions may have different delays, and the usual queue is
        /// `droptail`.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Settings {
            $(
                $(#[$doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $key: Option<$type>,
            )*
            /// The queue, with sizes that may be multiples of the bandwidth-delay product.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub queue: Option<QueueOfPath>,
        }

        impl Settings {
            /// Merges the settings. `self` takes precedence over `others`.
            pub fn or(&self, others: &Self) -> Self {
                Self {
                    $($key: self.$key.clone().or_else(|| others.$key.clone()),)*
                    queue: self.queue.clone().or_else(|| others.queue.clone()),
                }
            }

            /// Returns the configuration of the direction without a queue. Settings not given have
            /// the values of a perfect wire.
            pub fn wire(&self) -> LinkConfig {
                LinkConfig {
                    $($key: self.$key.clone().unwrap_or_default(),)*
                    queue: QueueConfig::default(),
                }
            }

            fn set_field(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
                match key {
                    $(key if key == stringify!($key) => self.$key = Some(read(key, value)?),)*
                    "queue" => self.queue = Some(read(key, value)?),
                    _ => return Err(SettingError::unknown_key(key, &Self::KEYS)),
                }
                Ok(())
            }
        }
    };
}

settings! {
    /// Rate of the link. The key `trace` sets the rate to a trace from a file.
    rate: Capacity,
    /// Propagation delay of this direction. The key `rtt` sets the delay to half of the given time.
    delay: Span,
    /// Variation of the delay from packet to packet.
    jitter: Jitter,
    /// Loss on the medium, after serialisation.
    loss: Loss,
    /// Extra delay for a share of the packets.
    reorder: Reorder,
    /// The share of packets that arrive twice.
    duplicate: Share,
    /// The share of packets that have one bit flipped.
    corrupt: Share,
    /// Bytes that the medium carries for each frame in addition to the frame's size.
    overhead: Overhead,
    /// Seed of all random decisions of this direction.
    seed: u64,
}

/// A mistake in the settings of a link.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingError {
    /// No setting has this key.
    #[error("there is no setting `{key}`{hint}; the settings are {known}")]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The nearest known key, from [`units::did_you_mean`]; empty if none is near.
        hint: String,
        /// The valid keys, separated by commas.
        known: String,
    },
    /// The value of a known key is invalid.
    #[error("{key}: {problem}")]
    Value {
        /// The key.
        key: String,
        /// The mistake, as the message gives it after the key.
        problem: String,
    },
    /// The text has no `=` between key and value.
    #[error("`{text}` is not KEY=VALUE, for example loss=1%")]
    NotAPair {
        /// The text as written.
        text: String,
    },
    /// The settings together describe no valid link.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl SettingError {
    /// Returns the error for an invalid value of `key`; `problem` describes the mistake.
    pub fn value(key: &str, problem: impl std::fmt::Display) -> Self {
        Self::Value { key: key.to_owned(), problem: problem.to_string() }
    }

    /// Returns the error for an unknown `key`, with the nearest of the `known` keys as a hint.
    pub fn unknown_key(key: &str, known: &[&str]) -> Self {
        Self::UnknownKey {
            key: key.to_owned(),
            hint: units::did_you_mean(key, known.iter().copied()),
            known: known.join(", "),
        }
    }
}

impl Settings {
    /// Every key that [`set`](Self::set) takes.
    pub const KEYS: [&str; 12] = [
        "rate",
        "trace",
        "delay",
        "rtt",
        "jitter",
        "loss",
        "reorder",
        "duplicate",
        "corrupt",
        "queue",
        "overhead",
        "seed",
    ];

    /// Parses one setting. `rtt` is twice the delay. `trace` names a file with the rate, which
    /// `read_trace` reads.
    pub fn set<E: From<SettingError>>(
        &mut self,
        key: &str,
        value: &str,
        read_trace: impl FnOnce(&str) -> Result<Trace, E>,
    ) -> Result<(), E> {
        match key {
            "rate" | "trace" if self.rate.is_some() => {
                let problem = "`rate` and `trace` exclude each other, and each may be given once: leave one out";
                return Err(SettingError::value(key, problem).into());
            }
            "delay" | "rtt" if self.delay.is_some() => {
                let problem = "`delay` and `rtt` exclude each other, and each may be given once: leave one out";
                return Err(SettingError::value(key, problem).into());
            }
            "trace" => self.rate = Some(Capacity::Trace(Arc::new(read_trace(value)?))),
            "rtt" => self.delay = Some(read::<Span>(key, value)? / 2),
            "seed" => {
                let problem = format!("`{value}` is not a whole number from 0 to {}", u64::MAX);
                let seed = value.trim().parse();
                self.seed =
                    Some(seed.map_err(|_| SettingError::Value { key: key.to_owned(), problem })?);
            }
            key => self.set_field(key, value)?,
        }
        Ok(())
    }

    /// Splits `KEY=VALUE`.
    pub fn pair(text: &str) -> Result<(&str, &str), SettingError> {
        let pair = text.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        pair.ok_or_else(|| SettingError::NotAPair { text: text.to_owned() })
    }

    /// Whether no setting was given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the configuration of the direction. Settings not given have the values of a perfect
    /// wire; the round trip of the path is twice the delay.
    pub fn config(&self) -> Result<LinkConfig, SettingError> {
        let mut config = self.wire();
        let round_trip = self.round_trip();
        let product = match &config.rate {
            Capacity::Fixed(rate) => Some(rate.bytes_in(round_trip)),
            Capacity::Unlimited | Capacity::Trace(_) => None,
        };
        let queue = match &self.queue {
            Some(queue) => {
                queue.on(product).map_err(|error| SettingError::value("queue", error))?
            }
            None => usual_queue(&config.rate, round_trip),
        };
        config.queue = queue.on_path(config.rate.mean_rate(), round_trip);
        config.validate()?;
        Ok(config)
    }

    /// Returns a warning about a setting that does not suit the path, if the settings are valid.
    pub fn warning(&self) -> Option<String> {
        self.config().ok()?.queue.warning(self.round_trip())
    }

    fn round_trip(&self) -> Span {
        self.delay.unwrap_or_default() * 2
    }
}

/// Returns the default queue: one bandwidth-delay product, but at least [`SHORTEST_QUEUE`] at the
/// link's rate, and at least an initial TCP window. An unlimited link has no queue.
fn usual_queue(rate: &Capacity, round_trip: Span) -> QueueConfig {
    let Some(rate) = rate.mean_rate() else { return QueueConfig::default() };
    let size = rate.bytes_in(round_trip.max(SHORTEST_QUEUE));
    let limit = match size < Bytes::new(FIRST_WINDOW * FULL_FRAME) {
        true => Limit::Packets(FIRST_WINDOW),
        false => Limit::Bytes(size),
    };
    QueueConfig::DropTail(DropTailConfig { limit })
}

fn read<T: FromStr>(key: &str, value: &str) -> Result<T, SettingError>
where
    T::Err: std::fmt::Display,
{
    value.parse().map_err(|error: T::Err| SettingError::value(key, error))
}

/// The shortest length of the default queue: the round trip for which queue managers are set by
/// default (RFC 8289, INTERVAL).
const SHORTEST_QUEUE: Span = Span::from_millis(100);
/// The initial TCP window in segments (RFC 6928).
const FIRST_WINDOW: u64 = 10;
/// Bytes of an Ethernet frame with 1500 bytes of IP.
const FULL_FRAME: u64 = 1514;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(settings: &mut Settings, pair: &str) -> Result<(), SettingError> {
        let (key, value) = Settings::pair(pair)?;
        settings.set(key, value, |file| Err(SettingError::value("trace", format!("no {file}"))))
    }

    fn settings(pairs: &[&str]) -> Result<Settings, SettingError> {
        let mut settings = Settings::default();
        pairs.iter().try_for_each(|pair| set(&mut settings, pair))?;
        Ok(settings)
    }

    fn message(pairs: &[&str]) -> String {
        settings(pairs).unwrap_err().to_string()
    }

    #[test]
    fn settings_of_a_direction_override_common_settings() {
        let both =
            settings(&["rate=600mbit", "rtt=20ms", "loss=1%", "queue=droptail:256KiB"]).unwrap();
        let one = settings(&["rate=10mbit", "loss=none"]).unwrap();
        let config = one.or(&both).config().unwrap();
        assert_eq!(config.rate.to_string(), "10mbit");
        assert_eq!(config.delay, Span::from_millis(10));
        assert_eq!(config.loss, Loss::NONE);
        assert_eq!(config.queue.to_string(), "droptail:256KiB");
    }

    #[test]
    fn a_queue_size_in_bdp_follows_rate_and_delay_in_any_order() {
        let queue = |changes: &[&[&str]]| {
            let one = |so_far: Settings, pairs: &&[&str]| settings(pairs).unwrap().or(&so_far);
            let settings = changes.iter().fold(Settings::default(), one);
            settings.config().map(|config| config.queue.to_string())
        };
        let pairs = ["queue=droptail:2bdp", "rtt=20ms", "rate=100mbit"];
        assert_eq!(queue(&[&pairs]).unwrap(), "droptail:500KB");
        assert_eq!(queue(&[&pairs, &["queue=droptail:1bdp"]]).unwrap(), "droptail:250KB");
        assert_eq!(queue(&[&pairs, &["rate=10mbit"]]).unwrap(), "droptail:50KB");
        let unlimited = queue(&[&pairs[..2]]).unwrap_err().to_string();
        assert!(unlimited.contains("fixed rate"), "{unlimited}");
        let without_delay = queue(&[&["queue=droptail:1bdp", "rate=1mbit"]]);
        assert!(without_delay.unwrap_err().to_string().contains("is 0"));
    }

    #[test]
    fn the_default_queue_is_one_bandwidth_delay_product_and_at_least_100_ms() {
        let queue = |pairs: &[&str]| settings(pairs).unwrap().config().unwrap().queue.to_string();
        assert_eq!(queue(&["rate=20mbit"]), "droptail:250KB");
        assert_eq!(queue(&["rate=20mbit", "rtt=40ms"]), "droptail:250KB");
        assert_eq!(queue(&["rate=20mbit", "rtt=300ms"]), "droptail:750KB");
        assert_eq!(queue(&["rate=1gbit", "delay=100ms"]), "droptail:25MB");
        assert_eq!(queue(&["rate=64kbit"]), "droptail:10p");
        assert_eq!(queue(&["delay=10ms"]), "droptail:10000p");
        assert_eq!(queue(&["rate=20mbit", "queue=droptail"]), "droptail:10000p");
    }

    #[test]
    fn the_period_of_a_caqm_port_follows_the_round_trip() {
        let direction = |pairs: &[&str]| settings(pairs).unwrap();
        let queue = |pairs: &[&str]| direction(pairs).config().unwrap().queue.to_string();
        let pairs = ["rate=100mbit", "rtt=20ms", "queue=caqm:143KB"];
        assert!(queue(&pairs).contains("period=20ms"), "{}", queue(&pairs));
        assert_eq!(direction(&pairs).warning(), None);
        let far = direction(&["rate=100mbit", "rtt=20ms", "queue=caqm:143KB,period=200us"]);
        let warning = far.warning().unwrap();
        assert!(warning.contains("200us") && warning.contains("20ms"), "{warning}");
    }

    #[test]
    fn an_invalid_setting_is_refused_with_a_suggestion() {
        assert!(message(&["rate=0"]).contains("rate is 0"));
        assert!(message(&["rate=600"]).contains("has no unit"));
        assert!(message(&["loss=140%"]).contains("out of range"));
        assert!(message(&["queue=dropptail:3p"]).contains("did you mean `droptail`?"));
        assert!(message(&["los=1%"]).contains("no setting `los` (did you mean `loss`?)"));
        assert!(message(&["loss"]).contains("not KEY=VALUE"));
        assert!(message(&["delay=1ms", "rtt=2ms"]).contains("leave one out"));
        assert!(message(&["rate=1mbit", "trace=x"]).contains("exclude each other"));
        assert!(message(&["seed=-1"]).contains("whole number"));
    }

    #[test]
    fn the_valid_keys_are_the_fields_and_trace_and_rtt() {
        for key in Settings::KEYS {
            let set = set(&mut Settings::default(), &format!("{key}=?"));
            assert!(!matches!(set, Err(SettingError::UnknownKey { .. })), "{key}");
        }
        let all = ["rate=1mbit", "delay=1ms", "jitter=1ms", "loss=1%", "reorder=1%,1ms"];
        let rest = ["duplicate=1%", "corrupt=1%", "queue=droptail", "overhead=24", "seed=1"];
        let all = settings(&[all, rest].concat()).unwrap();
        let fields = serde_json::to_value(all).unwrap();
        let fields: Vec<_> = fields.as_object().unwrap().keys().map(String::as_str).collect();
        let mut known: Vec<_> =
            Settings::KEYS.into_iter().filter(|key| !["trace", "rtt"].contains(key)).collect();
        let mut found = fields.clone();
        known.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, known);
    }

    proptest! {
        #[test]
        fn parsing_any_setting_text_causes_no_panic(text in "[a-z]{0,9}=?[a-z0-9:=,.%-]{0,24}") {
            let _ = set(&mut Settings::default(), &text);
        }

        #[test]
        fn parsed_settings_survive_serialisation(
            rate in 1u64..10_000, delay in 0u64..10_000, loss in 0u32..=100, packets in 1u64..1000, seed: u64,
        ) {
            let settings = settings(&[
                &format!("rate={rate}mbit"), &format!("delay={delay}us"), &format!("loss={loss}%"),
                &format!("queue=headdrop:{packets}p"), &format!("seed={seed}"),
            ]).unwrap();
            let text = serde_json::to_string(&settings).unwrap();
            prop_assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
        }
    }
}
