//! The parameters that all hosts and ports of a network share.

use super::reference;
use crate::AccelError;
use cc::caqm::{CaqmParameter, CaqmSettings};
use std::ops::RangeInclusive;
use units::{Span, Switch};

/// The parameters of a network, named as in the reference kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    pub settings: CaqmSettings,
    /// The type of Weir's tags; hosts leave tags of other types alone.
    pub cc_type: u32,
    /// The protocol identifier of a tag.
    pub tpid: u16,
    /// Whether hosts assume that the ports support CAQM. Otherwise a connection asks in its
    /// handshake whether a port on its path supports CAQM, and uses Reno if no port answers. Ports
    /// of other implementations do not answer.
    pub trusts_path: bool,
    pub negotiation: Negotiation,
}

/// How the ends of a connection learn that both support CAQM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Negotiation {
    /// The ends use an experimental option of TCP, which also asks the ports on the path.
    Option,
    /// The ends use two of TCP's reserved bits, as in the reference kernel, and do not ask the
    /// ports.
    Bits,
    /// The ends offer an option and bits, and answer an offer by option with an option.
    Both,
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

    /// Encodes the negotiation as NEGOTIATE_OPTION and NEGOTIATE_BITS of bpf/caqm_flow.h.
    fn number(self) -> u32 {
        match self {
            Self::Option => 1,
            Self::Bits => 2,
            Self::Both => 3,
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            settings: CaqmSettings::default(),
            cc_type: 0,
            tpid: wire::caqm::TPID,
            trusts_path: false,
            negotiation: Negotiation::Option,
        }
    }
}

impl Network {
    /// Checks the bounds of `cc` and the limits of the kernel's offloads.
    pub fn check(&self) -> Result<(), AccelError> {
        for CaqmParameter { name, value, bounds } in self.settings.parameters() {
            let most = if name == "mtu_unit" { MOST_MTU_UNIT } else { *bounds.end() };
            let bounds = *bounds.start()..=most;
            if !bounds.contains(&value) {
                let advice = advice(name, &bounds).into();
                return Err(AccelError::Tunable { name, advice });
            }
        }
        let refuse =
            |name, advice: &'static str| Err(AccelError::Tunable { name, advice: advice.into() });
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

    pub fn set(&mut self, text: &str) -> Result<(), AccelError> {
        let wrong = |problem: String| AccelError::Usage(format!("`{text}`: {problem}"));
        let own = reference::in_own_words(text)?;
        let (name, value) =
            own.split_once('=').ok_or_else(|| wrong("write NAME=VALUE".to_owned()))?;
        let number =
            || value.parse::<u32>().map_err(|_| wrong(format!("`{value}` is not a whole number")));
        match name {
            "rtt_standard" => {
                let rtt = value.parse();
                let rtt = rtt.map_err(|error: units::UnitError| wrong(error.to_string()))?;
                self.settings.set_rtt_standard(rtt);
            }
            "loss" => {
                let known = CaqmSettings::LOSS_LAWS.iter().position(|law| *law == value);
                let law = known.ok_or_else(|| wrong("choose announced or reference".to_owned()))?;
                self.settings.loss_as_reference = law as u32;
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
            _ => match self.settings.parameter_mut(name) {
                Some(parameter) => *parameter = number()?,
                None => {
                    return Err(wrong(format!(
                        "caqm has no parameter `{name}`: choose from {}",
                        NAMES.join(", ")
                    )));
                }
            },
        }
        Ok(())
    }

    pub fn entries(&self) -> [(&'static str, String); NAMES.len()] {
        let mut settings = self.settings;
        NAMES.map(|name| {
            let value = match name {
                "rtt_standard" => Span::from_micros(settings.rtt_standard_us.into()).to_string(),
                "loss" => {
                    let law = usize::from(settings.loss_as_reference != 0);
                    CaqmSettings::LOSS_LAWS[law].to_owned()
                }
                "cc_type" => self.cc_type.to_string(),
                "tpid" => format!("{:#06x}", self.tpid),
                "trusts_path" => u8::from(self.trusts_path).to_string(),
                "negotiation" => self.negotiation.name().to_owned(),
                _ => settings.parameter_mut(name).map_or_else(String::new, |v| v.to_string()),
            };
            (name, value)
        })
    }

    /// Encodes the parameters as `struct caqm_settings` of bpf/caqm_flow.h.
    pub(crate) fn to_bytes(self, algorithm: &str) -> [u8; NETWORK_BYTES] {
        let own =
            [self.tpid.into(), self.cc_type, self.trusts_path.into(), self.negotiation.number()];
        let words = self.settings.to_words().into_iter().chain(own);
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
            settings: CaqmSettings::from_words(std::array::from_fn(word)),
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

/// Describes the accepted values, for an error message.
fn advice(name: &str, bounds: &RangeInclusive<u32>) -> String {
    let (least, most) = (*bounds.start(), *bounds.end());
    let mut settings = CaqmSettings::default();
    let usual = settings.parameter_mut(name).copied().unwrap_or_default();
    let (unit, zero) = match name {
        "max_cwnd" => return format!("min_cwnd to {most} segments"),
        "rtt_standard" => {
            let [least, most] = [least, most].map(|micros| Span::from_micros(micros.into()));
            return format!("{least} to {most}; the round trip of the network at rest");
        }
        "alpha" => ("eighths of mtu_unit in a round trip", ""),
        "alpha_root" => (
            "eighths of mtu_unit in a round trip by the root of a window",
            ", and 0 is alpha alone",
        ),
        "theta" => ("round trips", ", and 0 is never"),
        "min_cwnd" => ("segments", ""),
        _ => ("bytes", ""),
    };
    format!("{least} to {most} {unit}; {usual} is usual{zero}")
}

/// Maximum `mtu_unit` in bytes: the reference kernel accepts no larger unit.
const MOST_MTU_UNIT: u32 = 9000;
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
    fn every_caqm_parameter_is_set_shown_and_stored_by_its_name() {
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
    fn an_impossible_caqm_parameter_is_reported() {
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
            "rtt_standard=1.0000005s",
            "cc_type=8",
            "tpid=0x0800",
        ] {
            let mut network = Network::default();
            network.set(text).unwrap();
            let error = network.check().unwrap_err().to_string();
            assert!(error.contains(text.split_once('=').unwrap().0), "{error}");
        }
        for (text, expected) in [
            (
                "alpha=0",
                "alpha cannot have that value: 1 to 32767 eighths of mtu_unit in a round trip; 8 is usual",
            ),
            (
                "theta=1001",
                "theta cannot have that value: 0 to 1000 round trips; 10 is usual, and 0 is never",
            ),
            ("max_cwnd=0", "max_cwnd cannot have that value: min_cwnd to 1048576 segments"),
            ("mtu_unit=9001", "mtu_unit cannot have that value: 64 to 9000 bytes; 1024 is usual"),
            (
                "rtt_standard=2s",
                "rtt_standard cannot have that value: 1us to 1s; the round trip of the network at rest",
            ),
        ] {
            let mut network = Network::default();
            network.set(text).unwrap();
            assert_eq!(network.check().unwrap_err().to_string(), expected);
        }
        for text in ["loss=tcp", "negotiation=bit", "theta=-1"] {
            assert!(Network::default().set(text).is_err(), "{text}");
        }
        let error = Network::default().set("tpid=88a8").unwrap_err().to_string();
        assert!(error.contains("0x88a8"), "{error}");
    }
}
