//! The parameters that all hosts and ports of a network share.

use super::reference;
use crate::AccelError;
use units::{Span, Switch};

/// The parameters of a network, named as in the reference kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Increase requested per round trip, in eighths of [`Self::mtu_unit`].
    pub alpha: u32,
    /// Bytes by which a refusal decreases the window.
    pub beta: u32,
    /// Segments.
    pub min_cwnd: u32,
    /// Segments.
    pub max_cwnd: u32,
    /// Bytes of answers that move the window by one segment.
    pub mtu_unit: u32,
    /// Bytes of a hint on data.
    pub data_hint_unit: u32,
    /// Bytes of a hint on an acknowledgement.
    pub ack_hint_unit: u32,
    /// The round trip that alpha is defined for.
    pub rtt_standard: Span,
    /// Increase requested per round trip, times the square root of the window in segments, in
    /// eighths of [`Self::mtu_unit`], if that is more than [`Self::alpha`]. The reference lacks
    /// this parameter.
    pub alpha_root: u32,
    /// Round trips without a refusal after which a window may double again; 0: never, as in the
    /// reference.
    pub theta: u32,
    pub loss: LossLaw,
    /// The type of Weir's tags; hosts leave tags of other types alone.
    pub cc_type: u32,
    /// The protocol identifier of a tag.
    pub tpid: u16,
    /// Assume that the ports support CAQM. Otherwise a connection asks in its handshake whether a
    /// port on its path supports CAQM, and uses Reno if no port answers. Ports of other
    /// implementations do not answer.
    pub trusts_path: bool,
    pub negotiation: Negotiation,
}

/// The effect of a loss on the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossLaw {
    /// The window stays if a port refused a request within the last round trips, and is halved
    /// otherwise. A connection without any refusal so far uses Reno.
    Announced,
    /// Every loss halves the window, whatever the ports answered, as in the reference. A timeout
    /// leaves `min_cwnd`.
    Reference,
}

/// How the ends of a connection learn that both support CAQM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Negotiation {
    /// By an experimental option of TCP, by which the end also asks the ports on the path.
    Option,
    /// By two of TCP's reserved bits, as in the reference kernel. The ends do not ask the ports.
    Bits,
    /// An end offers in both ways, and answers an option by an option.
    Both,
}

impl LossLaw {
    const ALL: [Self; 2] = [Self::Announced, Self::Reference];

    fn name(self) -> &'static str {
        match self {
            Self::Announced => "announced",
            Self::Reference => "reference",
        }
    }
}

impl Negotiation {
    const ALL: [Self; 3] = [Self::Option, Self::Bits, Self::Both];

    fn name(self) -> &'static str {
        match self {
            Self::Option => "option",
            Self::Bits => "bits",
            Self::Both => "both",
        }
    }

    /// NEGOTIATE_OPTION and NEGOTIATE_BITS of bpf/caqm_flow.h.
    fn number(self) -> u32 {
        match self {
            Self::Option => 1,
            Self::Bits => 2,
            Self::Both => 3,
        }
    }
}

impl Default for Network {
    /// The defaults of `cc` and `wire`.
    fn default() -> Self {
        Self {
            alpha: 8,
            beta: 512,
            min_cwnd: 1,
            max_cwnd: 1 << 20,
            mtu_unit: 1024,
            data_hint_unit: 8,
            ack_hint_unit: 64,
            rtt_standard: Span::from_micros(200),
            alpha_root: 28,
            theta: 10,
            loss: LossLaw::Announced,
            cc_type: 0,
            tpid: 0x88a8,
            trusts_path: false,
            negotiation: Negotiation::Option,
        }
    }
}

impl Network {
    /// Checks the core's bounds (crates/cc/core/caqm.h) and the limits of the kernel's offloads.
    pub fn check(&self) -> Result<(), AccelError> {
        let refuse = |name, advice| Err(AccelError::Tunable { name, advice });
        let within = |value: u32, least: u32, most: u32| (least..=most).contains(&value);
        if !within(self.alpha, 1, 32_767) {
            return refuse("alpha", "1 to 32767 eighths of mtu_unit in a round trip; 8 is usual");
        }
        if self.theta > 1000 {
            return refuse("theta", "0 to 1000 round trips; 10 is usual, and 0 is never");
        }
        if !within(self.alpha_root, 0, 64) {
            return refuse(
                "alpha_root",
                "0 to 64 eighths of mtu_unit in a round trip by the root of a window; 28 is usual, and 0 is alpha alone",
            );
        }
        if !within(self.beta, 1, 65_536) {
            return refuse("beta", "1 to 65536 bytes; 512 is usual");
        }
        if !within(self.min_cwnd, 1, 1024) {
            return refuse("min_cwnd", "1 to 1024 segments; 1 is usual");
        }
        if !within(self.max_cwnd, self.min_cwnd, 1 << 20) {
            return refuse("max_cwnd", "min_cwnd to 1048576 segments");
        }
        if !within(self.mtu_unit, 64, 9000) {
            return refuse("mtu_unit", "64 to 9000 bytes; 1024 is usual");
        }
        if !within(self.data_hint_unit, 1, 1024) {
            return refuse("data_hint_unit", "1 to 1024 bytes; 8 is usual");
        }
        if !within(self.ack_hint_unit, 1, 1024) {
            return refuse("ack_hint_unit", "1 to 1024 bytes; 64 is usual");
        }
        let (least, most) = (Span::from_micros(1), Span::from_secs(1));
        if self.rtt_standard < least || self.rtt_standard > most {
            return refuse("rtt_standard", "1us to 1s; the round trip of the network at rest");
        }
        if self.cc_type > 7 {
            return refuse("cc_type", "0 to 7: it has three bits; 0 is CAQM");
        }
        if !matches!(self.tpid, 0x8100 | 0x88a8) {
            return refuse(
                "tpid",
                "0x88a8, or 0x8100 where there are no VLANs: the kernel's offloads carry no other; 0x88a8 is usual",
            );
        }
        Ok(())
    }

    /// Whether `NAME=VALUE` names one of these parameters.
    pub fn knows(text: &str) -> bool {
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        NAMES.contains(&name.trim()) || reference::knows(name)
    }

    /// Sets a parameter from `NAME=VALUE`.
    pub fn set(&mut self, text: &str) -> Result<(), AccelError> {
        let wrong = |problem: String| AccelError::Usage(format!("`{text}`: {problem}"));
        let own = reference::in_own_words(text)?;
        let (name, value) =
            own.split_once('=').ok_or_else(|| wrong("write NAME=VALUE".to_owned()))?;
        let number =
            || value.parse::<u32>().map_err(|_| wrong(format!("`{value}` is not a whole number")));
        match name {
            "alpha" => self.alpha = number()?,
            "alpha_root" => self.alpha_root = number()?,
            "beta" => self.beta = number()?,
            "min_cwnd" => self.min_cwnd = number()?,
            "max_cwnd" => self.max_cwnd = number()?,
            "mtu_unit" => self.mtu_unit = number()?,
            "data_hint_unit" => self.data_hint_unit = number()?,
            "ack_hint_unit" => self.ack_hint_unit = number()?,
            "rtt_standard" => {
                self.rtt_standard =
                    value.parse().map_err(|error: units::UnitError| wrong(error.to_string()))?;
            }
            "theta" => self.theta = number()?,
            "loss" => {
                let known = LossLaw::ALL.into_iter().find(|law| law.name() == value);
                self.loss =
                    known.ok_or_else(|| wrong("choose announced or reference".to_owned()))?;
            }
            "negotiation" => {
                let known = Negotiation::ALL.into_iter().find(|way| way.name() == value);
                self.negotiation =
                    known.ok_or_else(|| wrong("choose option, bits or both".to_owned()))?;
            }
            "debug_info" => {}
            "cc_type" => self.cc_type = number()?,
            "tpid" => {
                let digits = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"));
                self.tpid = digits
                    .and_then(|digits| u16::from_str_radix(digits, 16).ok())
                    .ok_or_else(|| wrong("write it like 0x88a8".to_owned()))?;
            }
            "trusts_path" => {
                let Switch(on) = value.parse().map_err(|_| wrong("choose on or off".to_owned()))?;
                self.trusts_path = on;
            }
            _ => {
                return Err(wrong(format!(
                    "caqm has no parameter `{name}`: choose from {}",
                    NAMES.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Names and values in the order of display.
    pub fn entries(&self) -> [(&'static str, String); NAMES.len()] {
        let values = [
            self.alpha.to_string(),
            self.alpha_root.to_string(),
            self.beta.to_string(),
            self.min_cwnd.to_string(),
            self.max_cwnd.to_string(),
            self.mtu_unit.to_string(),
            self.data_hint_unit.to_string(),
            self.ack_hint_unit.to_string(),
            self.rtt_standard.to_string(),
            self.theta.to_string(),
            self.loss.name().to_owned(),
            self.cc_type.to_string(),
            format!("{:#06x}", self.tpid),
            u8::from(self.trusts_path).to_string(),
            self.negotiation.name().to_owned(),
        ];
        let mut values = values.into_iter();
        NAMES.map(|name| (name, values.next().unwrap_or_default()))
    }

    /// `struct caqm_settings` of bpf/caqm_flow.h.
    pub(crate) fn to_bytes(self, algorithm: &str) -> [u8; NETWORK_BYTES] {
        let words = [
            self.alpha,
            self.beta,
            self.min_cwnd,
            self.max_cwnd,
            self.mtu_unit,
            self.data_hint_unit,
            self.ack_hint_unit,
            (self.rtt_standard.nanos() / 1000) as u32,
            self.alpha_root,
            self.theta,
            u32::from(self.loss == LossLaw::Reference),
            self.tpid.into(),
            self.cc_type,
            self.trusts_path.into(),
            self.negotiation.number(),
        ];
        let mut bytes = [0; NETWORK_BYTES];
        for (slot, word) in bytes.chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_ne_bytes());
        }
        let name = &algorithm.as_bytes()[..algorithm.len().min(NAME_ROOM - 1)];
        bytes[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; NETWORK_BYTES]) -> Self {
        let word = |index: usize| {
            let word = bytes[4 * index..].first_chunk().copied().unwrap_or_default();
            u32::from_ne_bytes(word)
        };
        Self {
            alpha: word(0),
            beta: word(1),
            min_cwnd: word(2),
            max_cwnd: word(3),
            mtu_unit: word(4),
            data_hint_unit: word(5),
            ack_hint_unit: word(6),
            rtt_standard: Span::from_micros(word(7).into()),
            alpha_root: word(8),
            theta: word(9),
            loss: if word(10) == 0 { LossLaw::Announced } else { LossLaw::Reference },
            tpid: word(11) as u16,
            cc_type: word(12),
            trusts_path: word(13) != 0,
            negotiation: Negotiation::ALL
                .into_iter()
                .find(|way| way.number() == word(14))
                .unwrap_or(Negotiation::Option),
        }
    }
}

const NAMES: [&str; 15] = [
    "alpha",
    "alpha_root",
    "beta",
    "min_cwnd",
    "max_cwnd",
    "mtu_unit",
    "data_hint_unit",
    "ack_hint_unit",
    "rtt_standard",
    "theta",
    "loss",
    "cc_type",
    "tpid",
    "trusts_path",
    "negotiation",
];
const NAME_AT: usize = 60;
const NAME_ROOM: usize = 16;
pub(crate) const NETWORK_BYTES: usize = NAME_AT + NAME_ROOM;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_set_shown_and_stored_by_its_name() {
        let mut network = Network::default();
        for text in [
            "alpha=16",
            "alpha_root=12",
            "beta=1024",
            "min_cwnd=2",
            "max_cwnd=4096",
            "mtu_unit=1448",
            "data_hint_unit=16",
            "ack_hint_unit=128",
            "rtt_standard=8ms",
            "theta=0",
            "loss=reference",
            "cc_type=1",
            "tpid=0x8100",
            "trusts_path=1",
            "negotiation=both",
        ] {
            assert!(Network::knows(text));
            network.set(text).unwrap();
            let (name, value) = text.split_once('=').unwrap();
            assert!(network.entries().contains(&(name, value.to_owned())), "{text}");
        }
        network.check().unwrap();
        assert_eq!(Network::from_bytes(&network.to_bytes("caqm")), network);
        assert_eq!(&network.to_bytes("caqm")[NAME_AT..NAME_AT + 5], b"caqm\0");
        assert!(!Network::knows("init_cwnd=9"));
    }

    #[test]
    fn an_impossible_value_is_reported() {
        for text in [
            "alpha=0",
            "alpha=32768",
            "theta=1001",
            "alpha_root=65",
            "beta=0",
            "min_cwnd=0",
            "max_cwnd=0",
            "mtu_unit=63",
            "mtu_unit=9001",
            "data_hint_unit=0",
            "ack_hint_unit=1025",
            "rtt_standard=2s",
            "cc_type=8",
            "tpid=0x0800",
        ] {
            let mut network = Network::default();
            network.set(text).unwrap();
            let error = network.check().unwrap_err().to_string();
            assert!(error.contains(text.split_once('=').unwrap().0), "{error}");
        }
        for text in ["loss=tcp", "negotiation=bit", "theta=-1"] {
            assert!(Network::default().set(text).is_err(), "{text}");
        }
        let error = Network::default().set("tpid=88a8").unwrap_err().to_string();
        assert!(error.contains("0x88a8"), "{error}");
    }
}
