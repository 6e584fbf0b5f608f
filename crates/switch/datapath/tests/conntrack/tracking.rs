//! A tracker with a clock, and shorthands for `ct` actions.

use std::net::{IpAddr, Ipv4Addr};

use datapath::conntrack::{Conntrack, Settings, View};
use datapath::{TrackCall, Tracked};
use flow::Field;
use flow::action::{Nat, NatAddresses, NatDirection};
use flow::step::{Step, Track};
use units::{Span, Time};

use crate::frames::Frame;

pub(crate) struct Tracker {
    pub(crate) table: Conntrack,
    pub(crate) now: Time,
}

pub(crate) fn tracker() -> Tracker {
    Tracker::with(&Settings::default())
}

impl Tracker {
    pub(crate) fn with(settings: &Settings) -> Self {
        Self { table: Conntrack::new(settings), now: Time::from_nanos(5_000_000_000) }
    }

    pub(crate) fn pass(&mut self, span: Span) {
        self.now += span;
    }

    pub(crate) fn track(&self, frame: &mut Frame, track: &Track) -> Tracked {
        track_at(&self.table, frame, track, self.now)
    }

    /// Tracks a new packet, and returns its flags.
    pub(crate) fn state(&self, frame: Frame, track: &Track) -> String {
        let mut frame = frame;
        if self.track(&mut frame, track) == Tracked::Dropped {
            return "dropped".to_owned();
        }
        flags(&frame)
    }

    pub(crate) fn dump(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.table.dump(None, self.now, |connection, _| {
            lines.push(text::print_connection(connection));
        });
        lines.sort();
        lines
    }
}

pub(crate) fn track_at(table: &Conntrack, frame: &mut Frame, track: &Track, now: Time) -> Tracked {
    let steps = [Step::Track(Box::new(track.clone()))];
    let call = TrackCall::first_of(&steps).expect("a Track");
    let headers = frame.headers;
    let hash = table.hash(&frame.key, &frame.bytes, headers, track.zone);
    table.prefetch(&[hash], &mut [0]);
    let mut view = View::new(&mut frame.key, &mut frame.bytes, headers);
    table.track(&mut view, &call, Some(hash), now)
}

/// Returns the flags as text, such as `new|trk`, in the order of the bits.
pub(crate) fn flags(frame: &Frame) -> String {
    let names = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
    let bits = frame.key.read(Field::CtState);
    let set: Vec<&str> = (0..8).filter(|bit| bits >> bit & 1 == 1).map(|bit| names[bit]).collect();
    set.join("|")
}

/// Builds the call of `ct(zone=…)`.
pub(crate) fn look(zone: u16) -> Track {
    Track { zone, nat: Some(Nat::default()), ..Track::default() }
}

/// Builds the call of `ct(commit,zone=…)`.
pub(crate) fn commit(zone: u16) -> Track {
    Track { zone, commit: true, ..Track::default() }
}

/// Builds the call of `ct(commit,zone=…,nat(src=…))`.
pub(crate) fn snat(zone: u16, addresses: &str, ports: Option<(u16, u16)>) -> Track {
    translation(zone, NatDirection::Source, addresses, ports)
}

pub(crate) fn dnat(zone: u16, addresses: &str, ports: Option<(u16, u16)>) -> Track {
    translation(zone, NatDirection::Destination, addresses, ports)
}

fn translation(
    zone: u16,
    direction: NatDirection,
    addresses: &str,
    ports: Option<(u16, u16)>,
) -> Track {
    let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
    let parse = |text: &str| text.parse::<IpAddr>().expect("address");
    let addresses = match (parse(first), parse(last)) {
        (IpAddr::V4(first), IpAddr::V4(last)) => NatAddresses::V4(first..=last),
        (IpAddr::V6(first), IpAddr::V6(last)) => NatAddresses::V6(first..=last),
        _ => panic!("a range of one IP version"),
    };
    let nat = Nat {
        direction: Some(direction),
        addresses: Some(addresses),
        ports: ports.map(|(first, last)| first..=last),
        ..Nat::default()
    };
    Track { zone, commit: true, nat: Some(nat), ..Track::default() }
}

pub(crate) fn v4(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}
