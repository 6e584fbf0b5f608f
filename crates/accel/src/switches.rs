//! Switches of the kernel's TCP that a policy sets for its network namespace.

use crate::AccelError;
use crate::system::read_sysctl;
use units::Switch;

/// A switch: a policy's key, and the kernel's setting to which Weir writes the key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSwitch {
    pub key: &'static str,
    pub(crate) sysctl: &'static str,
    values: SwitchValues,
    pub(crate) effect: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SwitchValues {
    /// The kernel's value for on; off is 0.
    OnOff(u64),
    /// A number between these bounds, as the kernel writes it.
    Number(u64, u64),
    /// The factor of each further timeout: 2 doubles the timeout, 1 repeats the timeout. The
    /// kernel's values are 0 and 1.
    Factor,
}

/// All switches. Documentation/networking/ip-sysctl.rst describes the kernel's settings.
pub const SWITCHES: [KernelSwitch; 10] = [
    KernelSwitch {
        key: "rack",
        sysctl: "net.ipv4.tcp_recovery",
        values: SwitchValues::OnOff(1),
        effect: "time-based loss detection; Linux 6.17 and later always use RACK",
    },
    KernelSwitch {
        key: "tlp",
        sysctl: "net.ipv4.tcp_early_retrans",
        values: SwitchValues::OnOff(3),
        effect: "tail-loss probes",
    },
    KernelSwitch {
        key: "reordering",
        sysctl: "net.ipv4.tcp_reordering",
        values: SwitchValues::Number(1, 300),
        effect: "packets that may overtake a packet before that packet counts as lost: the first value",
    },
    KernelSwitch {
        key: "max_reordering",
        sysctl: "net.ipv4.tcp_max_reordering",
        values: SwitchValues::Number(1, 10_000),
        effect: "packets that may overtake a packet before that packet counts as lost: the largest value",
    },
    KernelSwitch {
        key: "sack",
        sysctl: "net.ipv4.tcp_sack",
        values: SwitchValues::OnOff(1),
        effect: "selective acknowledgements, of new connections",
    },
    KernelSwitch {
        key: "dsack",
        sysctl: "net.ipv4.tcp_dsack",
        values: SwitchValues::OnOff(1),
        effect: "reports of segments that arrived twice",
    },
    KernelSwitch {
        key: "frto",
        sysctl: "net.ipv4.tcp_frto",
        values: SwitchValues::OnOff(2),
        effect: "detection of spurious timeouts",
    },
    KernelSwitch {
        key: "rto_factor",
        sysctl: "net.ipv4.tcp_thin_linear_timeouts",
        values: SwitchValues::Factor,
        effect: "growth of repeated timeouts: 2, or 1 for streams with fewer than 4 packets in flight",
    },
    KernelSwitch {
        key: "mtu_probing",
        sysctl: "net.ipv4.tcp_mtu_probing",
        values: SwitchValues::Number(0, 2),
        effect: "probes of the path's MTU: 0 never, 1 after timeouts, 2 always",
    },
    KernelSwitch {
        key: "slow_start_after_idle",
        sysctl: "net.ipv4.tcp_slow_start_after_idle",
        values: SwitchValues::OnOff(1),
        effect: "for algorithms of the kernel; tcpa decides on its own",
    },
];

impl KernelSwitch {
    pub fn named(key: &str) -> Option<&'static Self> {
        SWITCHES.iter().find(|switch| switch.key == key)
    }

    pub(crate) fn parse(&self, text: &str) -> Result<u64, AccelError> {
        let wrong =
            |form: String| Err(AccelError::Usage(format!("{}={text}: write {form}", self.key)));
        match self.values {
            SwitchValues::OnOff(on) => match text.parse() {
                Ok(Switch(true)) => Ok(on),
                Ok(Switch(false)) => Ok(0),
                Err(_) => wrong("on or off".to_owned()),
            },
            SwitchValues::Number(least, most) => match text.parse() {
                Ok(value) if (least..=most).contains(&value) => Ok(value),
                _ => wrong(format!("a number from {least} to {most}")),
            },
            SwitchValues::Factor => match text {
                "2" => Ok(0),
                "1" => Ok(1),
                _ => wrong(
                    "2, which doubles each timeout, or 1 for thin streams: the kernel has no other factor"
                        .to_owned(),
                ),
            },
        }
    }

    /// Returns the text for a value of the kernel; `None` if the value has no text.
    pub(crate) fn of_kernel(&self, value: u64) -> Option<String> {
        let shown = self.shown(value);
        (self.parse(&shown).ok() == Some(value)).then_some(shown)
    }

    pub(crate) fn shown(&self, value: u64) -> String {
        match self.values {
            SwitchValues::OnOff(_) => Switch(value != 0).to_string(),
            SwitchValues::Number(..) => value.to_string(),
            SwitchValues::Factor => if value == 0 { "2" } else { "1" }.to_owned(),
        }
    }

    /// Reads the value in this network namespace; `None` if the kernel lacks the setting.
    pub(crate) fn now(&self) -> Option<String> {
        let value = read_sysctl(self.sysctl)?.split(' ').next()?.parse().ok()?;
        Some(self.shown(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_switch_prints_as_it_is_parsed() {
        for (key, texts, wrong) in [
            ("rack", ["on", "off"], "2"),
            ("tlp", ["on", "off"], "3"),
            ("reordering", ["1", "300"], "0"),
            ("rto_factor", ["1", "2"], "1.5"),
            ("mtu_probing", ["0", "2"], "3"),
        ] {
            let switch = KernelSwitch::named(key).unwrap();
            for text in texts {
                assert_eq!(switch.shown(switch.parse(text).unwrap()), text, "{key}");
            }
            let error = switch.parse(wrong).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains("write"), "{error}");
        }
        assert_eq!(KernelSwitch::named("fack"), None);
    }
}
