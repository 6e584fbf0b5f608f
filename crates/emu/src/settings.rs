use crate::UsageError;
use link::{
    Capacity, DropTailConfig, Jitter, Limit, LinkConfig, Loss, Overhead, QueueConfig, QueueOfPath,
    Reorder, Trace,
};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::str::FromStr;
use std::sync::Arc;
use units::{Bytes, Share, Span};

/// Requested changes of a direction; a setting that is `None` stays.
///
/// People write settings as `KEY=VALUE`, programs as a JSON object.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Capacity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Share>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<Share>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueOfPath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
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

    /// Parses one setting. `trace` names a file, which is read here, so that the process that
    /// receives the settings needs no access to it. `rtt` is twice the delay.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), UsageError> {
        match key {
            "rate" => {
                self.one_capacity(key)?;
                self.rate = Some(read(key, value)?);
            }
            "trace" => {
                self.one_capacity(key)?;
                self.rate = Some(read_trace(value)?);
            }
            "delay" => {
                self.one_delay(key)?;
                self.delay = Some(read(key, value)?);
            }
            "rtt" => {
                self.one_delay(key)?;
                self.delay = Some(read::<Span>(key, value)? / 2);
            }
            "jitter" => self.jitter = Some(read(key, value)?),
            "loss" => self.loss = Some(read(key, value)?),
            "reorder" => self.reorder = Some(read(key, value)?),
            "duplicate" => self.duplicate = Some(read(key, value)?),
            "corrupt" => self.corrupt = Some(read(key, value)?),
            "queue" => self.queue = Some(read(key, value)?),
            "overhead" => self.overhead = Some(read(key, value)?),
            "seed" => {
                let problem = |_| {
                    UsageError::value(
                        key,
                        format!("`{value}` is not a whole number from 0 to {}", u64::MAX),
                    )
                };
                self.seed = Some(value.trim().parse().map_err(problem)?);
            }
            _ => return Err(UsageError::unknown_key(key, &Self::KEYS)),
        }
        Ok(())
    }

    /// Reads `KEY=VALUE`.
    pub fn set_pair(&mut self, pair: &str) -> Result<(), UsageError> {
        let (key, value) =
            pair.split_once('=').ok_or_else(|| UsageError::NotAPair { text: pair.to_owned() })?;
        self.set(key.trim(), value.trim())
    }

    /// One direction's settings take precedence over those of both.
    pub fn or(&self, both: &Self) -> Self {
        Self {
            rate: self.rate.clone().or_else(|| both.rate.clone()),
            delay: self.delay.or(both.delay),
            jitter: self.jitter.or(both.jitter),
            loss: self.loss.clone().or_else(|| both.loss.clone()),
            reorder: self.reorder.or(both.reorder),
            duplicate: self.duplicate.or(both.duplicate),
            corrupt: self.corrupt.or(both.corrupt),
            queue: self.queue.clone().or_else(|| both.queue.clone()),
            overhead: self.overhead.or(both.overhead),
            seed: self.seed.or(both.seed),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The direction with these settings; those not given are a perfect wire's. The round trip of
    /// its path is twice the delay.
    pub fn config(&self) -> Result<LinkConfig, UsageError> {
        let rate = self.rate.clone().unwrap_or_default();
        let round_trip = self.round_trip();
        let product = match &rate {
            Capacity::Fixed(rate) => Some(rate.bytes_in(round_trip)),
            Capacity::Unlimited | Capacity::Trace(_) => None,
        };
        let queue = match &self.queue {
            Some(queue) => queue.on(product).map_err(|error| UsageError::value("queue", error))?,
            None => usual_queue(&rate, round_trip),
        };
        let queue = queue.on_path(rate.mean_rate(), round_trip);
        let config = LinkConfig {
            rate,
            delay: self.delay.unwrap_or_default(),
            jitter: self.jitter.unwrap_or_default(),
            loss: self.loss.clone().unwrap_or_default(),
            reorder: self.reorder.unwrap_or_default(),
            duplicate: self.duplicate.unwrap_or_default(),
            corrupt: self.corrupt.unwrap_or_default(),
            queue,
            overhead: self.overhead.unwrap_or_default(),
            seed: self.seed.unwrap_or_default(),
        };
        config.validate().map_err(|error| UsageError::Wrong(error.to_string()))?;
        Ok(config)
    }

    /// A setting that does not suit the path, if the settings are valid.
    pub fn warning(&self) -> Option<String> {
        self.config().ok()?.queue.warning(self.round_trip())
    }

    fn round_trip(&self) -> Span {
        self.delay.unwrap_or_default() * 2
    }

    fn one_capacity(&self, key: &str) -> Result<(), UsageError> {
        let problem =
            "`rate` and `trace` exclude each other, and each may be given once: leave one out";
        self.rate.is_none().then_some(()).ok_or_else(|| UsageError::value(key, problem))
    }

    fn one_delay(&self, key: &str) -> Result<(), UsageError> {
        let problem =
            "`delay` and `rtt` exclude each other, and each may be given once: leave one out";
        self.delay.is_none().then_some(()).ok_or_else(|| UsageError::value(key, problem))
    }
}

/// One bandwidth-delay product, but at least [`SHORTEST_QUEUE`] of a full link and one first window
/// of TCP. An unlimited link has no queue.
fn usual_queue(rate: &Capacity, round_trip: Span) -> QueueConfig {
    let Some(rate) = rate.mean_rate() else { return QueueConfig::default() };
    let size = rate.bytes_in(round_trip.max(SHORTEST_QUEUE));
    let limit = match size < Bytes::new(FIRST_WINDOW * FULL_FRAME) {
        true => Limit::Packets(FIRST_WINDOW),
        false => Limit::Bytes(size),
    };
    QueueConfig::DropTail(DropTailConfig { limit })
}

fn read<T: FromStr>(key: &str, value: &str) -> Result<T, UsageError>
where
    T::Err: std::fmt::Display,
{
    value.parse().map_err(|error: T::Err| UsageError::value(key, error))
}

fn read_trace(path: &str) -> Result<Capacity, UsageError> {
    let unreadable = |source| UsageError::Unreadable { file: path.to_owned(), source };
    let file = host::open_regular_file(path.as_ref()).map_err(unreadable)?;
    let mut text = String::new();
    // A device has no length, and must not fill the memory.
    let length = file.take(LARGEST_TRACE + 1).read_to_string(&mut text).map_err(unreadable)?;
    if length as u64 > LARGEST_TRACE {
        let problem =
            format!("{path} has more than {LARGEST_TRACE} bytes: shorten it; a trace repeats");
        return Err(UsageError::value("trace", problem));
    }
    let trace = Trace::parse(&text)
        .map_err(|error| UsageError::value("trace", format!("{path}: {error}")))?;
    Ok(Capacity::Trace(Arc::new(trace)))
}

/// The round trip for which queue managers are set by default (RFC 8289, INTERVAL).
const SHORTEST_QUEUE: Span = Span::from_millis(100);
/// Segments (RFC 6928).
const FIRST_WINDOW: u64 = 10;
/// Bytes of an Ethernet frame with 1500 bytes of IP.
const FULL_FRAME: u64 = 1514;
/// A quarter of the control socket's limit for one message, and some hours of a fast link.
const LARGEST_TRACE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings(pairs: &[&str]) -> Result<Settings, UsageError> {
        let mut settings = Settings::default();
        pairs.iter().try_for_each(|pair| settings.set_pair(pair))?;
        Ok(settings)
    }

    fn message(pairs: &[&str]) -> String {
        settings(pairs).unwrap_err().to_string()
    }

    #[test]
    fn settings_of_a_direction_take_precedence() {
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
    fn a_queue_follows_rate_and_delay_in_any_order() {
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
    fn without_a_queue_a_link_holds_one_product_but_100_ms_at_least() {
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
        assert!(message(&["trace=/no/such/file"]).contains("; check the path"));
        assert!(message(&["seed=-1"]).contains("whole number"));
    }

    #[test]
    fn every_key_is_known() {
        for key in Settings::KEYS {
            let result = Settings::default().set(key, "?");
            assert!(!matches!(result, Err(UsageError::UnknownKey { .. })), "{key}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z]{0,9}=?[a-z0-9:=,.%-]{0,24}") {
            let _ = Settings::default().set_pair(&text);
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
