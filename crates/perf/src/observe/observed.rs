use super::Series;
use super::cpu::CpuOf;
use super::latency::LatencyResult;
use super::probe_cost::ProbeCost;
use super::tcp::StreamPath;
use crate::event::{CoreUse, CpuUse, Latency, LatencySource};
use serde_json::{Map, Value, json};
use units::{Bytes, Rate, Span};

#[derive(Debug, Clone)]
pub struct Observed {
    pub cpu: CpuUse,
    pub cpu_of: CpuOf,
    pub paths: Vec<StreamPath>,
    pub idle: Option<Latency>,
    pub loaded: Option<Latency>,
    /// Series of the whole test, omitted time included, with the series that a weir peer reported
    /// for the streams it sends; empty without probes.
    pub series: Vec<Series>,
    /// The core of this machine that limited the test: the test ran on this core, which had almost
    /// no idle time.
    pub limiting_core: Option<usize>,
    pub warnings: Vec<String>,
    /// CPU time that the measurements used.
    pub cost: Span,
    /// The goodput that the probes cost; `None` if the test did not measure the cost.
    pub probe_cost: Option<ProbeCost>,
}

impl Observed {
    pub fn path(&self, id: u32) -> Option<&StreamPath> {
        self.paths.iter().find(|path| path.id == id)
    }

    /// Returns everything except the series as JSON, which is small enough to send to the peer.
    pub fn summary(&self) -> Value {
        json!({
            "cpu": cpu(&self.cpu),
            "cpu_of": self.cpu_of,
            "streams": self.paths.iter().map(path).collect::<Vec<_>>(),
            "latency": {
                "idle": self.idle.as_ref().map(latency),
                "loaded": self.loaded.as_ref().map(latency),
            },
            "warnings": self.warnings,
            "probe_cpu_seconds": self.cost.secs_f64(),
        })
    }

    pub fn to_json(&self) -> Value {
        let mut whole = self.summary();
        if let Value::Object(object) = &mut whole {
            let series = serde_json::to_value(&self.series).unwrap_or_default();
            object.insert("series".to_owned(), series);
        }
        whole
    }
}

/// Returns the busiest core of the test if it had almost no idle time.
pub(super) fn full_core<'a>(cpu: &'a CpuUse, pinned: &[usize]) -> Option<&'a CoreUse> {
    // If this test used almost no CPU, another program saturates the core.
    let ours = cpu.user + cpu.system;
    cpu.cores
        .iter()
        .filter(|core| pinned.is_empty() || pinned.contains(&core.core))
        .filter(|core| core.busy > FULL && (ours > NOTABLE || core.softirq > NOTABLE))
        .max_by(|a, b| a.busy.total_cmp(&b.busy))
}

pub(super) fn warning(full: &CoreUse, cpu: &CpuUse) -> String {
    let ours = cpu.user + cpu.system;
    // Some kernels charge softirqs to the process that they interrupt, so this sum is a lower
    // bound.
    let others: f64 = cpu.cores.iter().map(|core| core.busy - core.softirq).sum::<f64>() - ours;
    let (others, advice) = match others > NOTABLE {
        true => (
            format!(", other processes {others:.0} % of a core on this machine"),
            "end the other programs and measure again",
        ),
        false => (String::new(), "more streams (-P) may use more cores"),
    };
    format!(
        "this end had less than {:.0} % idle CPU on core {} (softirqs used {:.0} %{others}): the figure is \
         the machine's, not the path's; {advice}",
        100.0 - FULL,
        full.core,
        full.softirq,
    )
}

pub(super) fn silent_probe(asked: &LatencyResult) -> Option<String> {
    let instead = "the latency shown is the kernel's smoothed round-trip time of the streams, which hides \
                   peaks";
    if asked.latency.is_some() {
        return None;
    }
    if asked.answered && asked.lost == 0 {
        return Some(format!("the test ended before a probe came back: {instead}"));
    }
    if asked.answered {
        return Some(format!(
            "no probe came back under load ({} were lost): {instead}",
            asked.lost
        ));
    }
    let mut reasons = asked.problems.clone();
    if reasons.is_empty() {
        reasons.push("the far end answers no probe".to_owned());
    }
    Some(format!("the latency under load could not be probed, {}: {instead}", reasons.join(", ")))
}

fn cpu(used: &CpuUse) -> Value {
    let core = |core: &CoreUse| {
        json!({
            "core": core.core,
            "busy_percent": rounded(core.busy),
            "softirq_percent": rounded(core.softirq),
        })
    };
    json!({
        "user_percent": rounded(used.user),
        "system_percent": rounded(used.system),
        "cores": used.cores.iter().map(core).collect::<Vec<_>>(),
    })
}

fn latency(latency: &Latency) -> Value {
    let by = match latency.by {
        LatencySource::Echo => "echo",
        LatencySource::Ping => "ping",
        LatencySource::TcpInfo => "tcp_info",
    };
    json!({
        "by": by,
        "samples": latency.samples,
        "lost": latency.lost,
        "p50_us": latency.p50.micros_f64(),
        "p99_us": latency.p99.micros_f64(),
        "max_us": latency.max.micros_f64(),
    })
}

/// Returns a stream's path as JSON; omits values that the kernel did not report.
fn path(path: &StreamPath) -> Value {
    let micros = |span: Option<Span>| span.map(|span| json!(span.micros_f64()));
    let bytes = |count: Option<Bytes>| count.map(|count| json!(count.count()));
    let facts = &path.facts;
    let limited = path.limited.map(|limited| {
        json!({
            "application_percent": rounded(limited.application.percent()),
            "receive_window_percent": rounded(limited.receive_window.percent()),
            "send_buffer_percent": rounded(limited.send_buffer.percent()),
            "congestion_percent": rounded(limited.congestion.percent()),
        })
    });
    let known = [
        ("id", Some(json!(path.id))),
        ("sender", Some(json!(path.sends))),
        ("limited_by", limited),
        ("min_rtt_us", micros(facts.min_rtt)),
        ("mean_rtt_us", micros(facts.mean_rtt)),
        ("max_rtt_us", micros(facts.max_rtt)),
        ("least_rtt_us", micros(path.least_rtt)),
        ("max_cwnd_bytes", bytes(facts.max_cwnd)),
        ("max_send_window_bytes", bytes(facts.max_send_window)),
        ("delivery_rate_bit_s", path.delivery_rate.map(|rate| json!(Rate::bits_per_second(rate)))),
        ("delivery_rate_app_limited", path.delivery_rate_app_limited.map(Value::from)),
        ("retransmits", path.retransmits.map(Value::from)),
        ("retransmit_percent", path.retransmit_share.map(|share| json!(rounded(share.percent())))),
        ("retransmitted_bytes", bytes(facts.bytes_retransmitted)),
        ("timeouts", path.timeouts.map(Value::from)),
        ("reorder_seen", facts.reorder_seen.map(Value::from)),
        ("busy_us", micros(facts.busy)),
        ("receive_window_limited_us", micros(facts.rwnd_limited)),
        ("send_buffer_limited_us", micros(facts.sndbuf_limited)),
        ("full_link_percent", facts.full_link.map(|share| json!(rounded(share.percent())))),
    ];
    let known = known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(known.collect::<Map<_, _>>())
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Minimum utilisation at which a core counts as saturated, in percent of the core.
const FULL: f64 = 95.0;
const NOTABLE: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saturated_core_is_reported_only_if_the_test_runs_on_it() {
        let core = |core, busy| CoreUse { core, busy, softirq: 3.0 };
        let used = |user| CpuUse { user, system: 0.0, cores: vec![core(0, 12.0), core(1, 99.0)] };
        let warned = |cpu: CpuUse| warning(full_core(&cpu, &[]).unwrap(), &cpu);
        let told = warned(used(90.0));
        assert!(told.contains("less than 5 % idle CPU on core 1 (softirqs used 3 %)"), "{told}");
        assert!(told.ends_with("; more streams (-P) may use more cores"), "{told}");
        let told = warned(used(25.0));
        assert!(told.contains("3 %, other processes 80 % of a core on this machine)"), "{told}");
        assert!(told.ends_with("; end the other programs and measure again"), "{told}");
        assert_eq!(full_core(&used(90.0), &[0]), None);
        assert_eq!(full_core(&used(1.0), &[]), None);
    }
}
