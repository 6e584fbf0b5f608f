//! A program waits for a name server: its query has its own socket, which stays open until the
//! answer comes.

use super::{Advice, Finding, Outcome, Rule};
use crate::view::View;
use crate::words::span;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use units::Span;

pub(super) const RULE: Rule = Rule::new("name-service", "waiting for a name server").machine(judge);

fn judge(view: &View<'_>) -> Outcome {
    if !view.has_counters() {
        return Outcome::not_seen("queries to name servers");
    }
    let samples = view.samples();
    let (first, last) = (samples[0].at, view.last().at);
    let count = |name: &str| view.counter(name).unwrap_or(0);
    // A program that keeps its socket open, such as a forwarder, does not wait while it is silent.
    // The program gets an answer to each query.
    let (asked, answered) = (count("UdpOutDatagrams"), count("UdpInDatagrams"));
    let queries = queries(view);
    let is_kept = |query: &Query| query.since == first && query.until == last;
    // A resolver repeats few datagrams: more datagrams belong to other programs and may need no
    // answer.
    let kept = queries.iter().filter(|query| is_kept(query)).count() as u64;
    let repeated = kept.saturating_mul(2 + view.elapsed().nanos() / 500_000_000);
    let nothing_came = (1..=repeated).contains(&asked) && answered == 0;
    let waits =
        queries.iter().filter(|query| query.waited() >= LONG && (!is_kept(query) || nothing_came));
    let Some(worst) = waits.clone().max_by_key(|query| query.waited()) else {
        return Outcome::ruled_out(match queries.iter().map(Query::waited).max() {
            Some(longest) => {
                format!("no query was seen to wait: the oldest socket is {} old", span(longest))
            }
            None => "no query to a name server was seen".to_owned(),
        });
    };
    let holder = worst.holder.as_deref().unwrap_or("a program");
    Finding::new(format!(
        "the name server {} answers late or never: {holder} waited {} and more for it",
        worst.server.ip(),
        span(worst.waited())
    ))
    .limits()
    .seen_from("oldest query, at least", span(worst.waited()), span(LONG))
    .seen("queries that waited so long", waits.count().to_string())
    .seen("UDP datagrams sent, received", format!("{asked}, {answered}"))
    .advise(
        Advice::new("Ask the name server by hand, and name another one if it is slow")
            .run(format!("dig @{} example.org", worst.server.ip()))
            .run("cat /etc/resolv.conf; resolvectl status")
            .run("time getent ahosts NAME")
            .not("The connection itself is not the reason: it begins only after the answer"),
    )
    .holds()
}

/// A socket that is connected to a name server, and the times of the samples that show it.
struct Query {
    server: SocketAddr,
    since: Span,
    until: Span,
    holder: Option<String>,
}

impl Query {
    fn waited(&self) -> Span {
        self.until - self.since
    }
}

fn queries(view: &View<'_>) -> Vec<Query> {
    let mut found: BTreeMap<(u32, SocketAddr), Query> = BTreeMap::new();
    for sample in view.samples() {
        for socket in sample.udp.iter().filter(|socket| socket.asks_for_names()) {
            let Some(server) = socket.remote else { continue };
            let query = found.entry((socket.inode, socket.local)).or_insert(Query {
                server,
                since: sample.at,
                until: sample.at,
                holder: None,
            });
            query.until = sample.at;
            if let Some(holder) = socket.holders.first() {
                query.holder = Some(format!("{} (process {})", holder.name, holder.pid));
            }
        }
    }
    found.into_values().collect()
}

/// Shortest wait that is a finding: a resolver that asks several servers in turn answers sooner.
const LONG: Span = Span::from_millis(900);

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::UdpSocket;

    /// Builds a query whose socket exists in `samples`, which are a second apart.
    fn asking(samples: std::ops::RangeInclusive<u64>, answers: u64) -> Sketch {
        let sketch = Sketch::idle().each(move |at, sample| {
            if samples.contains(&at) {
                sample.udp.push(UdpSocket {
                    local: "10.0.0.1:40000".parse().unwrap(),
                    remote: Some("10.0.0.53:53".parse().unwrap()),
                    inode: 77,
                    holders: Vec::new(),
                    receive_queue: units::Bytes::ZERO,
                    drops: 0,
                });
            }
        });
        sketch.counter("UdpOutDatagrams", 2).counter("UdpInDatagrams", answers)
    }

    #[test]
    fn a_query_that_waits_for_long_is_a_finding() {
        assert!(asking(1..=2, 1).holds_machine(RULE).is_some_and(|share| share > 0.5));
        // The query began before the observation, and got no answer.
        assert!(asking(0..=3, 0).holds_machine(RULE).is_some_and(|share| share > 0.5));
    }

    #[test]
    fn a_quick_answer_or_a_socket_that_stays_open_is_no_finding() {
        asking(1..=1, 1).machine_holds_not(RULE);
        asking(0..=3, 2).machine_holds_not(RULE);
        // A program sends measurements, which get no answer.
        asking(0..=3, 0).counter("UdpOutDatagrams", 60).machine_holds_not(RULE);
        Sketch::idle().machine_holds_not(RULE);
    }
}
