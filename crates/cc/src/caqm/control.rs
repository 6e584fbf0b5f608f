use super::CaqmSender;
use crate::{Ack, CongestionControl, Loss, Path, Reduction, Reno};
use units::{Bytes, Span, Time};
use wire::caqm::Info;

/// CAQM for a host that exchanges tags with the ports on the path: data packets carry a request for
/// each increase of the window. If neither a port nor the peer answers, the host runs Reno without
/// tags.
#[derive(Debug, Clone)]
pub struct Caqm {
    path: Path,
    mode: Mode,
}

#[derive(Debug, Clone)]
enum Mode {
    Asks(CaqmSender),
    Plain(Reno),
}

impl Caqm {
    /// Sends requests if both ends and a port on the path support CAQM.
    pub fn new(path: &Path) -> Self {
        let mode = match &path.caqm {
            Some(settings) => {
                let window = segments(path, path.initial_window);
                Mode::Asks(CaqmSender::new(settings, window, path.handshake_rtt, path.now))
            }
            None => Mode::Plain(Reno::new(path)),
        };
        Self { path: *path, mode }
    }

    fn inner(&self) -> Option<&Reno> {
        match &self.mode {
            Mode::Asks(_) => None,
            Mode::Plain(reno) => Some(reno),
        }
    }

    /// Changes to Reno at the loss event `loss`.
    fn become_plain(&mut self, before: Bytes, loss: &Loss) {
        let mut reno = Reno::new(&Path { initial_window: before, ..self.path });
        reno.on_loss(loss);
        self.mode = Mode::Plain(reno);
    }
}

impl CongestionControl for Caqm {
    fn name(&self) -> &'static str {
        "caqm"
    }

    fn on_ack(&mut self, ack: &Ack) {
        match &mut self.mode {
            Mode::Asks(sender) => sender.measured(ack.rtt, ack.now),
            Mode::Plain(reno) => reno.on_ack(ack),
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        let before = self.cwnd();
        match &mut self.mode {
            Mode::Asks(sender) => {
                if sender.on_loss(loss.now) {
                    self.become_plain(before, loss);
                }
            }
            Mode::Plain(reno) => reno.on_loss(loss),
        }
    }

    fn on_recovered(&mut self, now: Time) {
        if let Mode::Plain(reno) = &mut self.mode {
            reno.on_recovered(now);
        }
    }

    fn on_timeout(&mut self, loss: &Loss) {
        match &mut self.mode {
            Mode::Asks(sender) => {
                if !loss.repeated {
                    sender.on_timeout(loss.now);
                }
            }
            Mode::Plain(reno) => reno.on_timeout(loss),
        }
    }

    fn on_undo(&mut self, now: Time) {
        match &mut self.mode {
            Mode::Asks(sender) => sender.on_undo(),
            Mode::Plain(reno) => reno.on_undo(now),
        }
    }

    fn on_idle(&mut self, now: Time, idle: Span) {
        let window = segments(&self.path, self.path.initial_window);
        match &mut self.mode {
            Mode::Asks(sender) => sender.on_idle(window),
            Mode::Plain(reno) => reno.on_idle(now, idle),
        }
    }

    fn cwnd(&self) -> Bytes {
        match &self.mode {
            Mode::Asks(sender) => Bytes::new(self.path.mss.count() * u64::from(sender.window())),
            Mode::Plain(reno) => reno.cwnd(),
        }
    }

    /// CAQM has no threshold: the window doubles until a port refuses a request.
    fn ssthresh(&self) -> Bytes {
        match &self.mode {
            Mode::Asks(sender) if sender.in_start() => Bytes::new(u64::MAX),
            Mode::Asks(_) => self.cwnd(),
            Mode::Plain(reno) => reno.ssthresh(),
        }
    }

    fn reduction(&self) -> Reduction {
        self.inner().map_or(Reduction::Own, Reno::reduction)
    }

    fn request(&mut self, segments: u32) -> Option<Info> {
        match &mut self.mode {
            Mode::Asks(sender) => Some(sender.request(segments)),
            Mode::Plain(_) => None,
        }
    }

    fn answer(&mut self, told: Info, window_limited: bool, now: Time) {
        if let Mode::Asks(sender) = &mut self.mode {
            sender.answer(told, window_limited, now);
        }
    }
}

fn segments(path: &Path, window: Bytes) -> u32 {
    let segments = window.count() / path.mss.count().max(1);
    u32::try_from(segments).unwrap_or(u32::MAX)
}
