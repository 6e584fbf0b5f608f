use super::ranges::Ranges;
use super::ticks::Ticks;
use super::window::{InOrder, Window};
use crate::packet::{Flags, Kind, Packet, Sacks, Tag};
use crate::{Ecn, Flaw, Opening, ReceiveWindow, TcpConfig};
use cc::caqm::CaqmReceiver;
use std::sync::Arc;
use units::{Span, Time};

/// The receiving end of a connection: reassembles the stream, and acknowledges.
#[derive(Debug)]
pub(crate) struct Receiver {
    config: Arc<TcpConfig>,
    flow: u32,
    route: u32,
    /// RCV.NXT: the application has all data below this sequence.
    next: u64,
    /// The sequence number of the last ACK.
    acknowledged: u64,
    /// The end of the window that the last ACK offered.
    promised: u64,
    /// The number of bytes that the application has read; `None` for an application that reads at
    /// once.
    read: Option<u64>,
    beyond: Ranges,
    /// The bytes in the ranges behind holes.
    waiting: u64,
    /// The ranges that changed most recently, newest first (RFC 2018, section 4).
    recent: [u64; RECENT],
    needless: Option<(u64, u64)>,
    /// TS.Recent (RFC 7323, 4.3).
    echo: Time,
    window: Window,
    quick_acks: u32,
    merged: MergedAcks,
    /// The time of the last arrival of data in order.
    arrived_at: Time,
    /// The time at which a delayed ACK must leave.
    due: Time,
    /// The time of the SYN in flight, and the number of tries.
    syn_sent: Option<(Time, u32)>,
    mark: Mark,
    last: Option<u64>,
    answers: Answers,
}

/// The receiver's pending answers to requests in CAQM tags.
#[derive(Debug, Default)]
struct Answers {
    /// Whether both ends have agreed on tags.
    agreed: bool,
    /// Whether the next ACK has an answer to report.
    due: bool,
    sums: Option<Box<CaqmReceiver>>,
}

/// The receiver's pending echoes of congestion marks.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    /// For DCTCP, whether the latest segment was marked (DCTCP.CE, RFC 8257, 3.2). For classic ECN,
    /// whether ACKs carry ECE, which they do until CWR arrives (RFC 3168, 6.1.3).
    seen: bool,
}

/// Delayed ACKs of data out of order, which the receiver merges into one ACK
/// (`__tcp_ack_snd_check`).
#[derive(Debug, Clone, Copy)]
struct MergedAcks {
    /// The sequence number of merged ACKs, and the number of ACKs that left at once.
    next: u64,
    sent: u32,
    waiting: u32,
    due: Time,
}

impl Receiver {
    pub(crate) fn new(config: Arc<TcpConfig>, flow: u32, route: u32) -> Self {
        let window = Window::new(&config);
        Self {
            flow,
            route,
            next: 0,
            acknowledged: 0,
            promised: window.offered(0, 0),
            read: None,
            beyond: Ranges::default(),
            waiting: 0,
            recent: [u64::MAX; RECENT],
            needless: None,
            echo: Time::ZERO,
            window,
            quick_acks: config.quick_acks,
            merged: MergedAcks { next: 0, sent: 0, waiting: 0, due: Time::NEVER },
            arrived_at: Time::NEVER,
            due: Time::NEVER,
            syn_sent: None,
            mark: Mark::default(),
            last: None,
            answers: Answers::default(),
            config,
        }
    }

    /// Makes the application read with [`read`](Self::read), so that unread data shrinks the
    /// window.
    pub(crate) fn with_reader(self) -> Self {
        Self { read: Some(0), ..self }
    }

    pub(crate) fn open(&mut self, now: Time, out: &mut Vec<Packet>) {
        match self.config.opening {
            Opening::ByReceiver => self.send_syn(now, 0, out),
            Opening::Established => self.answers.agreed = self.config.caqm.receiver,
            Opening::BySender => {}
        }
    }

    pub(crate) fn on_packet(&mut self, now: Time, packet: &Packet, out: &mut Vec<Packet>) {
        match packet.kind {
            Kind::Syn => {
                self.window.handshake(now, None);
                let flags = self.agree(packet);
                let mut answer = Packet { kind: Kind::SynAck, ..self.packet(0, packet.stamp) };
                if flags.has(Flags::SPEAKS) {
                    answer.offer(Tag::NONE);
                }
                out.push(Packet { flags, ..answer });
            }
            Kind::SynAck => {
                if let Some((since, _)) = self.syn_sent.take() {
                    self.window.handshake(now, Some(now.since(since)));
                    self.due = Time::NEVER;
                }
                let flags = self.agree(packet);
                out.push(Packet { flags, ..self.packet(self.next, packet.stamp) });
            }
            Kind::Data => self.on_data(now, packet, out),
            Kind::Ack | Kind::Datagram | Kind::Tunnelled => {}
        }
    }

    #[inline]
    pub(crate) fn timer(&self) -> Time {
        self.due.min(self.merged.due)
    }

    pub(crate) fn on_timer(&mut self, now: Time, out: &mut Vec<Packet>) {
        if self.timer() > now {
            return;
        }
        if let Some((_, tries)) = self.syn_sent {
            self.send_syn(now, tries + 1, out);
            return;
        }
        self.acknowledge(out);
    }

    /// Returns the number of bytes in order, which the application can read.
    #[inline]
    pub(crate) fn received(&self) -> u64 {
        self.next
    }

    /// Returns the number of bytes in order that the application has not read yet.
    pub(crate) fn unread(&self) -> u64 {
        self.read.map_or(0, |read| self.next - read)
    }

    /// Records that the application reads `bytes`. Reports the room to the sender once it is a
    /// segment or half of the window (RFC 9293, section 3.8.6.2.2).
    pub(crate) fn read(&mut self, bytes: u64, out: &mut Vec<Packet>) {
        let Some(read) = &mut self.read else { return };
        let before = self.next - *read;
        *read += bytes.min(before);
        let worth = self.config.mss.count().min(self.window.widest() / 2);
        if self.promised + worth <= self.next + self.room() {
            self.acknowledge(out);
        }
    }

    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.last == Some(self.next)
    }

    fn on_data(&mut self, now: Time, packet: &Packet, out: &mut Vec<Packet>) {
        let (start, end) = (packet.sequence, packet.sequence + u64::from(packet.length));
        if self.syn_sent.take().is_some() {
            self.due = Time::NEVER;
        }
        if end > self.promised {
            self.acknowledge(out);
            return;
        }
        if packet.flags.has(Flags::LAST) {
            self.last = Some(end);
        }
        self.take_mark(packet, out);
        if start <= self.acknowledged {
            self.echo = self.echo.max(packet.stamp);
        }
        let (mut at_once, mut news) = (true, true);
        if end <= self.next {
            news = false;
            self.needless = Some((start, end));
            // An ACK was probably lost (`tcp_enter_quickack_mode`).
            self.quick_acks = self.config.quick_acks;
        } else if start <= self.next {
            let before = self.next;
            // After an idle period the sender begins with a small window (`tcp_event_data_recv`).
            if now.since(self.arrived_at) > self.config.rto_min {
                self.quick_acks = self.config.quick_acks;
            }
            self.arrived_at = now;
            self.next = end;
            if self.beyond.is_empty() {
                at_once = false;
            } else {
                while let Some((start, end)) = self.beyond.take_reaching(self.next) {
                    self.waiting -= end - start;
                    self.next = self.next.max(end);
                }
                at_once = self.beyond.is_empty();
            }
            let came = InOrder { bytes: self.next - before, new: end - before, span: self.span() };
            self.window.in_order(now, packet.stamp, came);
        } else {
            let mut fresh = 0;
            self.beyond.add(start, end, |start, end| fresh += end - start);
            self.waiting += fresh;
            news = fresh > 0;
            if !news {
                self.needless = Some((start, end));
            }
            self.note_recent(start, out);
            at_once = !news;
        }
        if news {
            self.take_request(packet);
            let held = self.unread() + self.waiting;
            self.window.segment(packet.length.into(), held, self.span());
        }
        if at_once || self.is_complete() {
            self.acknowledge(out);
        } else if self.beyond.is_empty() {
            self.consider(now, out);
        } else {
            self.gather(now, out);
        }
    }

    /// Acknowledges data behind a hole: the first segments at once, later segments with delayed,
    /// merged ACKs.
    fn gather(&mut self, now: Time, out: &mut Vec<Packet>) {
        if self.quick_acks > 0 {
            self.quick_acks -= 1;
            return self.acknowledge(out);
        }
        let rtt = self.window.rtt().filter(|_| self.config.delayed_ack.is_some());
        let Some(rtt) = rtt else { return self.acknowledge(out) };
        let merged = &mut self.merged;
        if merged.next != self.next {
            (merged.next, merged.sent) = (self.next, 0);
        }
        let reported = merged.sent >= DUPLICATES;
        if !reported || merged.waiting >= MOST_MERGED {
            merged.sent += u32::from(!reported);
            return self.acknowledge(out);
        }
        merged.waiting += 1;
        if merged.due == Time::NEVER {
            merged.due = now + (rtt / 20).min(GATHERS_FOR) + GATHER_SLACK;
        }
    }

    /// Sends an ACK now, or delays it until the next data (RFC 1122, 4.2.3.2;
    /// `__tcp_ack_snd_check`).
    #[inline]
    fn consider(&mut self, now: Time, out: &mut Vec<Packet>) {
        let waiting = self.next - self.acknowledged;
        let mss = self.config.mss.count();
        if self.quick_acks > 0 {
            self.quick_acks -= 1;
            return self.acknowledge(out);
        }
        let Some(delay) = self.config.delayed_ack else { return self.acknowledge(out) };
        // Answer requests without delay: otherwise a window of one segment would stall for the
        // whole delay.
        let delay = if self.answers.due { Span::ZERO } else { delay };
        match self.config.coalesce {
            coalesce if delay == Span::ZERO => match coalesce.filter(|_| waiting < COALESCED) {
                Some(span) => self.due = self.due.min(now + span),
                None => self.acknowledge(out),
            },
            Some(_) if waiting >= COALESCED => self.acknowledge(out),
            Some(span) if waiting > mss => self.due = self.due.min(now + span),
            None if waiting > mss => self.acknowledge(out),
            _ if self.due == Time::NEVER => {
                self.due = Ticks(self.config.tick).after(now, delay);
            }
            _ => {}
        }
    }

    /// Answers an offer in the peer's part of the handshake.
    fn agree(&mut self, packet: &Packet) -> Flags {
        let mut flags = Flags::default();
        if self.config.caqm.receiver && packet.flags.has(Flags::SPEAKS) {
            self.answers.agreed = true;
            flags.set(Flags::SPEAKS);
            let asked = self.config.caqm.read(packet.tag).filter(|asked| asked.is_request());
            if asked.is_some_and(|asked| !asked.is_question()) {
                flags.set(Flags::SPOKEN_TO);
            }
        }
        flags
    }

    /// Processes the CAQM tag of a segment with new data; duplicates do not count twice.
    fn take_request(&mut self, packet: &Packet) {
        let answers = &mut self.answers;
        if packet.tag == Tag::NONE || !answers.agreed {
            return;
        }
        let caqm = &self.config.caqm;
        if let Some(asked) = caqm.read(packet.tag).filter(|asked| asked.is_request()) {
            let new = || Box::new(CaqmReceiver::new(&caqm.settings));
            answers.sums.get_or_insert_with(new).data(asked, 1);
            answers.due = true;
        }
    }

    fn take_mark(&mut self, packet: &Packet, out: &mut Vec<Packet>) {
        let marked = packet.flags.has(Flags::MARKED);
        match self.config.ecn {
            Ecn::Off => {}
            Ecn::Classic => {
                if packet.flags.has(Flags::REDUCED) {
                    self.mark.seen = false;
                }
                self.mark.seen |= marked;
            }
            Ecn::ByAlgorithm => {
                if marked != self.mark.seen {
                    // Earlier unacknowledged data has the opposite marking. Acknowledge the earlier
                    // data first, so that each ACK reports one marking.
                    if self.next > self.acknowledged {
                        self.acknowledge(out);
                    }
                    self.mark.seen = marked;
                }
            }
        }
    }

    fn note_recent(&mut self, start: u64, out: &mut Vec<Packet>) {
        let Some((first, end)) = self.beyond.containing(start) else { return };
        if self.merged.waiting > 0 {
            // Keep ranges in the list that no ACK has reported yet (`tcp_sack_new_ofo_skb`).
            let known = self.recent.iter().position(|recent| (first..end).contains(recent));
            let crowded = match known {
                Some(index) => index + 1 >= Sacks::ROOM,
                None => self.beyond.containing(self.recent[RECENT - 1]).is_some(),
            };
            if crowded {
                self.acknowledge(out);
            }
        }
        let mut moved = first;
        for place in &mut self.recent {
            std::mem::swap(place, &mut moved);
            // The range was already in the list, perhaps as a smaller range.
            if (first..end).contains(&moved) {
                break;
            }
        }
    }

    fn acknowledge(&mut self, out: &mut Vec<Packet>) {
        let mut packet = self.packet(self.next, self.echo);
        if let Some((start, end)) = self.needless.take() {
            packet.sacks.push(self.next, start, end);
        }
        if !self.beyond.is_empty() && self.config.flaw != Some(Flaw::NoSack) {
            let mut reported = [u64::MAX; RECENT];
            for (index, recent) in self.recent.into_iter().enumerate() {
                if let Some((start, end)) =
                    self.beyond.containing(recent).filter(|_| recent != u64::MAX)
                    && !reported.contains(&start)
                {
                    packet.sacks.push(self.next, start, end);
                    reported[index] = start;
                }
            }
        }
        if self.mark.seen {
            packet.flags.set(Flags::ECHO);
        }
        if self.answers.due
            && let Some(sums) = &mut self.answers.sums
        {
            packet.bear(self.config.caqm.tag(sums.answer()));
            let (more, fewer) = sums.owed();
            let unit = u64::from(self.config.caqm.settings.ack_hint_unit);
            self.answers.due = more.max(fewer).count() >= unit;
        }
        self.acknowledged = self.next;
        self.promised = self.next + u64::from(packet.length);
        self.due = Time::NEVER;
        (self.merged.waiting, self.merged.due) = (0, Time::NEVER);
        out.push(packet);
    }

    fn send_syn(&mut self, now: Time, tries: u32, out: &mut Vec<Packet>) {
        self.syn_sent = Some((now, tries));
        let wait = self.config.rto_initial * (1u64 << tries.min(32));
        self.due = now + wait.min(self.config.rto_max);
        let mut packet = Packet { kind: Kind::Syn, ..self.packet(0, now) };
        if self.config.caqm.receiver {
            packet.offer(Tag::NONE);
        }
        out.push(packet);
    }

    /// Returns the window from the first missing byte on. The window never shrinks below an offered
    /// window (`tcp_select_window`).
    fn room(&self) -> u64 {
        let offered = self.window.offered(self.unread(), self.waiting);
        offered.max(self.promised.saturating_sub(self.next))
    }

    /// Returns the distance from the first missing byte to the last byte behind a hole.
    fn span(&self) -> u64 {
        self.beyond.end().map_or(0, |end| end - self.next)
    }

    fn packet(&self, sequence: u64, stamp: Time) -> Packet {
        Packet {
            flow: self.flow,
            route: self.route,
            size: self.config.headers.count() as u32,
            length: self.room() as u32,
            sequence,
            stamp,
            sacks: Sacks::default(),
            kind: Kind::Ack,
            flags: Flags::default(),
            tag: Tag::NONE,
        }
    }
}

pub(super) fn initial_window(config: &TcpConfig) -> u32 {
    let bytes = match config.receive_window {
        ReceiveWindow::Fixed(bytes) => bytes,
        ReceiveWindow::Auto { initial, max } => initial.min(max),
    };
    bytes.count().min(u64::from(u32::MAX)) as u32
}

/// TCP_NUM_SACKS
const RECENT: usize = 4;
/// TCP_FASTRETRANS_THRESH: the duplicate ACKs that a sender without RACK needs.
const DUPLICATES: u32 = 3;
/// `tcp_comp_sack_nr`, `tcp_comp_sack_delay_ns`, `tcp_comp_sack_slack_ns`.
const MOST_MERGED: u32 = 44;
const GATHERS_FOR: Span = Span::from_millis(1);
const GATHER_SLACK: Span = Span::from_micros(100);
/// Maximum number of bytes that GRO merges.
const COALESCED: u64 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use units::Bytes;

    fn data(sequence: u64) -> Packet {
        let receiver = Receiver::new(Arc::default(), 0, 0);
        Packet { kind: Kind::Data, length: 1000, ..receiver.packet(sequence, Time::ZERO) }
    }

    #[test]
    fn unread_data_shrinks_the_window_and_new_room_is_reported() {
        let config = TcpConfig {
            mss: Bytes::new(1000),
            delayed_ack: None,
            receive_window: ReceiveWindow::Fixed(Bytes::new(3000)),
            ..TcpConfig::default()
        };
        let mut receiver = Receiver::new(Arc::new(config), 0, 0).with_reader();
        let mut out = Vec::new();
        for segment in 0..3 {
            receiver.on_packet(Time::ZERO, &data(1000 * segment), &mut out);
        }
        let windows: Vec<u32> = out.drain(..).map(|packet| packet.length).collect();
        assert_eq!((windows, receiver.unread()), (vec![2000, 1000, 0], 3000));
        // The receiver drops data beyond the window.
        receiver.on_packet(Time::ZERO, &data(3000), &mut out);
        assert_eq!((out.pop().unwrap().sequence, receiver.received()), (3000, 3000));
        receiver.read(999, &mut out);
        assert_eq!(out, []);
        receiver.read(1, &mut out);
        assert_eq!(out.pop().map(|packet| packet.length), Some(1000));
        receiver.read(5000, &mut out);
        assert_eq!(out.pop().map(|packet| packet.length), Some(3000));
        assert_eq!(receiver.unread(), 0);
    }
}
