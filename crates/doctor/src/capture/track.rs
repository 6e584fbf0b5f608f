//! A connection of a capture: both directions, its handshake and its end.

use super::half::Half;
use crate::recording::{Connection, ConnectionState, Tcp};
use std::net::SocketAddr;
use units::{Bytes, Span};
use wire::tcp::Segment;

/// The ends in the order of their addresses, so that both directions have the same key.
pub(super) type Ends = (SocketAddr, SocketAddr);

pub(super) fn ends(segment: &Segment) -> Ends {
    let (a, b) = (segment.source, segment.destination);
    if a <= b { (a, b) } else { (b, a) }
}

#[derive(Debug, Default)]
pub(super) struct Track {
    /// Only one direction was captured.
    is_one_way: bool,
    /// The direction that the lower end of [`Ends`] sends, and the direction that the higher end
    /// sends.
    halves: [Half; 2],
    seen: [bool; 2],
    handshake: Handshake,
    is_over: bool,
    scaled: [Option<Option<u8>>; 2],
    sack: [Option<bool>; 2],
    asks_for_marks: [Option<bool>; 2],
}

#[derive(Debug, Default)]
struct Handshake {
    /// The end that opened the connection, the sequence number and time of its SYN.
    opened: Option<(usize, u32, u64)>,
    syns: u32,
    answered: Option<u64>,
    is_complete: bool,
}

impl Track {
    pub(super) fn new(is_one_way: bool) -> Self {
        Self { is_one_way, ..Self::default() }
    }

    /// Sets the scales of the windows that limit each direction.
    pub(super) fn set_scales(&mut self, scales: [Option<u8>; 2]) {
        for (half, scale) in self.halves.iter_mut().zip(scales) {
            half.scale = scale;
        }
    }

    /// Processes a packet from the end `from`: 0 for the lower address, 1 for the higher.
    pub(super) fn take(&mut self, now: u64, from: usize, segment: &Segment, is_cut: bool) {
        if self.is_over && segment.flags.syn() {
            return;
        }
        self.seen[from] = true;
        if segment.flags.syn() {
            self.syn(now, from, segment, is_cut);
        } else if let (Some((client, ..)), Some(answered), false) =
            (self.handshake.opened, self.handshake.answered, self.handshake.is_complete)
            && client == from
        {
            self.handshake.is_complete = true;
            let trip = now.saturating_sub(answered);
            // The client is the far side of the server's direction.
            self.halves[1 - client].there.note(trip);
            self.halves[client].here.note(trip);
        }
        self.is_over |= segment.flags.rst();
        self.halves[from].sends(now, segment);
        self.halves[1 - from].is_answered(now, segment);
    }

    fn syn(&mut self, now: u64, from: usize, segment: &Segment, is_cut: bool) {
        let options = segment.options;
        // An option that is missing may have been cut off.
        if options.window_scale.is_some() || !is_cut {
            self.scaled[from] = Some(options.window_scale);
        }
        if options.sack_permitted || !is_cut {
            self.sack[from] = Some(options.sack_permitted);
        }
        self.asks_for_marks[from] = Some(segment.flags.ece());
        match (self.handshake.opened, segment.flags.ack()) {
            (_, true) => {
                if let Some((_, _, asked)) = self.handshake.opened
                    && self.handshake.answered.is_none()
                    && self.handshake.syns <= 1
                {
                    let trip = now.saturating_sub(asked);
                    self.halves[1 - from].there.note(trip);
                    self.halves[from].here.note(trip);
                }
                self.handshake.opened.get_or_insert((1 - from, 0, now));
                self.handshake.answered.get_or_insert(now);
            }
            (Some((client, sequence, _)), false)
                if client == from && sequence == segment.sequence =>
            {
                self.handshake.syns += 1;
            }
            (None, false) => {
                self.handshake.opened = Some((from, segment.sequence, now));
                self.handshake.syns = 1;
            }
            _ => {}
        }
        if let (Some(one), Some(other)) = (self.scaled[0], self.scaled[1]) {
            // A scale counts only if both ends offered one (RFC 7323 section 2.2).
            let both = one.is_some() && other.is_some();
            let scale = |own: Option<u8>| Some(if both { own.unwrap_or(0) } else { 0 });
            (self.halves[1].scale, self.halves[0].scale) = (scale(one), scale(other));
        }
        if let Some(mss) = options.mss {
            let stamps = if options.timestamps.is_some() { 12 } else { 0 };
            let mss = u32::from(mss).saturating_sub(stamps).max(1);
            for half in &mut self.halves {
                half.agreed_mss = Some(half.agreed_mss.map_or(mss, |agreed| agreed.min(mss)));
            }
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.seen != [false; 2]
    }

    /// Returns the end that moved more data; if both moved equal amounts, the end that opened the
    /// connection.
    pub(super) fn sender(&self) -> usize {
        let [low, high] = [0, 1].map(|end| self.halves[end].moved());
        match (low.cmp(&high), self.handshake.opened) {
            (std::cmp::Ordering::Equal, Some((client, ..))) => client,
            (std::cmp::Ordering::Less, _) => 1,
            _ => 0,
        }
    }

    /// Whether the SYN has no reply yet.
    fn is_opening(&self) -> bool {
        let is_open = self.handshake.answered.is_some() || self.is_over;
        self.handshake.opened.is_some() && !is_open && !self.halves.iter().any(|half| half.has_data)
    }

    /// Returns the connection as the kernel of the end `sender` would list it.
    pub(super) fn connection(&mut self, now: u64, ends: Ends, sender: usize) -> Connection {
        let is_one_way = self.is_one_way;
        let is_opening = self.is_opening();
        let received = self.halves[1 - sender].moved();
        let back = &self.halves[1 - sender];
        let last_received = back.last_data.map(|at| Span::from_nanos(now.saturating_sub(at)));
        let segments_in = u32::try_from(back.segments).unwrap_or(u32::MAX);
        let half = &mut self.halves[sender];
        let scaling = self.scaled[0].zip(self.scaled[1]);
        let marks = self.asks_for_marks[0].zip(self.asks_for_marks[1]);
        let sack = self.sack[0].zip(self.sack[1]);
        let tcp = Tcp {
            window_scaling: scaling.map(|(one, other)| one.is_some() && other.is_some()),
            sack: sack.map(|(one, other)| one && other),
            ecn: marks.map(|(one, other)| one && other),
            bytes_received: (!is_one_way).then(|| Bytes::new(received)),
            data_segments_in: (!is_one_way).then_some(segments_in),
            last_received: last_received.or(Some(Span::from_secs(3600))),
            ..half.facts(now, is_one_way)
        };
        let waiting = half.flying() + tcp.unsent.map_or(0, Bytes::count);
        let (local, remote) = if sender == 0 { ends } else { (ends.1, ends.0) };
        Connection {
            local,
            remote,
            state: match (is_opening, self.is_over) {
                (true, _) => ConnectionState::SynSent,
                (_, true) => ConnectionState::Closing,
                _ => ConnectionState::Established,
            },
            cookie: 0,
            holders: Vec::new(),
            receive_queue: Bytes::ZERO,
            send_queue: Bytes::new(if is_one_way { 0 } else { waiting }),
            receive_limit: None,
            send_limit: None,
            retransmits: match is_opening {
                true => self.handshake.syns.saturating_sub(1),
                false => half.repeats(),
            },
            probing: half.is_closed(),
            drops: 0,
            beside: false,
            congestion: None,
            tcp,
        }
    }
}
