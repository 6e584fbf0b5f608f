//! All local ports for one destination are in use, or reserved: connect(2) fails with
//! EADDRNOTAVAIL.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Refusal;
use crate::view::View;
use crate::words::percent;
use std::net::IpAddr;

pub(super) const RULE: Rule = Rule::new("local-ports", "used-up local ports").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    let range = (0..2).map(|column| view.sysctl_number(RANGE, column)).collect::<Option<Vec<_>>>();
    let Some([least, most]) = range.as_deref() else {
        return Outcome::not_seen("the range of local ports");
    };
    let all = most.saturating_add(1).saturating_sub(*least).max(1);
    let reserved = reserved(view.sysctl(RESERVED).unwrap_or_default(), *least, *most);
    if reserved >= all {
        return none_is_left(*least, *most);
    }
    let size = all - reserved;
    let Some(worst) = &view.last().busiest_remote else {
        return Outcome::ruled_out(format!("none of the {size} local ports is in use"));
    };
    let free_again = if is_reused(view, worst.remote.ip(), size) { worst.time_wait } else { 0 };
    let ports = worst.ports.saturating_sub(free_again);
    let share = ports as f64 / size as f64;
    let failed = view.period.attempt.as_ref().is_some_and(|a| a.refusal == Some(Refusal::NoPort));
    if share < NEAR && !failed {
        return Outcome::ruled_out(format!(
            "at most {ports} of the {size} local ports are in use for one destination"
        ));
    }
    let waits = (worst.time_wait - free_again) as f64 / ports.max(1) as f64;
    // The kernel searches an even number of ports (net/ipv4/inet_hashtables.c).
    let used_up = share >= USED_UP || ports >= size & !1;
    let mut finding = Finding::new(format!(
        "local ports are used up: {ports} of {size} are in use for {}, so that new connections fail with \"cannot assign requested address\"",
        worst.remote
    ))
    .seen_from("ports in use for that destination, of the usual range", percent(share), percent(NEAR))
    .seen("ports in TIME_WAIT, of those in use", percent(waits))
    .seen(RANGE, format!("{least} {most}"))
    .seen_if("ports of it that are reserved", (reserved > 0).then(|| reserved.to_string()));
    // Ports in TIME_WAIT stay in use for 60 s (TCP_TIMEWAIT_LEN).
    if waits >= HALF
        && view.sysctl(REUSE).is_some_and(|value| value != "1")
        && may_reuse(view, size)
    {
        finding = finding.advise(
            Advice::new("Let new connections use ports in TIME_WAIT again")
                .run(format!("sysctl -w {REUSE}=1"))
                .not("It needs timestamps (net.ipv4.tcp_timestamps) at both ends"),
        );
    }
    let is_widest = *least <= LEAST_PORT && *most >= MOST_PORT;
    let keep = match is_widest {
        true => Advice::new("Keep connections open and use them again"),
        false => Advice::new("Keep connections open and use them again, or widen the range")
            .run(format!("sysctl -w {RANGE}='{LEAST_PORT} {MOST_PORT}'")),
    };
    finding = finding.advise(
        keep.run(format!("sysctl {RESERVED}"))
            .not("More memory or descriptors do not help; more addresses at either end do"),
    );
    if used_up || failed { finding.limits() } else { finding }.holds()
}

/// Whether new connections get the ports in TIME_WAIT (`tcp_twsk_unique`): the kernel gives a port
/// out again after a second. A program that opens connections so fast that all ports are younger
/// gets none.
fn is_reused(view: &View<'_>, remote: IpAddr, size: u64) -> bool {
    let is_allowed = match view.sysctl(REUSE) {
        Some("1") => true,
        Some("2") => remote.to_canonical().is_loopback(),
        _ => false,
    };
    is_allowed && may_reuse(view, size)
}

/// Whether ports in TIME_WAIT would help new connections: connections have timestamps, and most of
/// the `size` ports are older than a second.
fn may_reuse(view: &View<'_>, size: u64) -> bool {
    let has_stamps = view.sysctl("net.ipv4.tcp_timestamps").is_none_or(|value| value != "0");
    let opened = view.counter("TcpActiveOpens").unwrap_or(0) as f64;
    let per_second = opened / view.elapsed().secs_f64();
    has_stamps && per_second * 2.0 < size as f64
}

/// Reports that the administrator reserves every port of the range for programs that choose their
/// port.
fn none_is_left(least: u64, most: u64) -> Outcome {
    Finding::new(format!(
        "no local port is left for connections: all of {least} to {most} are reserved"
    ))
    .limits()
    .seen(RANGE, format!("{least} {most}"))
    .advise(
        Advice::new("Reserve fewer ports, or widen the range")
            .run(format!("sysctl {RESERVED}"))
            .run(format!("sysctl -w {RANGE}='{LEAST_PORT} {MOST_PORT}'")),
    )
    .holds()
}

/// Returns the number of reserved ports between `least` and `most` in a list such as
/// `8080,9148-9150`.
fn reserved(list: &str, least: u64, most: u64) -> u64 {
    let ports = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(last.min(most).saturating_add(1).saturating_sub(first.max(least)))
    };
    list.split(',').filter_map(ports).fold(0, u64::saturating_add)
}

const REUSE: &str = "net.ipv4.tcp_tw_reuse";
const RESERVED: &str = "net.ipv4.ip_local_reserved_ports";
const RANGE: &str = "net.ipv4.ip_local_port_range";
const NEAR: f64 = 0.9;
/// Minimum share of ports in TIME_WAIT, of the ports in use, for advice about them.
const HALF: f64 = 0.5;
/// The widest range of local ports without the ports of system services.
const LEAST_PORT: u64 = 1024;
const MOST_PORT: u64 = 65_535;
const USED_UP: f64 = 0.98;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::RemotePorts;

    fn using(ports: u64) -> Sketch {
        let sketch = Sketch::idle().machine(|machine| {
            machine.sysctls.insert(RANGE.to_owned(), "50000 50010".to_owned());
        });
        sketch.each(move |_, sample| {
            let remote = "10.0.0.2:80".parse().unwrap();
            sample.busiest_remote = Some(RemotePorts { remote, ports, time_wait: 0 });
        })
    }

    #[test]
    fn ten_of_eleven_used_local_ports_count_as_exhausted() {
        assert!(using(11).holds_machine(RULE).is_some_and(|share| share > 0.7));
        assert!(
            using(10).holds_machine(RULE).is_some_and(|share| share > 0.7),
            "the kernel uses ten"
        );
        using(9).machine_holds_not(RULE);
        Sketch::idle().machine_holds_not(RULE);
    }

    #[test]
    fn ports_in_time_wait_that_the_kernel_uses_again_are_not_used_up() {
        let waiting = |setting: &'static str, remote: &'static str, opened: u64| {
            let sketch = using(11).machine(|machine| {
                machine.sysctls.insert(REUSE.to_owned(), setting.to_owned());
            });
            sketch.counter("TcpActiveOpens", opened).each(move |_, sample| {
                let worst = sample.busiest_remote.as_mut().unwrap();
                (worst.remote, worst.time_wait) = (remote.parse().unwrap(), 10);
            })
        };
        waiting("1", "10.0.0.2:80", 1).machine_holds_not(RULE);
        waiting("2", "127.0.0.1:80", 1).machine_holds_not(RULE);
        for (setting, remote, opened) in
            [("0", "127.0.0.1:80", 1), ("2", "10.0.0.2:80", 1), ("1", "10.0.0.2:80", 9)]
        {
            let share = waiting(setting, remote, opened).holds_machine(RULE);
            assert!(share.is_some_and(|share| share > 0.7), "{setting} {remote} {opened}");
        }
        let without = waiting("1", "10.0.0.2:80", 1).machine(|machine| {
            machine.sysctls.insert("net.ipv4.tcp_timestamps".to_owned(), "0".to_owned());
        });
        assert!(without.holds_machine(RULE).is_some_and(|share| share > 0.7));
    }

    #[test]
    fn the_advice_names_settings_that_would_free_ports() {
        let advised = |range: &'static str, reuse: &'static str, time_wait: u64| {
            let sketch = using(63_400).machine(|machine| {
                machine.sysctls.insert(RANGE.to_owned(), range.to_owned());
                machine.sysctls.insert(REUSE.to_owned(), reuse.to_owned());
            });
            let sketch = sketch.counter("TcpActiveOpens", 500).each(move |_, sample| {
                sample.busiest_remote.as_mut().unwrap().time_wait = time_wait;
            });
            let outcome = sketch.on_machine(RULE);
            let advice = &outcome.finding().unwrap().advice;
            advice.iter().flat_map(|one| one.commands.clone()).collect::<Vec<_>>().join("; ")
        };
        let (reuse, range) = ("tcp_tw_reuse=1", "ip_local_port_range=");
        let commands = advised("1024 65535", "2", 60_000);
        assert!(commands.contains(reuse) && !commands.contains(range), "{commands}");
        let commands = advised("2048 65535", "2", 100);
        assert!(!commands.contains(reuse) && commands.contains(range), "{commands}");
    }

    #[test]
    fn reserved_ports_do_not_count_as_available() {
        let keeping = |list: &str, ports| {
            using(ports).machine(|machine| {
                machine.sysctls.insert(RESERVED.to_owned(), list.to_owned());
            })
        };
        keeping("80,8080-8090", 9).machine_holds_not(RULE);
        let kept = keeping("50003-50010,8080", 3);
        assert!(kept.holds_machine(RULE).is_some_and(|share| share > 0.7));
        keeping("50003-50010", 1).machine_holds_not(RULE);
        let none = keeping("49000-51000", 0).each(|_, sample| sample.busiest_remote = None);
        assert!(none.holds_machine(RULE).is_some_and(|share| share > 0.7));
        assert_eq!(reserved("x,7-", 1, 9), 0);
        assert_eq!(reserved("", 1, 9), 0);
    }
}
