//! Computes the limits that kept a TCP sender from sending more, from the kernel's sums. A peer may
//! report only some of these sums.

use crate::event::PathFacts;
use crate::observe::tcp::LimitedBy;
use units::{Share, Span};

pub fn of(path: &PathFacts, elapsed: Span) -> Option<LimitedBy> {
    together([(path, elapsed)])
}

/// Computes the limits of several streams together, weighted by the durations of the streams.
///
/// The kernel counts the time with data to send (`busy`; net/ipv4/tcp_output.c,
/// `tcp_chrono_start`). Within the busy time, the kernel counts the times in which the peer's
/// window or the local send buffer stopped the sender. In the rest of the busy time the limit was
/// congestion control, by its window or its pacing. If samples show a saturated link, the share of
/// these samples in that rest counts for the link instead. Outside the busy time the application
/// had nothing to send.
pub fn together<'a>(paths: impl IntoIterator<Item = (&'a PathFacts, Span)>) -> Option<LimitedBy> {
    let [mut all, mut busy, mut receiver, mut buffer, mut link] = [0.0; 5];
    for (path, elapsed) in paths {
        let reported = path.busy?.secs_f64();
        // The kernel's times may exceed `elapsed`, because they are read at another time.
        all += elapsed.secs_f64().max(reported);
        busy += reported;
        let held = [path.rwnd_limited?.secs_f64(), path.sndbuf_limited?.secs_f64()];
        receiver += held[0];
        buffer += held[1];
        let full = path.full_link.map_or(0.0, Share::fraction);
        link += (reported - held[0] - held[1]).max(0.0) * full;
    }
    if all <= 0.0 {
        return None;
    }
    let share = |time: f64| Share::new((time / all).clamp(0.0, 1.0)).unwrap_or_default();
    Some(LimitedBy {
        application: share(all - busy),
        receive_window: share(receiver),
        send_buffer: share(buffer),
        full_link: share(link),
        congestion: share(busy - receiver - buffer - link),
    })
}

/// Returns each limit's name and share, the largest share first.
pub fn ranked(limits: &LimitedBy) -> [(&'static str, Share); 5] {
    let mut ranked = [
        ("full link", limits.full_link),
        ("congestion control", limits.congestion),
        ("receiver's window", limits.receive_window),
        ("send buffer", limits.send_buffer),
        ("application", limits.application),
    ];
    ranked.sort_by(|a, b| b.1.fraction().total_cmp(&a.1.fraction()));
    ranked
}

/// Formats the limits: "congestion control 93 %, receiver's window 5 %, application 2 %".
pub fn words(limits: &LimitedBy) -> String {
    let reported: Vec<String> = ranked(limits)
        .iter()
        .filter(|(_, share)| share.percent() >= LEAST_PERCENT)
        .map(|(name, share)| format!("{name} {:.0} %", share.percent()))
        .collect();
    reported.join(", ")
}

/// Minimum share that is shown: smaller shares round to zero.
const LEAST_PERCENT: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_busy_time_contains_the_times_limited_by_window_and_buffer() {
        let path = PathFacts {
            busy: Some(Span::from_millis(980)),
            rwnd_limited: Some(Span::from_millis(50)),
            sndbuf_limited: Some(Span::ZERO),
            ..PathFacts::default()
        };
        let limits = of(&path, Span::from_secs(1)).unwrap();
        assert_eq!(
            words(&limits),
            "congestion control 93 %, receiver's window 5 %, application 2 %"
        );
        let full_link = Share::new(0.9);
        let limits = of(&PathFacts { full_link, ..path }, Span::from_secs(1)).unwrap();
        assert_eq!(
            words(&limits),
            "full link 84 %, congestion control 9 %, receiver's window 5 %, application 2 %"
        );
        assert_eq!(of(&PathFacts::default(), Span::from_secs(1)), None);
        assert_eq!(together([]), None);
    }
}
