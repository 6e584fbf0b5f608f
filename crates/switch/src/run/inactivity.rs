//! The inactivity probe of an OpenFlow connection. A peer that is silent for `pause_ms` gets an
//! echo request. A peer that then stays silent for `pause_ms` is disconnected.

/// The state of a probe. Times are milliseconds of the switch's clock.
#[derive(Debug)]
pub(super) struct Inactivity {
    /// The silence before a probe; `None` turns probes off.
    pause_ms: Option<u64>,
    /// Maximum time until the connection is established.
    patience_ms: u64,
    heard_ms: u64,
    probed_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Alive,
    /// The caller must now send an echo request to the peer.
    Probe,
    Gone,
}

impl Inactivity {
    pub(super) fn new(pause_ms: u64, now_ms: u64) -> Self {
        let patience_ms = 2 * pause_ms;
        Self { pause_ms: Some(pause_ms), patience_ms, heard_ms: now_ms, probed_ms: None }
    }

    /// Sets the silence before a probe; `None` turns probes off.
    pub(super) fn set_pause(&mut self, pause_ms: Option<u64>) {
        self.pause_ms = pause_ms;
    }

    pub(super) fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
        self.probed_ms = None;
    }

    /// Checks the time since the peer last sent something. `is_established`: whether the connection
    /// is ready for an echo request.
    pub(super) fn check(&mut self, now_ms: u64, is_established: bool) -> Verdict {
        let passed = |since: u64| now_ms.saturating_sub(since);
        if !is_established && self.probed_ms.is_none() {
            let is_late = passed(self.heard_ms) >= self.patience_ms;
            return if is_late { Verdict::Gone } else { Verdict::Alive };
        }
        let Some(pause_ms) = self.pause_ms else {
            self.probed_ms = None;
            return Verdict::Alive;
        };
        match self.probed_ms {
            Some(probed) if passed(probed) >= pause_ms => Verdict::Gone,
            Some(_) => Verdict::Alive,
            None if passed(self.heard_ms) >= pause_ms => {
                self.probed_ms = Some(now_ms);
                Verdict::Probe
            }
            None => Verdict::Alive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_gets_one_echo_request_before_it_is_disconnected() {
        let mut peer = Inactivity::new(5000, 1000);
        assert_eq!(peer.check(5999, true), Verdict::Alive);
        assert_eq!(peer.check(6000, true), Verdict::Probe);
        assert_eq!(peer.check(6001, true), Verdict::Alive);
        assert_eq!(peer.check(11_000, true), Verdict::Gone);
    }

    #[test]
    fn a_reply_restarts_the_inactivity_timer() {
        let mut peer = Inactivity::new(5000, 0);
        assert_eq!(peer.check(5000, true), Verdict::Probe);
        peer.heard(5100);
        assert_eq!(peer.check(10_099, true), Verdict::Alive);
        assert_eq!(peer.check(10_100, true), Verdict::Probe);
    }

    #[test]
    fn a_clock_jump_leaves_the_peer_time_to_reply() {
        let mut peer = Inactivity::new(5000, 0);
        assert_eq!(peer.check(3_600_000, true), Verdict::Probe);
        assert_eq!(peer.check(3_600_001, true), Verdict::Alive);
    }

    #[test]
    fn a_peer_without_probes_may_be_silent_once_it_has_sent_its_hello() {
        let mut peer = Inactivity::new(5000, 0);
        assert_eq!(peer.check(5000, true), Verdict::Probe);
        peer.set_pause(None);
        assert_eq!(peer.check(3_600_000, true), Verdict::Alive);
        peer.set_pause(Some(30_000));
        assert_eq!(peer.check(3_600_001, true), Verdict::Probe);
        assert_eq!(peer.check(3_630_000, true), Verdict::Alive);
        assert_eq!(peer.check(3_630_001, true), Verdict::Gone);
        let mut mute = Inactivity::new(5000, 0);
        mute.set_pause(None);
        assert_eq!(mute.check(10_000, false), Verdict::Gone);
    }

    #[test]
    fn a_peer_that_has_sent_no_hello_gets_no_echo_request() {
        let mut peer = Inactivity::new(5000, 0);
        assert_eq!(peer.check(9999, false), Verdict::Alive);
        assert_eq!(peer.check(10_000, false), Verdict::Gone);
    }
}
