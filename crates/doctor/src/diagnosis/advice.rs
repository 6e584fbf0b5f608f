//! Fills in the names of one connection: replaces "the far end", `DEV` and `PID` in the advice of a
//! rule by the address, the interface and the process. Adds the present values of settings.

use crate::recording::Origin;
use crate::rules::Finding;
use crate::view::{End, Flow, View};
use std::net::IpAddr;

/// Rewrites the sentences of a rule, which are about the observed machine, to name the sender of
/// the capture.
pub(super) fn of_capture(finding: &mut Finding) {
    let texts = finding.evidence.iter_mut().flat_map(|one| [&mut one.signal, &mut one.value]);
    let actions = finding
        .advice
        .iter_mut()
        .flat_map(|advice| advice.limits.iter_mut().chain([&mut advice.action]));
    for text in texts.chain(actions).chain(&mut finding.against).chain([&mut finding.sentence]) {
        for (here, there) in CAPTURED {
            if text.contains(here) {
                *text = text.replace(here, there);
            }
        }
    }
}

/// Names the machine, the interface, the program and the settings in all advice of a finding.
pub(super) fn name(finding: &mut Finding, flow: Option<&Flow<'_>>, view: &View<'_>) {
    let is_captured = view.recording.origin == Origin::Captured;
    if is_captured {
        of_capture(finding);
    }
    for advice in &mut finding.advice {
        advice.commands.retain(|command| !changes_nothing(command, view));
        if let Some(flow) = flow {
            advice.action = programs(&advice.action, flow);
        }
        for command in &mut advice.commands {
            if let Some(flow) = flow {
                *command = places(command, flow);
            }
            if is_captured
                && CHANGES.iter().any(|word| command.starts_with(word))
                && !command.contains("(on ")
                && let Some(flow) = flow
            {
                command.push_str(&format!("   (on {})", flow.addresses().0.ip()));
            }
            if let Some(larger) = enlarged(command, view) {
                *command = larger;
            }
            if let Some(values) = present(command, view) {
                command.push_str(&format!("   (now {values})"));
            }
        }
    }
}

fn programs(text: &str, flow: &Flow<'_>) -> String {
    let (from, to) = flow.addresses();
    let named = |end: &Option<End<'_>>, words: &str, ip: IpAddr| match end {
        Some(end) if !end.last().holders.is_empty() => end.name(),
        Some(_) => words.to_owned(),
        None => format!("{words} on {ip}"),
    };
    text.replace(RECEIVING, &named(&flow.receiver, RECEIVING, to.ip()))
        .replace(SENDING, &named(&flow.sender, SENDING, from.ip()))
}

fn places(command: &str, flow: &Flow<'_>) -> String {
    let (from, to) = flow.addresses();
    let far = flow.end().last().remote.ip();
    let mut command = command.to_owned();
    if !flow.is_inside() {
        for words in FAR {
            command = command.replace(&format!("(on {words}"), &format!("(on {far}"));
        }
    }
    command = command.replace("(on the receiver", &format!("(on {}", to.ip()));
    command = command.replace("(on the sender", &format!("(on {}", from.ip()));
    if let Some(interface) = flow.interface() {
        command = token(&command, "DEV", interface);
    }
    if let Some(pid) = flow.end().pids().find(|pid| *pid != 0) {
        command = token(&command, "PID", &pid.to_string());
    }
    token(&command, "HOST", &far.to_string())
}

/// Replaces whole words: no letter, digit, hyphen or underscore is next to them.
fn token(text: &str, word: &str, by: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let is_word = !before.ends_with(is_part) && !after.starts_with(is_part);
        out.push_str(before);
        out.push_str(if is_word { by } else { word });
        rest = after;
    }
    out + rest
}

/// Whether this machine's settings have the values already that the command sets.
fn changes_nothing(command: &str, view: &View<'_>) -> bool {
    let settings = command.strip_prefix("sysctl -w ").filter(|rest| !rest.contains(['(', '\'']));
    let is_set = |word: &str| {
        word.split_once('=').is_some_and(|(name, value)| view.sysctl(name) == Some(value))
    };
    settings.is_some_and(|settings| settings.split(' ').all(is_set))
}

/// Returns the command with twice the present value of each setting of [`ENLARGED`] that has the
/// advised value already, so that no command makes a limit smaller. `None` for another command.
fn enlarged(command: &str, view: &View<'_>) -> Option<String> {
    let settings = command.strip_prefix("sysctl -w ").filter(|rest| !rest.contains("(on "))?;
    let twice = |word: &str| {
        let (name, value) = word.split_once('=').filter(|(name, _)| ENLARGED.contains(name))?;
        let (advised, now): (u64, u64) = (value.parse().ok()?, view.sysctl(name)?.parse().ok()?);
        let larger = now.saturating_mul(2).min(MOST_NUMBER);
        (now >= advised).then(|| format!("{name}={larger}"))
    };
    let words = settings.split(' ').map(|word| twice(word).unwrap_or_else(|| word.to_owned()));
    Some(format!("sysctl -w {}", words.collect::<Vec<_>>().join(" ")))
}

/// Returns the present values of the settings that the command changes on this machine.
fn present(command: &str, view: &View<'_>) -> Option<String> {
    let settings = command.strip_prefix("sysctl -w ")?;
    if settings.contains("(on ") {
        return None;
    }
    let names = settings.split(' ').filter_map(|word| Some(word.split_once('=')?.0));
    let values: Vec<&str> = names.filter_map(|name| view.sysctl(name)).collect();
    (!values.is_empty()).then(|| values.join("; "))
}

/// Settings of one number for which advice names a larger value.
const ENLARGED: [&str; 7] = [
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.ipv4.neigh.default.gc_thresh3",
    "net.ipv4.tcp_max_syn_backlog",
];
/// The largest value of these settings in the kernel.
const MOST_NUMBER: u64 = i32::MAX as u64;
const RECEIVING: &str = "the receiving program";
const SENDING: &str = "the sending program";
/// Phrases about the observed machine, and their replacements for a capture.
const CAPTURED: [(&str, &str); 5] = [
    ("a bottleneck beyond this machine", "a bottleneck on the path"),
    ("attempts of this machine", "attempts"),
    ("by this machine", "by the client"),
    ("this machine has sent", "the client has sent"),
    ("of this machine", "of the sender"),
];
/// The beginnings of commands that change one machine: a capture does not show which machine.
const CHANGES: [&str; 5] = ["sysctl ", "tc ", "ip ", "ethtool ", "nft "];
const FAR: [&str; 4] = ["the far end", "the other end", "the peer", "that end"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Question;
    use crate::diagnosis::diagnose;
    use crate::rules::sketch::Sketch;
    use units::{Bytes, Span};

    fn advice(sketch: Sketch) -> (String, Vec<String>) {
        let sketch = sketch
            .machine(|machine| {
                let setting = ("net.ipv4.tcp_rmem".to_owned(), "4096 131072 212992".to_owned());
                machine.sysctls.extend([setting]);
            })
            .tcp(|at, tcp| {
                tcp.window_limited = Some(Span::from_millis(900 * at));
                tcp.peer_window = Some(Bytes::new(32_768));
                tcp.bytes_acked = Some(Bytes::new(at * 1_600_000));
            });
        let diagnosis = diagnose(sketch.recording(), Question::Flow);
        assert_eq!(diagnosis.verdict.cause, Some("receiver-window"));
        let advice = &diagnosis.periods[0].flows[0].causes[0].finding.advice[0];
        (advice.action.clone(), advice.commands.clone())
    }

    #[test]
    fn advice_for_a_far_receiver_names_its_host_and_no_value_of_this_machine() {
        let (action, commands) = advice(Sketch::new());
        assert!(action.contains("the receiving program on 10.0.0.2"), "{action}");
        assert!(commands[0].ends_with("   (on 10.0.0.2)"), "{commands:?}");
    }

    #[test]
    fn advice_for_a_local_receiver_names_its_process_and_the_present_value() {
        let (action, commands) = advice(Sketch::new().with_receiver(|_, _| {}));
        assert!(action.contains("reader (process 8)"), "{action}");
        assert!(commands[0].ends_with("   (now 4096 131072 212992)"), "{commands:?}");
    }

    #[test]
    fn advice_for_a_larger_limit_exceeds_the_present_value() {
        let advised = |now: &str| {
            let sketch = Sketch::idle().counter("UdpRcvbufErrors", 500).machine(|machine| {
                machine.sysctls.insert("net.core.rmem_max".to_owned(), now.to_owned());
            });
            let diagnosis = diagnose(sketch.recording(), Question::Machine);
            assert_eq!(diagnosis.verdict.cause, Some("udp-buffer"));
            diagnosis.periods[0].machine[0].finding.advice[0].commands[0].clone()
        };
        let command =
            |value: u64, now: &str| format!("sysctl -w net.core.rmem_max={value}   (now {now})");
        assert_eq!(advised("212992"), command(8_388_608, "212992"));
        assert_eq!(advised("16777216"), command(33_554_432, "16777216"));
        assert_eq!(advised("2147483647"), command(MOST_NUMBER, "2147483647"));
        assert_eq!(advised("many"), command(8_388_608, "many"));
    }

    #[test]
    fn a_command_that_changes_no_setting_is_left_out() {
        let advised = |now: &str| {
            let sketch = Sketch::closed_window()
                .tcp(|at, tcp| tcp.bytes_acked = Some(Bytes::new(at * 1_600_000)))
                .with_receiver(|_, _| {})
                .machine(|machine| {
                    let name = "net.ipv4.tcp_moderate_rcvbuf".to_owned();
                    machine.sysctls.insert(name, now.to_owned());
                });
            let diagnosis = diagnose(sketch.recording(), Question::Flow);
            assert_eq!(diagnosis.verdict.cause, Some("receiver-window"));
            let advice = diagnosis.periods[0].flows[0].causes[0].finding.advice.iter();
            advice.flat_map(|one| one.commands.clone()).collect::<Vec<_>>().join("\n")
        };
        assert!(!advised("1").contains("moderate_rcvbuf"), "{}", advised("1"));
        assert!(advised("0").contains("moderate_rcvbuf=1   (now 0)"), "{}", advised("0"));
    }

    #[test]
    fn only_whole_words_are_replaced() {
        assert_eq!(
            token("tc dev DEV; DEVICE HOST-X DEV", "DEV", "eth0"),
            "tc dev eth0; DEVICE HOST-X eth0"
        );
        assert_eq!(token("HOST HOST-ON", "HOST", "h"), "h HOST-ON");
    }
}
