//! Tests senders with scripted ACKs, in the manner of packetdrill.

use super::{Identity, Sender};
use crate::packet::{Flags, Kind, Packet, Sacks, Tag};
use crate::{Opening, TcpConfig};
use cc::Algorithm;
use cc::caqm::CaqmSettings;
use std::sync::Arc;
use units::{Bytes, Span, Time};
use wire::caqm::Info;

/// A connection of 1000-byte segments and a round trip of 100 ms, with Reno.
struct Script {
    sender: Sender,
    now: Time,
    out: Vec<Packet>,
}

impl Script {
    fn new(config: TcpConfig) -> Self {
        let config = Arc::new(TcpConfig { mss: Bytes::new(1000), tick: Span::ZERO, ..config });
        let identity = Identity { flow: 0, route: 0, algorithm: Algorithm::Reno, seed: 1 };
        let mut script =
            Self { sender: Sender::new(config, identity), now: Time::ZERO, out: Vec::new() };
        script.sender.open(script.now, &mut script.out);
        assert_eq!(script.out.pop().map(|packet| packet.kind), Some(Kind::Syn));
        script.after(100);
        let mut answer = script.answer(0, Time::ZERO, &[]);
        answer.kind = Kind::SynAck;
        script.sender.on_packet(script.now, &answer, &mut script.out);
        script
    }

    fn after(&mut self, millis: u64) -> &mut Self {
        self.now += Span::from_millis(millis);
        self
    }

    /// Writes segments. Returns the numbers of the segments that leave.
    fn write(&mut self, segments: u64) -> Vec<u64> {
        self.sender.write(self.now, segments * 1000, &mut self.out);
        self.left()
    }

    /// Acknowledges segments up to `number`, and `ranges` selectively. Returns the segments that
    /// leave.
    fn ack(&mut self, number: u64, ranges: &[(u64, u64)]) -> Vec<u64> {
        self.ack_echoing(number, self.now - Span::from_millis(100), ranges)
    }

    fn ack_echoing(&mut self, number: u64, echo: Time, ranges: &[(u64, u64)]) -> Vec<u64> {
        let packet = self.answer(number, echo, ranges);
        self.sender.on_packet(self.now, &packet, &mut self.out);
        self.left()
    }

    fn answer(&self, number: u64, stamp: Time, ranges: &[(u64, u64)]) -> Packet {
        let mut sacks = Sacks::default();
        for (start, end) in ranges {
            sacks.push(number * 1000, start * 1000, end * 1000);
        }
        Packet {
            flow: 0,
            route: 0,
            size: 66,
            length: 1 << 20,
            sequence: number * 1000,
            stamp,
            sacks,
            kind: Kind::Ack,
            flags: Flags::default(),
            tag: Tag::NONE,
        }
    }

    /// Advances to the next timer; returns the wait in milliseconds, and the segments that left.
    fn timer(&mut self) -> (u64, Vec<u64>) {
        let at = self.sender.timer();
        let waited = at.since(self.now).nanos() / 1_000_000;
        self.now = at;
        self.sender.on_timer(self.now, &mut self.out);
        (waited, self.left())
    }

    fn left(&mut self) -> Vec<u64> {
        self.out.drain(..).map(|packet| packet.sequence / 1000).collect()
    }

    fn window(&self) -> u64 {
        self.sender.window() / 1000
    }
}

/// RFC 6928, and slow start: two segments leave for each acknowledged segment.
#[test]
fn the_first_window_is_ten_segments() {
    let mut script = Script::new(TcpConfig::default());
    assert_eq!(script.write(100), (0..10).collect::<Vec<_>>());
    assert_eq!(script.after(100).ack(2, &[]), [10, 11, 12, 13]);
    assert_eq!(script.ack(3, &[]), [14, 15]);
}

/// RFC 8985 without reordering: three SACKs beyond a hole mark the segment as lost, and the sender
/// retransmits it at once. RFC 6937 then sends one segment for every two that arrive.
#[test]
fn three_sacks_beyond_a_hole_mark_a_loss() {
    let mut script = Script::new(TcpConfig::default());
    script.write(10);
    script.write(100);
    assert_eq!(script.after(100).ack(0, &[(1, 2)]).first(), Some(&10));
    // Data acknowledged out of order makes room, but does not enlarge the window
    // (`tcp_may_raise_cwnd`). Segmentation offload leaves a small room unused while more ACKs are
    // due.
    assert_eq!(script.ack(0, &[(1, 3)]), [0; 0]);
    assert_eq!(script.ack(0, &[(1, 4)]), [0]);
    assert_eq!(script.sender.counts().recoveries, 1);
    let mut sent = 0;
    for end in 5..=10 {
        sent += script.ack(0, &[(1, end)]).len();
    }
    assert!((2..=4).contains(&sent), "{sent}");
    // The retransmission fills the hole a round trip later, and the window is half of the former
    // flight.
    script.after(100).ack(14, &[]);
    assert_eq!(script.window(), 6);
}

/// Two SACKs are too few: RACK's timer expires a quarter of a round trip later (6.2, step 5), and
/// Linux's timers wait two milliseconds more.
#[test]
fn after_two_sacks_rack_waits_for_its_reordering_window() {
    let mut script = Script::new(TcpConfig::default());
    script.write(4);
    assert_eq!(script.after(100).ack(0, &[(2, 4)]), [0; 0]);
    let (waited, sent) = script.timer();
    // The two segments are lost; proportional rate reduction allows one retransmission for now.
    assert_eq!((waited, sent), (27, vec![0]));
    assert_eq!(script.after(100).ack(1, &[(2, 4)]), [1]);
}

/// The arrival of a segment that was sent after a retransmission shows that the retransmission was
/// lost.
#[test]
fn a_lost_retransmission_is_retransmitted() {
    let mut script = Script::new(TcpConfig::default());
    script.write(100);
    assert_eq!(script.after(100).ack(0, &[(1, 10)]).first(), Some(&0));
    // New data follows the retransmission.
    let new: Vec<u64> = (0..3).flat_map(|_| script.after(1).ack(0, &[(1, 10)])).collect();
    assert!(new.iter().all(|number| *number >= 10));
    let again = script.after(130).ack(0, &[(1, 12)]);
    assert_eq!(again.first(), Some(&0), "{again:?}");
    assert_eq!(script.sender.counts().timeouts, 0);
}

/// RFC 8985, 7: the sender retransmits the last segment after two round trips. If the ACK shows
/// that the segment was lost, the window shrinks.
#[test]
fn a_tail_loss_probe_repairs_the_last_segment() {
    let mut script = Script::new(TcpConfig::default());
    script.write(5);
    script.after(100).ack(4, &[]);
    let window = script.window();
    let (waited, sent) = script.timer();
    // The receiver may delay the ACK of a single segment.
    assert_eq!((waited / 10, sent), (30, vec![4]));
    assert_eq!(script.sender.counts().probes, 1);
    script.after(100).ack(5, &[]);
    script.write(1);
    script.after(100).ack(6, &[]);
    assert!(script.window() < window, "{} {window}", script.window());
    assert_eq!(script.sender.counts().timeouts, 0);
}

/// The receiver answers a spurious probe with a DSACK, and the window does not shrink.
#[test]
fn a_spurious_probe_does_not_shrink_the_window() {
    let mut script = Script::new(TcpConfig::default());
    script.write(5);
    script.after(100).ack(4, &[]);
    let window = script.window();
    script.timer();
    script.after(10).ack(5, &[]);
    script.after(90).ack(5, &[(4, 5)]);
    script.write(1);
    script.after(100).ack(6, &[]);
    assert!(script.window() >= window);
    assert_eq!(script.sender.counts().recoveries, 0);
}

/// RFC 6298: the wait doubles with each timeout in a row, and the sender retransmits only the first
/// segment.
#[test]
fn retransmission_timeouts_back_off_exponentially() {
    let mut script = Script::new(TcpConfig { tail_loss_probe: false, ..TcpConfig::default() });
    script.write(10);
    let mut waits = Vec::new();
    for _ in 0..4 {
        let (waited, sent) = script.timer();
        assert_eq!(sent, [0]);
        waits.push(waited);
    }
    // The timeout is the round trip of 100 ms plus the minimum variation term of 200 ms.
    assert_eq!(waits, [300, 600, 1200, 2400]);
    assert_eq!(script.window(), 1);
    // Then slow start repairs the remaining losses.
    assert_eq!(script.after(100).ack(1, &[]), [1, 2]);
    assert_eq!(script.after(100).ack(3, &[]), [3, 4, 5, 6]);
}

/// Eifel (RFC 3522): the ACK after a timeout echoes the first transmission, so no segment was lost,
/// and the sender restores the window.
#[test]
fn a_spurious_timeout_is_undone() {
    let mut script = Script::new(TcpConfig { tail_loss_probe: false, ..TcpConfig::default() });
    script.write(10);
    let sent_at = script.now;
    assert_eq!(script.timer().1, [0]);
    assert_eq!(script.window(), 1);
    script.after(20);
    assert_eq!(script.ack_echoing(2, sent_at, &[]), [0; 0]);
    assert_eq!(script.sender.counts().undone, 1);
    assert!(script.window() >= 10, "{}", script.window());
}

/// DSACKs for every retransmission show that the recovery was spurious (RFC 3708), and RACK waits
/// longer from then on.
#[test]
fn dsacks_undo_a_recovery() {
    let mut script = Script::new(TcpConfig::default());
    script.write(100);
    script.after(100).ack(0, &[(1, 5)]);
    assert_eq!(script.sender.counts().recoveries, 1);
    let before = 10;
    assert!(script.after(5).ack(5, &[]).iter().all(|number| *number > 9));
    script.after(95).ack(6, &[(0, 1)]);
    assert_eq!(script.sender.counts().undone, 1);
    assert!(script.window() >= before, "{}", script.window());
}

/// The receiver's window limits the sent data.
#[test]
fn no_segment_is_sent_beyond_the_offered_window() {
    let mut script = Script::new(TcpConfig::default());
    script.sender.write(script.now, 0, &mut script.out);
    let mut packet = script.answer(0, script.now, &[]);
    packet.length = 1 << 20;
    script.sender.on_packet(script.now, &packet, &mut script.out);
    let mut most = script.write(5000).last().copied();
    for number in 1..3000 {
        let sent = script.after(1).ack(number, &[]);
        most = sent.last().copied().or(most);
        assert!(most.is_none_or(|most| most < number + 1049), "{most:?} {number}");
    }
}

/// An unanswered SYN is repeated after 1, 2, 4 seconds.
#[test]
fn an_unanswered_syn_is_retransmitted() {
    let config = Arc::new(TcpConfig { opening: Opening::BySender, ..TcpConfig::default() });
    let identity = Identity { flow: 0, route: 0, algorithm: Algorithm::Reno, seed: 1 };
    let mut sender = Sender::new(config, identity);
    let mut out = Vec::new();
    sender.open(Time::ZERO, &mut out);
    let mut times = Vec::new();
    for _ in 0..3 {
        let at = sender.timer();
        sender.on_timer(at, &mut out);
        times.push(at.nanos() / 1_000_000_000);
    }
    assert_eq!(times, [1, 3, 7]);
    assert!(out.len() == 4 && out.iter().all(|packet| packet.kind == Kind::Syn));
}

/// With forged, duplicate or late answers, a window grows by the requests at most, and not beyond
/// its cap.
#[test]
fn forged_caqm_answers_do_not_enlarge_the_window() {
    let usual = crate::CaqmHosts::default();
    for (cap, expected) in [(1 << 20, None), (14, Some(14))] {
        let settings = CaqmSettings { max_cwnd: cap, ..usual.settings };
        let caqm = crate::CaqmHosts { settings, ..usual };
        let opening = Opening::Established;
        let config = TcpConfig {
            mss: Bytes::new(1000),
            tick: Span::ZERO,
            opening,
            caqm,
            ..TcpConfig::default()
        };
        let identity = Identity { flow: 0, route: 0, algorithm: Algorithm::Caqm, seed: 1 };
        let sender = Sender::new(Arc::new(config), identity);
        let mut script = Script { sender, now: Time::ZERO, out: Vec::new() };
        script.sender.open(script.now, &mut script.out);
        script.sender.write(script.now, 1 << 30, &mut script.out);
        let asked: u64 =
            script.out.iter().filter_map(|sent| caqm.read(sent.tag)).map(hint_of).sum();
        assert_eq!((script.out.len(), asked), (10, 10 * 1024));
        script.out.clear();
        script.after(1);
        let mut packet = script.answer(0, Time::ZERO, &[]);
        let strangers = [
            Tag::new(0x88b5, Info::answer(255)),
            Tag::new(usual.tpid, Info::answer(255).of_kind(1)),
            Tag::new(usual.tpid, Info::request(255)),
            Tag::new(usual.tpid, Info::question()),
            Tag::NONE,
        ];
        for tag in strangers {
            packet.tag = tag;
            script.sender.on_packet(script.now, &packet, &mut script.out);
        }
        assert_eq!(script.window(), 10);
        // A repeated ACK acknowledges no new data, so the sender requests no more.
        for _ in 0..1000 {
            packet.tag = caqm.tag(Info::answer(255));
            script.sender.on_packet(script.now, &packet, &mut script.out);
            script.out.clear();
        }
        // The window grows at most to twice its size plus two in a round trip.
        let most = expected.unwrap_or(22);
        assert!(script.window() <= most, "{} of {most}", script.window());
        for _ in 0..1000 {
            packet.tag = caqm.tag(Info::answer(-255));
            script.sender.on_packet(script.now, &packet, &mut script.out);
        }
        assert_eq!(script.window(), 1);
    }
}

/// An ACK of a forger who does not know the connection's sequence numbers has no effect, with or
/// without a tag.
#[test]
fn acknowledgements_outside_the_window_change_nothing() {
    let caqm = crate::CaqmHosts::default();
    let mss = Bytes::new(1000);
    let opening = Opening::Established;
    let config = TcpConfig { mss, tick: Span::ZERO, opening, ..TcpConfig::default() };
    let identity = Identity { flow: 0, route: 0, algorithm: Algorithm::Caqm, seed: 1 };
    let sender = Sender::new(Arc::new(config), identity);
    let mut script = Script { sender, now: Time::ZERO, out: Vec::new() };
    script.sender.open(script.now, &mut script.out);
    script.write(1 << 20);
    // Send several times the largest window, which is the 1 MiB of the first ACK.
    for round in 0..40 {
        script.after(100);
        let mut packet = script.answer(script.sender.board.nxt() / 1000, script.now, &[]);
        packet.tag = caqm.tag(Info::answer(255));
        script.sender.on_packet(script.now, &packet, &mut script.out);
        script.out.clear();
        assert!(script.sender.board.una() > 0, "{round}");
    }
    let (una, nxt, window) =
        (script.sender.board.una(), script.sender.board.nxt(), script.window());
    assert!(una > 2 << 20 && window > 100, "{una} {window}");
    let refuse = |script: &mut Script, acknowledged: u64| {
        let mut packet = script.answer(0, script.now, &[]);
        packet.sequence = acknowledged;
        packet.tag = caqm.tag(Info::answer(-255));
        script.sender.on_packet(script.now, &packet, &mut script.out);
    };
    for outside in [0, una - (1 << 20) - 1, nxt + 1, nxt + (1 << 30), u64::MAX] {
        refuse(&mut script, outside);
        let now = (script.sender.board.una(), script.sender.board.nxt(), script.window());
        assert_eq!(now, (una, nxt, window), "{outside}");
    }
    // An ACK that later ACKs have overtaken still counts.
    refuse(&mut script, una - 1000);
    assert!(script.window() < window);
}

fn hint_of(asked: Info) -> u64 {
    match asked.meaning() {
        wire::caqm::Meaning::More(units) => u64::from(units) * 8,
        _ => 0,
    }
}
