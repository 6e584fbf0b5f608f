//! Each cause has a file. A rule is pure: from one flow, or from the machine, the rule tells
//! whether its cause holds, and which number decides. [`TABLE`] decides which of the causes that
//! hold stand, and in which order.
//!
//! Thresholds are constants of the files. Thresholds marked "measured" were calibrated on virtual
//! machines with two cores; thresholds without the mark are starting values.

mod accept_queue;
mod application;
mod backlog;
mod black_hole;
mod bufferbloat;
mod bus;
mod clock;
mod congestion_window;
mod conntrack;
mod contention;
mod corked;
mod cpu;
mod damaged;
mod delayed_ack;
mod descriptors;
mod disk;
mod duplex;
mod ecn;
mod ecn_refused;
mod finding;
mod forwarding;
mod fragments;
mod idle_restart;
mod initial_window;
mod input_filter;
mod interface_errors;
mod ipv6_broken;
mod kernel_drops;
mod link;
mod link_down;
mod link_speed;
mod local_drops;
mod local_ports;
mod loss;
mod memory;
mod name_service;
mod neighbour;
mod no_answer;
mod no_route;
mod offloads;
mod own_datagrams;
mod pacing;
mod path;
mod pinning;
mod policer;
mod precedence;
mod queue_drops;
mod quota;
mod receiver_window;
mod refused;
mod reordering;
mod request_response;
mod resets;
mod reverse_path;
mod route_limits;
mod send_buffer;
mod settle;
mod shaper;
mod short_connections;
mod slow_answers;
mod slow_reader;
mod slow_timeouts;
mod small_segments;
mod socket_memory;
mod softirq_core;
mod steal;
mod stopped;
mod test_failed;
mod time_exceeded;
mod tunnel_program;
mod udp_buffer;
mod udp_port;
mod way_back;
mod window_scaling;

#[cfg(test)]
pub(crate) mod sketch;

pub use finding::{Advice, Evidence, Finding, Outcome};
pub(crate) use precedence::of as row_of;
pub use precedence::{Row, TABLE};
pub(crate) use settle::{Answer, settled};

use crate::view::{Flow, View};

/// A cause and the functions that look for it.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its stable name, in `--json` and in labs.
    pub cause: &'static str,
    /// The same in words, for the list of causes that are ruled out.
    pub words: &'static str,
    pub flow: Option<fn(&Flow<'_>, &View<'_>) -> Outcome>,
    pub machine: Option<fn(&View<'_>) -> Outcome>,
}

impl Rule {
    const fn new(cause: &'static str, words: &'static str) -> Self {
        Self { cause, words, flow: None, machine: None }
    }

    const fn flow(self, judge: fn(&Flow<'_>, &View<'_>) -> Outcome) -> Self {
        Self { flow: Some(judge), ..self }
    }

    const fn machine(self, judge: fn(&View<'_>) -> Outcome) -> Self {
        Self { machine: Some(judge), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    /// Files of the folder that are no rules.
    const NO_RULES: [&str; 4] = ["finding", "precedence", "settle", "sketch"];
    /// Types that every rule may import.
    const WORDS: [&str; 5] = ["Advice", "Evidence", "Finding", "Outcome", "Rule"];

    fn name(file: &Path) -> String {
        file.file_stem().unwrap().to_string_lossy().into_owned()
    }

    /// The files of the rules and of their parts.
    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let files = files.into_iter().filter(|file| !NO_RULES.contains(&name(file).as_str()));
        files.chain(folders.iter().flat_map(|folder| self::files(folder))).collect()
    }

    #[test]
    fn no_rule_imports_a_rule() {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rules");
        let files = files(&rules);
        assert!(files.len() > 60, "{}", files.len());
        for file in &files {
            let text = std::fs::read_to_string(file).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap();
            let used = text.split("super::").skip(1).map(|rest| {
                let end = rest.find(';').unwrap_or(rest.len());
                rest[..end].trim_start_matches('{').trim_end_matches('}').to_owned()
            });
            for word in used.flat_map(|used| {
                used.split(',').map(|word| word.trim().to_owned()).collect::<Vec<_>>()
            }) {
                assert!(word.is_empty() || WORDS.contains(&word.as_str()), "{file:?}: {word}");
            }
            assert!(!text.contains("crate::rules"), "{file:?}");
        }
    }
}
