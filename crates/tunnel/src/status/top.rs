//! The view of `weir tunnel top`: the sessions of all ends, with the limit of each session's rate.

use super::sessions::{aligned, rate};
use super::text::memory;
use super::{AccountStatus, ConnectionStatus, Status};
use std::collections::HashMap;
use units::{Span, foreign, shown};

/// The packets that each session of each process had sent and lost at one refresh of the view.
#[derive(Debug, Default)]
pub struct Packets(HashMap<(u32, u64), (u64, u64)>);

impl Packets {
    pub fn of(all: &[Status]) -> Self {
        let of_end = |end: &Status| {
            let pid = end.pid;
            let each = end.connections.iter();
            let each =
                each.map(move |one| ((pid, one.session), (one.packets_sent, one.packets_lost)));
            each.collect::<Vec<_>>()
        };
        Self(all.iter().flat_map(of_end).collect())
    }

    /// Returns the packet loss in percent since these counts, or since the session began.
    fn loss_percent(&self, pid: u32, now: &ConnectionStatus) -> f64 {
        let (sent, lost) = self.0.get(&(pid, now.session)).copied().unwrap_or_default();
        let sent = now.packets_sent.saturating_sub(sent);
        100.0 * now.packets_lost.saturating_sub(lost) as f64 / sent.max(1) as f64
    }
}

/// Returns the view for one refresh, with at most `size` columns and lines. Losses count since
/// `before`, an earlier refresh. Escapes all texts, because peers and other processes chose some
/// texts.
pub fn top(all: &[Status], before: &Packets, size: Option<(usize, usize)>) -> String {
    let mut lines = Vec::new();
    for end in all {
        lines.push(head(end));
        let accounts: HashMap<_, _> =
            end.accounts.iter().map(|account| (account.peer.as_str(), account)).collect();
        let row = |one: &ConnectionStatus| {
            row(one, before.loss_percent(end.pid, one), accounts.get(one.peer.as_str()).copied())
        };
        let mut rows: Vec<_> = end.alive().map(row).collect();
        if !rows.is_empty() {
            rows.insert(0, HEADS.map(str::to_owned));
        }
        lines.extend(aligned(&rows).lines().map(str::to_owned));
    }
    if let Some((columns, most)) = size {
        if lines.len() > most {
            let hidden = lines.len() - most.saturating_sub(1);
            lines.truncate(most.saturating_sub(1));
            lines.push(format!("  … {hidden} more lines"));
        }
        for line in &mut lines {
            if line.chars().count() > columns {
                *line = line.chars().take(columns.saturating_sub(1)).chain(['…']).collect();
            }
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

fn head(end: &Status) -> String {
    let alive: Vec<_> = end.alive().collect();
    let sum = |of: fn(&ConnectionStatus) -> u64| rate(alive.iter().map(|one| of(one)).sum());
    let draining = match end.is_draining {
        true => format!("; draining, {} left", Span::from_secs(end.drain_seconds as u64).shown()),
        false => String::new(),
    };
    format!(
        "{} (pid {}), up {}: sessions {}, tunnels {}; in {}, out {}; memory {} of {}{draining}",
        foreign(&end.role),
        end.pid,
        Span::from_secs(end.up_seconds as u64).shown(),
        alive.len(),
        alive.iter().map(|one| one.tunnels).sum::<u64>(),
        sum(|one| one.rate_in),
        sum(|one| one.rate_out),
        memory(end.memory_held),
        memory(end.memory_limit),
    )
}

fn row(one: &ConnectionStatus, loss: f64, account: Option<&AccountStatus>) -> [String; 9] {
    let unlimited = || "-".to_owned();
    let limit = account.filter(|account| account.rate_limit > 0);
    let quota = account.filter(|account| account.quota > 0);
    let quota = quota.map(|account| {
        shown::percent(100.0 * account.quota_used as f64 / account.quota as f64) + " of quota"
    });
    let limits: Vec<_> =
        limit.map(|account| rate(account.rate_limit)).into_iter().chain(quota).collect();
    [
        foreign(one.session_name()).to_string(),
        foreign(&one.carrier).to_string(),
        one.tunnels.to_string(),
        rate(one.rate_in),
        rate(one.rate_out),
        shown::seconds(one.rtt_seconds),
        shown::percent(loss),
        if limits.is_empty() { unlimited() } else { limits.join(", ") },
        if one.limited_by.is_empty() { unlimited() } else { foreign(&one.limited_by).to_string() },
    ]
}

const HEADS: [&str; 9] =
    ["session", "carrier", "tunnels", "in/s", "out/s", "rtt", "lost", "limits", "limited by"];

#[cfg(test)]
mod tests {
    use super::super::tests::status;
    use super::*;

    #[test]
    fn top_shows_rates_recent_losses_and_limits_within_the_terminal_size() {
        let mut status = status();
        let one = &mut status.connections[0];
        (one.session, one.carrier, one.rate_out) = (7, "udp".to_owned(), 12_000_000);
        (one.packets_sent, one.packets_lost, one.rtt_seconds) = (1000, 10, 0.020);
        let account = AccountStatus {
            peer: one.peer.clone(),
            rate_limit: 50_000_000,
            quota: 1000,
            quota_used: 250,
            ..AccountStatus::default()
        };
        status.accounts = vec![account];
        let all = [status];
        let text = top(&all, &Packets::default(), None);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("server (pid 1), up "), "{text}");
        assert!(lines[0].contains("out 12"), "{text}");
        assert!(lines[0].ends_with(" MiB"), "{text}");
        assert!(lines[1].starts_with("  session "), "{text}");
        let row = lines[2];
        for part in ["laptop/7", "udp", "20.0 ms", "1.00 %", "50.0 Mbit/s, 25.0 % of quota"] {
            assert!(row.contains(part), "{part}: {text}");
        }
        // No packet was lost since the last refresh.
        let text = top(&all, &Packets::of(&all), None);
        assert!(!text.contains("1.00 %"), "{text}");
        let text = top(&all, &Packets::default(), Some((30, 2)));
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        assert!(text.ends_with("  … 2 more lines\n"), "{text}");
    }
}
