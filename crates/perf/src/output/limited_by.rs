use crate::event::PathFacts;
use units::{Share, Span};

/// What kept a TCP sender from sending more, as shares of the time. They sum to one.
///
/// The kernel counts the time with data to send (`busy`), and within it the time stopped by the
/// peer's window and by the own send buffer (net/ipv4/tcp_output.c, `tcp_chrono_start`). The rest of
/// the busy time the congestion control decided, by its window or its pacing; the rest of all the
/// time there was nothing to send.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LimitedBy {
    pub congestion_control: Share,
    pub receiver_window: Share,
    pub send_buffer: Share,
    pub application: Share,
}

impl LimitedBy {
    /// `None` where the kernel did not tell.
    pub fn of(path: &PathFacts, elapsed: Span) -> Option<Self> {
        Self::sum([(path, elapsed)])
    }

    /// Of several streams together, by the time each took.
    pub fn sum<'a>(paths: impl IntoIterator<Item = (&'a PathFacts, Span)>) -> Option<Self> {
        let [mut all, mut busy, mut receiver, mut buffer] = [0.0; 4];
        for (path, elapsed) in paths {
            let told = path.busy?.secs_f64();
            // The kernel's clock and ours are read at different moments.
            all += elapsed.secs_f64().max(told);
            busy += told;
            receiver += path.rwnd_limited?.secs_f64();
            buffer += path.sndbuf_limited?.secs_f64();
        }
        if all <= 0.0 {
            return None;
        }
        let share = |time: f64| Share::new((time / all).clamp(0.0, 1.0)).unwrap_or_default();
        Some(Self {
            congestion_control: share(busy - receiver - buffer),
            receiver_window: share(receiver),
            send_buffer: share(buffer),
            application: share(all - busy),
        })
    }

    /// Each with its name, the largest first.
    pub fn ranked(&self) -> [(&'static str, Share); 4] {
        let mut ranked = [
            ("congestion control", self.congestion_control),
            ("receiver's window", self.receiver_window),
            ("send buffer", self.send_buffer),
            ("application", self.application),
        ];
        ranked.sort_by(|a, b| b.1.fraction().total_cmp(&a.1.fraction()));
        ranked
    }

    /// "congestion control 93 %, receiver's window 5 %, application 2 %"
    pub fn words(&self) -> String {
        let told: Vec<String> = self
            .ranked()
            .iter()
            .filter(|(_, share)| share.percent() >= LEAST_PERCENT)
            .map(|(name, share)| format!("{name} {:.0} %", share.percent()))
            .collect();
        told.join(", ")
    }
}

/// What rounds to nothing is not told.
const LEAST_PERCENT: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_contains_the_limited_times() {
        let path = PathFacts {
            busy: Some(Span::from_millis(980)),
            rwnd_limited: Some(Span::from_millis(50)),
            sndbuf_limited: Some(Span::ZERO),
            ..PathFacts::default()
        };
        let limited = LimitedBy::of(&path, Span::from_secs(1)).unwrap();
        assert_eq!(
            limited.words(),
            "congestion control 93 %, receiver's window 5 %, application 2 %"
        );
        assert_eq!(LimitedBy::of(&PathFacts::default(), Span::from_secs(1)), None);
        assert_eq!(LimitedBy::sum([]), None);
    }
}
