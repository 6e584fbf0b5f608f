//! All local ports for one destination are in use: connect(2) fails with EADDRNOTAVAIL.

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
    let size = most.saturating_add(1).saturating_sub(*least).max(1);
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
    // The kernel looks through an even number of ports (net/ipv4/inet_hashtables.c).
    let used_up = share >= USED_UP || worst.ports >= size & !1;
    let finding = Finding::new(format!(
        "local ports are used up: {} of {size} are in use for {}, so that new connections fail with \"cannot assign requested address\"",
        worst.ports, worst.remote
    ))
    .seen_from("ports in use for that destination", percent(share), percent(NEAR))
    .seen("of these in TIME_WAIT", percent(waits))
    .seen(RANGE, format!("{least} {most}"))
    .advise(
        Advice::new("Keep connections open and use them again, or widen the range")
            .run("sysctl -w net.ipv4.ip_local_port_range='1024 65535'")
            .not("More memory or descriptors do not help; more addresses at either end do"),
    );
    if used_up || failed { finding.explains(0.8) } else { finding }.holds()
}

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
    fn all_ports_or_almost_all() {
        assert!(using(11).holds_machine(RULE).is_some_and(|share| share > 0.7));
        assert!(
            using(10).holds_machine(RULE).is_some_and(|share| share > 0.7),
            "the kernel uses ten"
        );
        using(9).machine_holds_not(RULE);
        Sketch::idle().machine_holds_not(RULE);
    }
}
