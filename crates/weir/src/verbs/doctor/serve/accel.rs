//! The metrics of `weir accel` on this machine, beside the observer's own.

use accel::{Counter, Status, pins::Presence};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// The last metrics, read again once they are older than [`AGE`].
#[derive(Debug, Default)]
pub(super) struct AccelFigures {
    read: Option<(Instant, String)>,
}

impl AccelFigures {
    pub(super) fn exposition(&mut self) -> &str {
        if self.read.as_ref().is_none_or(|(at, _)| at.elapsed() > AGE) {
            self.read = Some((Instant::now(), text(Status::read().ok().as_ref())));
        }
        self.read.as_ref().map_or("", |(_, text)| text)
    }
}

fn text(status: Option<&Status>) -> String {
    let mut text = String::new();
    // A kernel without BPF has no acceleration, and a user without rights cannot read its status.
    let Some(status) = status else { return text };
    let on = u8::from(status.presence == Presence::Whole && status.gives);
    head(&mut text, "on", "gauge", "The value is 1 if new connections get tcpa.");
    let _ = writeln!(text, "weir_accel_on {on}");
    let mut connections: BTreeMap<&str, u64> = BTreeMap::new();
    let mut rates: BTreeMap<&str, u64> = BTreeMap::new();
    for flow in &status.flows {
        *connections.entry(&flow.algorithm).or_default() += 1;
        let rate = flow.rate.map_or(0, |rate| rate.bits_per_second());
        let sum = rates.entry(&flow.algorithm).or_default();
        *sum = sum.saturating_add(rate);
    }
    let help = "This many open connections have an algorithm of the policy.";
    head(&mut text, "connections", "gauge", help);
    for (algorithm, count) in connections {
        let _ = writeln!(text, "weir_accel_connections{{algorithm=\"{algorithm}\"}} {count}");
    }
    let help = "Open connections with the algorithm deliver this rate together.";
    head(&mut text, "delivery_bits_per_second", "gauge", help);
    for (algorithm, rate) in rates {
        let _ = writeln!(
            text,
            "weir_accel_delivery_bits_per_second{{algorithm=\"{algorithm}\"}} {rate}"
        );
    }
    let help = "The modules of tcpa have counted this much since tcpa was installed.";
    head(&mut text, "work_total", "counter", help);
    for module in status.modules() {
        for (counter, value) in module.counters {
            let value = match value {
                Counter::Count(count) => count,
                Counter::Size(bytes) => bytes.count(),
                Counter::Rate(_) => continue,
            };
            let (module, counter) = (module.name, counter);
            let _ = writeln!(
                text,
                "weir_accel_work_total{{module=\"{module}\",counter=\"{counter}\"}} {value}"
            );
        }
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP weir_accel_{name} {help}\n# TYPE weir_accel_{name} {kind}");
}

const AGE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use accel::status::{Flow, Limit};
    use accel::{Policy, Work};
    use units::Rate;

    #[test]
    fn every_metric_of_accel_has_a_type_and_a_help_that_is_a_sentence() {
        let flow = Flow {
            inside: None,
            algorithm: "tcpa".to_owned(),
            local: "192.0.2.1:443".parse().unwrap(),
            remote: "198.51.100.7:4000".parse().unwrap(),
            rate: Some(Rate::from_mbit(8)),
            pacing: None,
            rtt: None,
            min_rtt: None,
            window: None,
            retransmitted: None,
            acked: None,
            limit: Limit::Path,
            cookie: 1,
            core: None,
            remembered: None,
        };
        let status = Status {
            presence: Presence::Whole,
            gives: true,
            policy: Policy::default(),
            flows: vec![flow],
            hidden: None,
            ended: Work::default(),
        };
        let text = text(Some(&status));
        for series in [
            "weir_accel_on 1\n",
            "weir_accel_connections{algorithm=\"tcpa\"} 1\n",
            "weir_accel_delivery_bits_per_second{algorithm=\"tcpa\"} 8000000\n",
            "weir_accel_work_total{module=\"timeout\",counter=\"timeouts\"} 0\n",
        ] {
            assert!(text.contains(series), "{series}: {text}");
        }
        for line in text.lines().filter(|line| line.starts_with("# HELP ")) {
            let help = line.splitn(4, ' ').nth(3).unwrap();
            let has_verb = help.split(' ').any(|word| ["is", "have", "deliver"].contains(&word));
            let is_sentence = help.starts_with(char::is_uppercase) && help.ends_with('.');
            assert!(is_sentence && has_verb, "{line}");
        }
        for line in text.lines().filter(|line| !line.starts_with("# ")) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<u64>().is_ok(), "{line}");
            let bare = name.split('{').next().unwrap();
            for comment in ["HELP", "TYPE"] {
                assert!(text.contains(&format!("# {comment} {bare} ")), "{line}");
            }
        }
    }
}
