use super::{AccountStatus, ConnectionStatus, PeerKeyStatus, ServerStatus, Status};
use crate::identity::date;
use std::fmt::{Display, Formatter};
use std::time::Duration;
use units::{Bytes, Rate, Span, foreign, shown};

/// Formats the status for a terminal. Escapes the texts, because they come from another process and
/// partly from peers.
impl Display for Status {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { role, pid, congestion, .. } = self;
        let (role, congestion) = (foreign(role), foreign(congestion));
        let up = Span::from_secs(self.up_seconds as u64).shown();
        writeln!(f, "{role} (pid {pid}), up {up}, congestion control {congestion}")?;
        match &self.listens_on[..] {
            [] => writeln!(f, "  listens on no address: the other end opens the tunnels")?,
            all => writeln!(f, "  listens on {}", foreign(all.join(", ")).up_to(LONGEST))?,
        }
        let count = |name: &str| self.counters.get(name).copied().unwrap_or(0);
        writeln!(
            f,
            "  tunnels {} now, {} opened, {} refused, {} reset by an application, {} broken; \
             dials failed {}",
            count("tunnels"),
            count("tunnels_opened"),
            count("tunnels_refused"),
            count("tunnels_reset"),
            count("tunnels_broken"),
            count("dials_failed"),
        )?;
        writeln!(
            f,
            "  carried {} in, {} out; memory {} held, {} granted of {}",
            Bytes::new(count("bytes_in")).shown(),
            Bytes::new(count("bytes_out")).shown(),
            memory(self.memory_held),
            memory(self.memory_granted),
            memory(self.memory_limit),
        )?;
        writeln!(
            f,
            "  connections made {}, failed {}, lost {}; refused {}; handshakes put off {}",
            count("connections_made"),
            count("connections_failed"),
            count("connections_lost"),
            count("strangers"),
            count("handshakes_put_off"),
        )?;
        if self.is_draining {
            let left = Span::from_secs(self.drain_seconds as u64).shown();
            writeln!(f, "  draining: no new sessions and tunnels, {left} left")?;
        }
        if !self.reload_refused.is_empty() {
            writeln!(
                f,
                "  the last reload changed nothing: {}",
                foreign(&self.reload_refused).up_to(LONGEST)
            )?;
        }
        if self.certificate_is_due {
            let until = date(Duration::from_secs(self.certificate_expires));
            writeln!(
                f,
                "  the certificate expires on {until}: renew it (weir tunnel keys {role} --renew), and \
                 reload"
            )?;
        }
        for PeerKeyStatus { peer, key, connections } in &self.peer_keys {
            let (peer, key) = (foreign(peer), foreign(key));
            match connections {
                0 => writeln!(f, "  key of {peer}: {key} on no connection")?,
                1 => writeln!(f, "  key of {peer}: {key} on 1 connection")?,
                many => writeln!(f, "  key of {peer}: {key} on {many} connections")?,
            }
        }
        let is_only = self.servers.len() == 1;
        for server in &self.servers {
            let has_failed = server.is_refusing || server.connections == 0;
            if !is_only || (has_failed && !server.failure.is_empty()) {
                write!(f, "{server}")?;
            }
        }
        for account in self.accounts.iter().filter(|account| account.has_limit()) {
            write!(f, "{account}")?;
        }
        for (name, peer) in &self.services {
            writeln!(f, "  service:{} offered by {}", foreign(name), foreign(peer))?;
        }
        let refused: Vec<String> = self
            .refused
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        if !refused.is_empty() {
            writeln!(f, "  not allowed: {}", foreign(refused.join(", ")).up_to(LONGEST))?;
        }
        if self.connections.is_empty() {
            return writeln!(f, "  no connection");
        }
        self.connections.iter().try_for_each(|one| write!(f, "{one}"))
    }
}

impl Display for ServerStatus {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { endpoint, connections, is_refusing, failure } = self;
        write!(f, "  server {}: ", foreign(endpoint))?;
        match (connections, failure.as_str()) {
            (0, _) if *is_refusing => {}
            (0, "") => write!(f, "in reserve")?,
            (0, why) => write!(f, "failed: {}", foreign(why))?,
            (1, _) => write!(f, "1 connection")?,
            (many, _) => write!(f, "{many} connections")?,
        }
        if *is_refusing {
            let before = if *connections == 0 { "" } else { "; " };
            write!(f, "{before}refuses this client: {}", foreign(failure))?;
        }
        writeln!(f)
    }
}

impl AccountStatus {
    fn has_limit(&self) -> bool {
        self.quota > 0 || self.rate_limit > 0 || self.sessions_limit > 0
    }
}

impl Display for AccountStatus {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "  quota of {}:", foreign(&self.peer))?;
        let mut before = "";
        if self.quota > 0 {
            let (used, quota) = (Bytes::new(self.quota_used), Bytes::new(self.quota));
            let period = foreign(&self.quota_period);
            write!(f, " {} of {} this {period}", used.shown(), quota.shown())?;
            if self.quota_used >= self.quota {
                let renews = date(Duration::from_secs(self.quota_renews));
                write!(f, ", used up until {renews}")?;
            }
            before = ",";
        }
        if self.rate_limit > 0 {
            let rate = Rate::from_bits_per_second(self.rate_limit).shown();
            write!(f, "{before} at most {rate} in each direction")?;
            before = ",";
        }
        if self.sessions_limit > 0 {
            write!(f, "{before} {} of {} sessions", self.sessions, self.sessions_limit)?;
        }
        writeln!(f)
    }
}

impl Display for ConnectionStatus {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if self.remote.is_empty() {
            return writeln!(f, "  - no connection; connecting");
        }
        let (peer, remote) = (foreign(&self.peer), foreign(&self.remote));
        let plural = if self.tunnels == 1 { "" } else { "s" };
        let retiring = if self.is_retiring { ", no new ones" } else { "" };
        writeln!(f, "  - {peer} at {remote}, {} tunnel{plural}{retiring}", self.tunnels)?;
        if self.carrier == "tcp" {
            let why = foreign(&self.carrier_reason);
            let why =
                if self.carrier_reason.is_empty() { String::new() } else { format!(": {why}") };
            writeln!(f, "      over TCP{why}")?;
        }
        if !self.key.is_empty() {
            let until = date(Duration::from_secs(self.key_expires));
            writeln!(f, "      key {}, certificate valid until {until}", foreign(&self.key))?;
        }
        // Congestion control measures no round trip before the peer acknowledges data.
        let least = match self.min_rtt_seconds {
            seconds if seconds > 0.0 => format!("least {}", shown::seconds(seconds)),
            _ => "unused".to_owned(),
        };
        writeln!(
            f,
            "      rtt {} ({least}), window {}, in flight {}, mtu {}",
            shown::seconds(self.rtt_seconds),
            Bytes::new(self.cwnd).shown(),
            Bytes::new(self.inflight).shown(),
            self.mtu,
        )?;
        let rate = |bits: u64| match bits {
            0 => "unknown".to_owned(),
            bits => Rate::from_bits_per_second(bits).shown(),
        };
        let paced = if self.pacing_rate == 0 { "none".to_owned() } else { rate(self.pacing_rate) };
        let by_itself = match self.path_loss {
            0.0 => String::new(),
            share => format!(" ({} by the path itself)", shown::percent(share * 100.0)),
        };
        write!(
            f,
            "      sent {}, received {}, lost {} of packets{by_itself}\n      pacing {paced}, delivered {}",
            Bytes::new(self.sent).shown(),
            Bytes::new(self.received).shown(),
            shown::percent(self.loss_percent()),
            rate(self.delivery_rate),
        )?;
        match self.limited_by.as_str() {
            "" => writeln!(f),
            limit => writeln!(f, "; limited by {}", foreign(limit)),
        }
    }
}

/// Formats bytes in MiB, the unit of `--memory`.
pub(super) fn memory(bytes: u64) -> String {
    match bytes {
        bytes if bytes % MEBIBYTE == 0 => format!("{} MiB", bytes / MEBIBYTE),
        bytes if bytes < MEBIBYTE / 100 => "<0.01 MiB".to_owned(),
        bytes if bytes < MEBIBYTE => format!("{:.2} MiB", bytes as f64 / MEBIBYTE as f64),
        bytes => format!("{} MiB", shown::significant(bytes as f64 / MEBIBYTE as f64)),
    }
}

const MEBIBYTE: u64 = 1 << 20;
/// Maximum length of a printed list.
const LONGEST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::super::tests::status;
    use super::ServerStatus;

    #[test]
    fn the_status_text_calls_a_connection_without_a_round_trip_sample_unused() {
        let mut status = status();
        assert!(status.to_string().contains("rtt 20.0 ms (unused), "), "{status}");
        status.connections[0].min_rtt_seconds = 0.0181;
        assert!(status.to_string().contains("rtt 20.0 ms (least 18.1 ms), "), "{status}");
    }

    #[test]
    fn the_status_text_has_a_line_for_an_account_with_a_limit() {
        let mut status = status();
        let text = status.to_string();
        let line = "  quota of laptop: 1.93 GB of 100 GB this month, at most 50.0 Mbit/s in each \
                    direction\n";
        assert!(text.contains(line), "{text}");
        let account = &mut status.accounts[0];
        (account.rate_limit, account.sessions_limit) = (0, 4);
        (account.quota_used, account.quota_renews) = (100_000_000_000, 1_801_440_000);
        let line = "used up until 2027-02-01T00:00:00Z, 1 of 4 sessions\n";
        assert!(status.to_string().contains(line), "{status}");
        (status.accounts[0].quota, status.accounts[0].sessions_limit) = (0, 0);
        assert!(!status.to_string().contains("quota of"), "{status}");
    }

    #[test]
    fn the_status_text_shows_memory_in_the_unit_of_its_limit_and_carried_data_in_mb() {
        let mut status = status();
        (status.memory_held, status.memory_granted) = (6 << 10, 3 << 19);
        status.memory_limit = 64 << 20;
        status.counters.insert("bytes_in".to_owned(), 3_940_000);
        let memory = |held: &str| {
            format!("carried 3.94 MB in, 0 B out; memory {held} held, 1.50 MiB granted of 64 MiB\n")
        };
        assert!(status.to_string().contains(&memory("<0.01 MiB")), "{status}");
        for (bytes, text) in [
            (0, "0 MiB"),
            (100 << 10, "0.10 MiB"),
            (7_400_000, "7.06 MiB"),
            (100_000_000, "95.4 MiB"),
            (256 << 20, "256 MiB"),
            (3 << 30, "3072 MiB"),
        ] {
            status.memory_held = bytes;
            assert!(status.to_string().contains(&memory(text)), "{status}");
        }
    }

    #[test]
    fn the_status_text_names_the_reason_why_the_only_server_has_no_connection() {
        let mut status = status();
        let failure = "the peer refused the handshake: unknown key".to_owned();
        let endpoint = "tokyo.example:7500".to_owned();
        status.servers =
            vec![ServerStatus { endpoint, connections: 0, is_refusing: false, failure }];
        let line =
            "  server tokyo.example:7500: failed: the peer refused the handshake: unknown key\n";
        assert!(status.to_string().contains(line), "{status}");
        status.servers[0].connections = 1;
        assert!(!status.to_string().contains("tokyo.example"), "{status}");
    }

    #[test]
    fn the_status_text_names_a_server_that_refuses_this_client() {
        let mut status = status();
        let mut server = ServerStatus {
            endpoint: "tokyo.example:7500".to_owned(),
            connections: 2,
            is_refusing: true,
            failure: "unknown key".to_owned(),
        };
        let lines = [
            (2, "  server tokyo.example:7500: 2 connections; refuses this client: unknown key\n"),
            (0, "  server tokyo.example:7500: refuses this client: unknown key\n"),
        ];
        for (connections, line) in lines {
            server.connections = connections;
            status.servers = vec![server.clone()];
            assert!(status.to_string().contains(line), "{status}");
        }
    }

    #[test]
    fn a_client_without_listeners_says_that_the_other_end_opens_its_tunnels() {
        let mut status = status();
        status.listens_on.clear();
        let line = "  listens on no address: the other end opens the tunnels\n";
        assert!(status.to_string().contains(line), "{status}");
    }

    #[test]
    fn texts_of_other_processes_are_escaped_for_the_terminal() {
        let hostile = "\x1b]0;owned\x07\n\u{202e}x";
        let mut status = status();
        let one = &mut status.connections[0];
        for text in [
            &mut status.role,
            &mut status.congestion,
            &mut status.reload_refused,
            &mut status.listens_on[0],
            &mut one.peer,
            &mut one.remote,
            &mut one.limited_by,
        ] {
            *text = hostile.to_owned();
        }
        status.refused.insert(hostile.to_owned(), 1);
        let text = status.to_string();
        assert_eq!(text.matches(r"\x1b]0;owned\x07\n\u{202e}x").count(), 8, "{text}");
        assert!(!text.contains(['\x1b', '\x07', '\u{202e}']), "{text:?}");
    }
}
