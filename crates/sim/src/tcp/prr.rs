/// Proportional rate reduction with the slow-start reduction bound (RFC 6937), as in Linux
/// (`tcp_cwnd_reduction`), in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reduction {
    /// The window at the detection of the loss, which Linux uses as RecoverFS.
    before: u64,
    threshold: u64,
    delivered: u64,
    sent: u64,
    pub(crate) window: u64,
}

impl Reduction {
    pub(crate) fn begin(before: u64, threshold: u64) -> Self {
        Self { before: before.max(1), threshold, delivered: 0, sent: 0, window: before }
    }

    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// Updates the window for an ACK. `clean`: the ACK advanced and showed no further loss.
    pub(crate) fn on_ack(&mut self, delivered: u64, pipe: u64, clean: bool, mss: u64) {
        if delivered == 0 {
            return;
        }
        self.delivered += delivered;
        let allowed = if pipe > self.threshold {
            let share = u128::from(self.delivered) * u128::from(self.threshold);
            let share = share.div_ceil(u128::from(self.before)) as u64;
            // Round up to whole segments, as Linux does.
            share.saturating_sub(self.sent).div_ceil(mss) * mss
        } else {
            let conserved = self.delivered.saturating_sub(self.sent).max(delivered);
            let bound = conserved + if clean { mss } else { 0 };
            bound.min(self.threshold - pipe)
        };
        // Always let the first retransmission leave.
        let allowed = allowed.max(if self.sent == 0 { mss } else { 0 });
        self.window = pipe + allowed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6937, section 4.1, first example: one loss with a FlightSize of 20. The window falls to
    /// half, as in the RFC's example, and not to CUBIC's 0.7. The sender retransmits a segment
    /// after the third duplicate, and then sends one segment for every second ACK.
    #[test]
    fn prr_halves_the_window_smoothly_after_one_loss() {
        // After SACKs for three segments, each ACK acknowledges one segment.
        let (flight, threshold) = (20, 10);
        let mut prr = Reduction::begin(flight, threshold);
        let mut pipe = 16;
        let mut sent = Vec::new();
        for ack in 0..16 {
            // The segments of all three SACKs count as delivered when the recovery begins.
            let delivered = if ack == 0 { 3 } else { 1 };
            pipe -= u64::from(ack > 0);
            prr.on_ack(delivered, pipe, false, 1);
            let now = prr.window.saturating_sub(pipe);
            prr.on_sent(now);
            pipe += now;
            sent.push(now);
        }
        assert_eq!(sent.iter().sum::<u64>(), 9);
        assert_eq!(pipe, 10, "the window ends at the threshold");
        // After the beginning, at most one segment leaves at a time.
        assert!(sent[1..].iter().all(|now| *now <= 1), "{sent:?}");
    }

    /// Second example: losses bring the pipe below the threshold. The sender then sends the bytes
    /// that arrive, and one segment more if the ACK advances.
    #[test]
    fn prr_repairs_a_burst_of_losses_by_slow_start() {
        let mut prr = Reduction::begin(20, 10);
        let mut pipe = 4;
        for _ in 0..3 {
            pipe -= 1;
            prr.on_ack(1, pipe, true, 1);
            let now = prr.window - pipe;
            prr.on_sent(now);
            pipe += now;
            assert_eq!(now, 2);
        }
        prr.on_ack(1, pipe - 1, false, 1);
        assert_eq!(prr.window - (pipe - 1), 1);
    }
}
