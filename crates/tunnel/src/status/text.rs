use super::{ConnectionStatus, Status};
use std::fmt::{Display, Formatter};
use units::{Bytes, Rate, Span, foreign};

/// Formats the status for people. Another process wrote the texts, and a peer has chosen some of
/// them.
impl Display for Status {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { role, pid, congestion, .. } = self;
        let (role, congestion) = (foreign(role), foreign(congestion));
        let up = Span::from_secs(self.up_seconds as u64);
        writeln!(f, "{role} (pid {pid}), up {up}, congestion control {congestion}")?;
        writeln!(f, "  listens on {}", foreign(self.listens_on.join(", ")).up_to(LONGEST))?;
        let count = |name: &str| self.counters.get(name).copied().unwrap_or(0);
        writeln!(
            f,
            "  tunnels {} now, {} opened, {} refused, {} broken; dials failed {}",
            count("tunnels"),
            count("tunnels_opened"),
            count("tunnels_refused"),
            count("tunnels_broken"),
            count("dials_failed"),
        )?;
        writeln!(
            f,
            "  carried {} in, {} out; memory {} held, {} granted of {}",
            short(count("bytes_in")),
            short(count("bytes_out")),
            short(self.memory_held),
            short(self.memory_granted),
            short(self.memory_limit),
        )?;
        writeln!(
            f,
            "  connections made {}, failed {}, lost {}; strangers {}; handshakes put off {}",
            count("connections_made"),
            count("connections_failed"),
            count("connections_lost"),
            count("strangers"),
            count("handshakes_put_off"),
        )?;
        if !self.reload_refused.is_empty() {
            writeln!(
                f,
                "  the last reload changed nothing: {}",
                foreign(&self.reload_refused).up_to(LONGEST)
            )?;
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

impl Display for ConnectionStatus {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if self.remote.is_empty() {
            return writeln!(f, "  - no connection; connecting");
        }
        let millis = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
        let (peer, remote) = (foreign(&self.peer), foreign(&self.remote));
        writeln!(f, "  - {peer} at {remote}, {} tunnels", self.tunnels)?;
        writeln!(
            f,
            "      rtt {} (least {}), window {}, in flight {}, mtu {}",
            millis(self.rtt_seconds),
            millis(self.min_rtt_seconds),
            short(self.cwnd),
            short(self.inflight),
            self.mtu,
        )?;
        let rate = |bits: u64| match bits {
            0 => "unknown".to_owned(),
            bits => format!("{:.1} Mbit/s", Rate::from_bits_per_second(bits).mbit_per_second()),
        };
        let paced = if self.pacing_rate == 0 { "none".to_owned() } else { rate(self.pacing_rate) };
        let by_itself = match self.path_loss {
            0.0 => String::new(),
            share => format!(" ({:.2} % by the path itself)", share * 100.0),
        };
        write!(
            f,
            "      sent {}, received {}, lost {:.2} % of packets{by_itself}; pacing {paced}, delivered {}",
            short(self.sent),
            short(self.received),
            self.loss_percent(),
            rate(self.delivery_rate),
        )?;
        match self.limited_by.as_str() {
            "" => writeln!(f),
            limit => writeln!(f, "; limited by {}", foreign(limit)),
        }
    }
}

/// Rounds to three digits; exact bytes are for machines.
fn short(count: u64) -> String {
    let units = [("GB", 1e9), ("MB", 1e6), ("KB", 1e3)];
    match units.into_iter().find(|(_, size)| count as f64 >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", count as f64 / size),
        None => Bytes::new(count).to_string(),
    }
}

/// The maximum length of a printed list.
const LONGEST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::super::tests::status;

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
