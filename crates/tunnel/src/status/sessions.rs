//! The sessions of an end: the table of `weir tunnel sessions`, and its JSON.

use super::{ConnectionStatus, Status};
use crate::identity::date;
use serde_json::{Value, json};
use std::time::Duration;
use units::{Bytes, Rate, Span, foreign};

impl ConnectionStatus {
    /// Returns the name of the session for `weir tunnel kick`.
    pub fn session_name(&self) -> String {
        format!("{}/{}", self.peer, self.session)
    }
}

impl Status {
    /// Returns the sessions as a table. Escapes the texts, because peers and another process chose
    /// some of them.
    pub fn sessions_table(&self) -> String {
        let Self { role, pid, .. } = self;
        let alive: Vec<_> = self.alive().collect();
        let count = match alive.len() {
            0 => "no session".to_owned(),
            1 => "1 session".to_owned(),
            many => format!("{many} sessions"),
        };
        let draining = match self.is_draining {
            true => {
                let left = Span::from_secs(self.drain_seconds as u64).shown();
                format!("; draining, {left} left")
            }
            false => String::new(),
        };
        let mut text = format!("{} (pid {pid}), {count}{draining}\n", foreign(role));
        if !alive.is_empty() {
            let heads = HEADS.map(str::to_owned);
            let rows: Vec<_> = std::iter::once(heads).chain(alive.into_iter().map(row)).collect();
            text += &aligned(&rows);
        }
        text
    }

    pub fn sessions_json(&self) -> Value {
        let session = |one: &ConnectionStatus| {
            json!({
                "session": one.session_name(),
                "identity": one.peer,
                "remote": one.remote,
                "carrier": one.carrier,
                "since": date(Duration::from_secs(one.since)),
                "seconds": one.seconds,
                "tunnels": one.tunnels,
                "bytes_in": one.bytes_in,
                "bytes_out": one.bytes_out,
                "rate_in": one.rate_in,
                "rate_out": one.rate_out,
            })
        };
        json!({
            "role": self.role,
            "pid": self.pid,
            "is_draining": self.is_draining,
            "sessions": self.alive().map(session).collect::<Vec<_>>(),
        })
    }

    /// Returns the sessions that have a connection, the busiest first.
    pub(super) fn alive(&self) -> impl Iterator<Item = &ConnectionStatus> {
        let mut alive: Vec<_> =
            self.connections.iter().filter(|one| !one.remote.is_empty()).collect();
        alive.sort_by_key(|one| {
            (std::cmp::Reverse(one.rate_in + one.rate_out), one.peer.as_str(), one.session)
        });
        alive.into_iter()
    }
}

fn row(one: &ConnectionStatus) -> [String; 9] {
    [
        foreign(one.session_name()).to_string(),
        foreign(&one.remote).to_string(),
        foreign(&one.carrier).to_string(),
        Span::from_secs(one.seconds as u64).shown(),
        one.tunnels.to_string(),
        Bytes::new(one.bytes_in).shown(),
        Bytes::new(one.bytes_out).shown(),
        rate(one.rate_in),
        rate(one.rate_out),
    ]
}

pub(super) fn rate(bits: u64) -> String {
    match bits {
        0 => "0".to_owned(),
        bits => Rate::from_bits_per_second(bits).shown(),
    }
}

/// Pads each column to its longest cell.
pub(super) fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

const HEADS: [&str; 9] =
    ["session", "remote", "carrier", "for", "tunnels", "in", "out", "in/s", "out/s"];

#[cfg(test)]
mod tests {
    use super::super::tests::status;

    #[test]
    fn the_session_table_lists_the_busiest_session_first_and_escapes_texts() {
        let mut status = status();
        let mut busy = status.connections[0].clone();
        let idle = &mut status.connections[0];
        (idle.session, idle.carrier, idle.seconds) = (7, "udp".to_owned(), 312.0);
        (busy.peer, busy.remote) = ("site\x1b[2J".to_owned(), "[2001:db8::1]:1".to_owned());
        (busy.session, busy.carrier, busy.tunnels) = (12, "tcp".to_owned(), 3);
        (busy.bytes_out, busy.rate_out) = (1_900_000_000, 574_000_000);
        status.connections.push(busy);
        let table = status.sessions_table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "server (pid 1), 2 sessions");
        assert!(lines[1].starts_with("  session "), "{table}");
        assert!(lines[2].starts_with(r"  site\x1b[2J/12  [2001:db8::1]:1  tcp "), "{table}");
        assert!(lines[2].ends_with("574 Mbit/s"), "{table}");
        assert!(lines[3].starts_with("  laptop/7 "), "{table}");
        let json = status.sessions_json();
        assert_eq!(json["sessions"][1]["session"], "laptop/7");
        assert_eq!(json["sessions"][1]["since"], "1970-01-01T00:00:00Z");
        (status.is_draining, status.drain_seconds) = (true, 59.9);
        status.connections.clear();
        assert_eq!(status.sessions_table(), "server (pid 1), no session; draining, 59 s left\n");
    }
}
