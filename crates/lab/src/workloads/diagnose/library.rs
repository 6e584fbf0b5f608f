//! The faults and healthy cases that come with the program: `labs/faults`.

use crate::bench::LabFile;

/// Opens a fault by its name.
pub(crate) fn open(name: &str) -> Result<LabFile, String> {
    let Some((name, text)) = FAULTS.iter().find(|(known, _)| *known == name) else {
        let names = FAULTS.iter().map(|(name, _)| *name);
        let hint = units::did_you_mean(name, names.clone());
        let known = names.collect::<Vec<_>>().join(", ");
        return Err(format!("no fault `{name}`{hint}; there are {known}"));
    };
    LabFile::parse(&format!("labs/faults/{name}.toml"), text).map_err(|error| error.to_string())
}

/// Returns the text of a fault.
pub(super) fn text(name: &str) -> Option<&'static str> {
    FAULTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Whether the text is a built-in fault's.
pub(crate) fn has(text: &str) -> bool {
    FAULTS.iter().any(|(_, known)| *known == text)
}

macro_rules! faults {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../../labs/faults/", $name, ".toml")))),*]
    };
}

/// Each name and the text of its file.
pub(crate) const FAULTS: &[(&str, &str)] = faults![
    "shaper",
    "shaper-class",
    "shaper-ingress",
    "shaper-slow",
    "shaper-answers",
    "deep-buffer",
    "tiny-queue",
    "queue-drops",
    "loss",
    "loss-reno",
    "loss-bbr",
    "loss-no-sack",
    "loss-receiver",
    "damaged",
    "policed",
    "policed-cable",
    "small-rmem",
    "small-rmem-here",
    "tiny-rmem",
    "small-wmem",
    "no-window-scaling",
    "slow-application",
    "requests",
    "delayed-ack",
    "short-transfers",
    "idle-restart",
    "pacing",
    "route-cwnd",
    "offloads-off",
    "cpu",
    "gzip-pipe",
    "black-hole",
    "quota-sender",
    "quota-receiver",
    "quota-far",
    "hogs",
    "reordering",
    "ecn",
    "far-bottleneck",
    "bbr-bottleneck",
    "backlog",
    "descriptors",
    "never-accepts",
    "congestion-window",
    "disk",
    "test-foreign",
    "test-slow-way-back",
    "dead-path",
    "used-up-quota",
    "syn-filtered",
    "syn-loss",
    "refused",
    "rejected",
    "output-filter",
    "output-limit",
    "resets",
    "rp-filter",
    "rp-filter-here",
    "few-ports",
    "silent-neighbour",
    "no-route",
    "route-gone",
    "route-blackhole",
    "udp-buffer",
    "udp-closed",
    "fragments",
    "not-forwarding",
    "slow-names",
    "never-reads",
    "never-reads-here",
    "stopped-reader",
    "stopped-often",
    "slow-reader",
    "slow-reader-far",
    "link-flaps",
    "link-down",
    "input-filtered",
    "input-limit",
    "slow-answers",
    "never-answers",
    "reserved-ports",
    "tiny-segments",
    "slow-timeouts",
    "hung-tunnel",
    "output-datagrams",
    "bbr-window",
    "own-datagrams",
    "ecn-refused",
    "ipv6-broken",
    "small-reads",
    "remote-reads",
    "thin-way-back",
    "initcwnd",
    "one-loses",
    "healthy-idle",
    "healthy-paced",
    "healthy-ack-loss",
    "healthy-small-mtu",
    "healthy-requests",
    "healthy-connections",
    "healthy-datagrams",
    "healthy-receiver",
    "healthy-full-link",
    "pair-shaper-ports",
    "pair-shaper-filter",
    "pair-shaper-accept",
    "pair-loss-reordering",
    "pair-loss-filter",
    "pair-loss-refused",
    "pair-window-ports",
    "pair-quota-filter",
    "pair-quota-udp",
    "pair-reader-udp",
    "pair-accept-udp",
    "pair-descriptors-udp",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_a_valid_lab_and_listed_in_the_lab_of_all_faults() {
        let all =
            crate::workloads::builtin::open("faults").unwrap_or_else(|error| panic!("{error}"));
        let axis = all.axes["fault"].get_ref();
        for (name, _) in FAULTS {
            let fault = open(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(fault.name(), *name);
            let is_value = axis.iter().any(|value| value.get_ref() == name);
            assert!(is_value, "the axis `fault` of labs/faults.toml lacks {name}");
        }
        assert_eq!(axis.len(), FAULTS.len(), "the axis `fault` has a value that FAULTS lacks");
    }

    #[test]
    fn every_file_in_labs_faults_is_a_built_in_fault() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../labs/faults");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        for file in files.filter(|file| file.extension().is_some_and(|end| end == "toml")) {
            let name = file.file_stem().unwrap().to_str().unwrap();
            assert!(text(name).is_some(), "FAULTS lacks {name}, a file of labs/faults");
        }
    }
}
