//! The settings of openEuler's kernel by their `sysctl` names, and Weir's parameters for them.

use super::CaqmStatus;
use crate::AccelError;
use crate::table::left_table;
use serde_json::{Value, json};
use std::borrow::Cow;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReferenceSetting {
    /// The name without its prefix `net.core.sysctl_caqm_`.
    pub name: &'static str,
    pub usual: &'static str,
    /// Weir's key; empty if Weir has no such parameter.
    pub key: &'static str,
    pub how: &'static str,
}

/// The settings in the order of openEuler's table.
pub const SETTINGS: [ReferenceSetting; 12] = [
    setting("cc_type", "0", "cc_type", "the same"),
    setting(
        "debug_info",
        "10",
        "",
        "accepted without effect: `weir accel status` shows the counters",
    ),
    setting("alpha_fx_8", "8", "alpha", "the same, in eighths"),
    setting("beta", "512", "beta", "the same, up to 65536"),
    setting("min_cwnd", "1", "min_cwnd", "the same, up to 1024"),
    setting("tpid", "-", "tpid", "a number; 0x88a8 and 0x8100 alone, as offloads carry no other"),
    setting("mtu_unit", "1024", "mtu_unit", "the same"),
    setting("data_hint_unit", "8", "data_hint_unit", "the same"),
    setting("ack_hint_unit", "64", "ack_hint_unit", "the same"),
    setting("enable", "0", "", "rules: `weir accel enable caqm` and `disable caqm`"),
    setting(
        "filter_nics",
        "0",
        "",
        "a bitmap of interface numbers: in [caqm] of a policy; `set` names the interfaces instead",
    ),
    setting("rtt_standard", "1600", "rtt_standard", "in eighths of a microsecond there"),
];

/// Weir's further parameters, each with the value that gives the behaviour of the reference.
const MORE: [(&str, &str); 6] = [
    ("alpha_root", "growth by the root of the window; 0 as openEuler"),
    ("theta", "round trips without refusal until the window may double again; 0 as openEuler"),
    ("loss", "reference: every loss halves the window, as openEuler"),
    ("max_cwnd", "openEuler has no limit"),
    ("negotiation", "bits as openEuler"),
    ("trusts_path", "connections by an option: on treats all ports as if they had answered"),
];

const fn setting(
    name: &'static str,
    usual: &'static str,
    key: &'static str,
    how: &'static str,
) -> ReferenceSetting {
    ReferenceSetting { name, usual, key, how }
}

pub fn list_to_json(status: &CaqmStatus) -> Value {
    let row = |setting: &ReferenceSetting| {
        json!({
            "reference": full_name(setting),
            "key": Some(setting.key).filter(|key| !key.is_empty()),
            "reference_default": Some(setting.usual).filter(|usual| *usual != "-"),
            "value": value_of(setting, status),
            "how": setting.how,
        })
    };
    let more = MORE.iter().map(|(key, how)| {
        json!({
            "reference": null,
            "key": key,
            "reference_default": null,
            "value": value_of_key(key, status),
            "how": how,
        })
    });
    SETTINGS.iter().map(row).chain(more).collect()
}

pub fn list_to_text(status: &CaqmStatus) -> String {
    let known = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let heads = ["name in openEuler", "default there", "key", "value", "how"].map(str::to_owned);
    let mut rows = vec![heads];
    rows.extend(SETTINGS.iter().map(|setting| {
        [
            full_name(setting),
            setting.usual.to_owned(),
            if setting.key.is_empty() { "-" } else { setting.key }.to_owned(),
            known(value_of(setting, status)),
            setting.how.to_owned(),
        ]
    }));
    rows.extend(MORE.iter().map(|(key, how)| {
        ["-", "-", key, &known(value_of_key(key, status)), how].map(str::to_owned)
    }));
    left_table(&rows, usize::MAX)
}

fn full_name(setting: &ReferenceSetting) -> String {
    format!("net.core.sysctl_caqm_{}", setting.name)
}

fn value_of(setting: &ReferenceSetting, status: &CaqmStatus) -> Option<String> {
    match setting.name {
        "enable" => Some(u8::from(!status.is_off()).to_string()),
        "filter_nics" => {
            let named = status.interfaces.iter().flatten().map(ToString::to_string);
            Some(named.collect::<Vec<_>>().join(" ")).filter(|names| !names.is_empty())
        }
        _ => value_of_key(setting.key, status),
    }
}

fn value_of_key(key: &str, status: &CaqmStatus) -> Option<String> {
    let entries = status.plan.network.entries();
    entries.into_iter().find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// Whether the text names a setting of openEuler's kernel.
pub(super) fn knows(name: &str) -> bool {
    stripped(name.trim()).is_some()
        || ["alpha_fx_8", "debug_info", "filter_nics"].contains(&name.trim())
}

/// Converts `NAME=VALUE` of the reference to Weir's key and unit.
pub(super) fn in_own_words(text: &str) -> Result<Cow<'_, str>, AccelError> {
    let Some((name, value)) = text.split_once('=') else { return Ok(text.into()) };
    let (name, value) = (name.trim(), value.trim());
    let refuse = |problem: String| Err(AccelError::Usage(format!("`{text}`: {problem}")));
    match (stripped(name), name) {
        (Some("rtt_standard"), _) => match value.parse::<u64>() {
            // The reference counts in eighths of a microsecond, Weir in whole microseconds.
            Ok(eighths) => Ok(format!("rtt_standard={}us", eighths.div_ceil(8)).into()),
            Err(_) => refuse("write a number of eighths of a microsecond; 1600 is usual".to_owned()),
        },
        (Some("tpid"), _) => match value.parse::<u16>() {
            Ok(number) => Ok(format!("tpid={number:#06x}").into()),
            Err(_) => Ok(format!("tpid={value}").into()),
        },
        (Some("enable"), _) => refuse(
            "rules turn CAQM on and off: `weir accel enable caqm --all --interface eth0`, `weir accel disable caqm`"
                .to_owned(),
        ),
        (Some("filter_nics"), _) | (None, "filter_nics") => refuse(filter_advice(value)),
        (Some("alpha_fx_8"), _) | (None, "alpha_fx_8") => Ok(format!("alpha={value}").into()),
        (Some("debug_info"), _) | (None, "debug_info") => match value.parse::<u32>() {
            Ok(_) => Ok("debug_info=".into()),
            Err(_) => refuse("write a whole number; Weir ignores the value".to_owned()),
        },
        (Some(known), _) if SETTINGS.iter().any(|one| one.name == known) => {
            Ok(format!("{known}={value}").into())
        }
        (Some(_), _) => {
            let known = SETTINGS.map(|one| one.name).join(", ");
            refuse(format!("the reference kernel has no such setting: choose from {known}"))
        }
        (None, _) => Ok(format!("{name}={value}").into()),
    }
}

/// Returns advice that lists the interfaces of a bitmap by their numbers.
fn filter_advice(value: &str) -> String {
    let digits = value.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16));
    let bitmap = digits.unwrap_or_else(|| value.parse());
    let named = bitmap.map(|bitmap| {
        let numbers = (0..64).filter(|number| bitmap >> number & 1 == 1);
        numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
    });
    match named.as_deref() {
        Ok("") => "`weir accel disable caqm` takes CAQM from all interfaces".to_owned(),
        Ok(numbers) => format!(
            "these are the interfaces with numbers {numbers} (`ip link` shows them): name them with \
             `weir accel enable caqm --interface`"
        ),
        Err(_) => "it is a bitmap of interface numbers below 64; name interfaces with \
                   `weir accel enable caqm --interface`"
            .to_owned(),
    }
}

/// Returns the name without its prefix; `None` if the prefix is missing.
fn stripped(name: &str) -> Option<&str> {
    let name = name.strip_prefix("net.core.").unwrap_or(name);
    let name = name.strip_prefix("sysctl_").unwrap_or(name);
    name.strip_prefix("caqm_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caqm::Network;

    #[test]
    fn the_defaults_of_openeulers_caqm_are_weirs_defaults() {
        let usual = Network::default();
        for setting in SETTINGS.iter().filter(|setting| setting.usual != "-") {
            let mut network = usual;
            let text = format!("net.core.sysctl_caqm_{} = {}", setting.name, setting.usual);
            let set = network.set(&text);
            let is_refused = ["enable", "filter_nics"].contains(&setting.name);
            assert_eq!(set.is_err(), is_refused, "{text}: {set:?}");
            assert_eq!(network, usual, "{text}");
            assert!(Network::knows(&text), "{text}");
        }
    }

    #[test]
    fn each_value_of_an_openeuler_setting_is_mapped_or_refused_with_the_reason() {
        let set = |text: &str| {
            let mut network = Network::default();
            network.set(text).and_then(|()| network.check()).map(|()| network)
        };
        assert_eq!(set("caqm_alpha_fx_8=32767").unwrap().settings.alpha, 32_767);
        assert_eq!(set("alpha_fx_8=16").unwrap().settings.alpha, 16);
        let standard = set("sysctl_caqm_rtt_standard=8000").unwrap().settings.rtt_standard_us;
        assert_eq!(standard, 1000);
        assert_eq!(set("caqm_tpid=33024").unwrap().tpid, 0x8100);
        for (text, reason) in [
            ("caqm_filter_nics=6", "numbers 1, 2"),
            ("caqm_filter_nics=0x100", "numbers 8"),
            ("caqm_filter_nics=eth0", "bitmap"),
            ("caqm_enable=1", "weir accel enable caqm"),
            ("caqm_mtu_unit=9001", "64 to 9000"),
            ("caqm_speed=1", "no such setting"),
            ("caqm_tpid=34997", "0x8100"),
            ("caqm_rtt_standard=200us", "eighths"),
            ("debug_info=loud", "a whole number"),
        ] {
            let error = set(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
