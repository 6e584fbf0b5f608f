//! All local ports for one destination are in use, or reserved: connect(2) fails with
//! EADDRNOTAVAIL.

use super::{Advice, Finding, Outcome, Rule};
use crate::recording::Refusal;
use crate::view::View;
use crate::words::percent;

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
    let share = worst.ports as f64 / size as f64;
    let failed = view.period.attempt.as_ref().is_some_and(|a| a.refusal == Some(Refusal::NoPort));
    if share < NEAR && !failed {
        return Outcome::ruled_out(format!(
            "at most {} of the {size} local ports are in use for one destination",
            worst.ports
        ));
    }
    let waits = worst.time_wait as f64 / worst.ports.max(1) as f64;
    // The kernel searches an even number of ports (net/ipv4/inet_hashtables.c).
    let used_up = share >= USED_UP || worst.ports >= size & !1;
    let finding = Finding::new(format!(
        "local ports are used up: {} of {size} are in use for {}, so that new connections fail with \"cannot assign requested address\"",
        worst.ports, worst.remote
    ))
    .seen_from("ports in use for that destination, of the usual range", percent(share), percent(NEAR))
    .seen("ports in TIME_WAIT, of those in use", percent(waits))
    .seen(RANGE, format!("{least} {most}"))
    .seen_if("ports of it that are reserved", (reserved > 0).then(|| reserved.to_string()))
    .advise(
        Advice::new("Keep connections open and use them again, or widen the range")
            .run("sysctl -w net.ipv4.ip_local_port_range='1024 65535'")
            .run(format!("sysctl {RESERVED}"))
            .not("More memory or descriptors do not help; more addresses at either end do"),
    );
    if used_up || failed { finding.limits() } else { finding }.holds()
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
            .run("sysctl -w net.ipv4.ip_local_port_range='1024 65535'"),
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

const RESERVED: &str = "net.ipv4.ip_local_reserved_ports";
const RANGE: &str = "net.ipv4.ip_local_port_range";
const NEAR: f64 = 0.9;
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
