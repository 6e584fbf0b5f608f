//! Frequencies of the cores (Documentation/admin-guide/pm/cpufreq.rst), where the system controls
//! them; virtual machines usually do not.

use crate::tree::Tree;

/// Frequencies in kilohertz, as in sysfs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frequency {
    pub now_khz: Option<u64>,
    /// The hardware's limit.
    pub most_khz: Option<u64>,
    /// The administrator's limit.
    pub limit_khz: Option<u64>,
    pub governor: Option<String>,
}

/// Reads the frequency of a core; returns `None` if the system does not control it.
pub fn of(tree: &Tree, core: usize) -> Option<Frequency> {
    let directory = format!("/sys/devices/system/cpu/cpu{core}/cpufreq");
    let number = |name: &str| tree.number(&format!("{directory}/{name}"));
    let frequency = Frequency {
        now_khz: number("scaling_cur_freq").or_else(|| number("cpuinfo_cur_freq")),
        most_khz: number("cpuinfo_max_freq"),
        limit_khz: number("scaling_max_freq"),
        governor: tree.line(&format!("{directory}/scaling_governor")),
    };
    (frequency != Frequency::default()).then_some(frequency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_frequency_control_has_no_frequency() {
        assert_eq!(of(&Tree::at("/nowhere"), 0), None);
    }
}
