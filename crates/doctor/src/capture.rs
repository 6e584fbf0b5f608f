//! Turns a capture of packets into the facts that an observation of the sender's machine would
//! have: round trips, losses, windows and pauses. The rules judge these facts like the facts of a
//! machine.
//!
//! The capture may come from the sender, the receiver or a point between them: each round trip has
//! a part on either side of the capture. Acknowledgements and the echoes of timestamps (RFC 7323)
//! show both parts.

mod half;
mod live;
mod scale;
mod source;
mod survey;
mod track;

pub use live::live;
pub use source::is_capture;

use crate::DoctorError;
use crate::observe::Focus;
use crate::recording::{Connection, Machine, Origin, Period, Recording, Sample, Unseen};
use crate::words::{counted, span};
use scale::Scale;
use source::Packets;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use survey::{MOST_BUSY, Seen, Survey};
use track::{Ends, Track};
use units::Span;

/// Reads a capture in pcap's or pcapng's format. The file's bytes are not trusted. The first pass
/// finds the connections that moved most data. If the capture began after the handshake of such a
/// connection, another pass finds the scale of the windows.
pub fn open(path: &Path, focus: &Focus) -> Result<Recording, DoctorError> {
    let failed = |source| DoctorError::Capture { path: path.to_owned(), source };
    let file = host::open_regular_file(path).map_err(failed)?;
    let damaged = |error: source::SourceError| match error {
        source::SourceError::Read(source) => failed(source),
        source::SourceError::Format(error) => {
            DoctorError::Malformed { path: path.to_owned(), reason: format!("the file {error}") }
        }
    };
    let pass = || {
        let mut source: &File = &file;
        source.seek(SeekFrom::Start(0)).map_err(failed)?;
        Ok(source)
    };
    judge(pass, damaged, focus)
}

/// Reads a capture in memory, as [`open`] reads a file.
pub fn parse(bytes: &[u8], focus: &Focus) -> Result<Recording, DoctorError> {
    let damaged = |error: source::SourceError| DoctorError::Usage(format!("the capture {error}"));
    judge(|| Ok(bytes), damaged, focus)
}

fn judge<R: Read>(
    open: impl Fn() -> Result<R, DoctorError>,
    damaged: impl Fn(source::SourceError) -> DoctorError,
    focus: &Focus,
) -> Result<Recording, DoctorError> {
    if let Focus::Process(_) = focus {
        return Err(DoctorError::Usage(
            "a capture knows no processes: name port:NUMBER, an address, or ADDRESS:PORT"
                .to_owned(),
        ));
    }
    let mut survey = Survey::default();
    let mut packets = Packets::new(open()?);
    packets.each(|now, segment, is_cut| survey.take(now, segment, is_cut)).map_err(&damaged)?;
    survey.packets = packets.count();
    survey.times = packets.times();
    let is_cut = packets.is_cut();
    let (chosen, unjudged) = survey.chosen(focus);
    survey.unjudged = unjudged;
    let Some((begin, end)) = survey.period(&chosen) else {
        return Err(match focus {
            Focus::All => DoctorError::NoSegments { packets: survey.packets },
            _ => DoctorError::NoFlow(format!("{focus} in this capture")),
        });
    };
    let mut tracks = Tracks::new(&survey, &chosen, begin, end);
    if chosen.iter().any(|ends| survey.connections.get(ends).is_some_and(Seen::lacks_scale)) {
        let mut scales = Scales::new(&chosen);
        let mut packets = Packets::new(open()?);
        packets.each(|_, segment, _| scales.take(segment)).map_err(&damaged)?;
        tracks.set_scales(&scales);
    }
    let mut packets = Packets::new(open()?);
    packets.each(|now, segment, is_cut| tracks.take(now, segment, is_cut)).map_err(&damaged)?;
    Ok(recording(survey, tracks, is_cut, focus))
}

/// The scales of the windows of both directions, for connections without a handshake.
struct Scales(HashMap<Ends, [Scale; 2]>);

impl Scales {
    fn new(chosen: &[Ends]) -> Self {
        Self(chosen.iter().map(|ends| (*ends, Default::default())).collect())
    }

    fn take(&mut self, segment: &wire::tcp::Segment) {
        let ends = track::ends(segment);
        if let Some(scales) = self.0.get_mut(&ends) {
            let from = usize::from(segment.source != ends.0);
            scales[from].sends(segment);
            scales[1 - from].is_answered(segment);
        }
    }
}

/// The chosen connections, with their samples so far.
struct Tracks {
    tracks: HashMap<Ends, Track>,
    order: Vec<Ends>,
    begin: u64,
    /// Nanoseconds between two samples.
    step: u64,
    end: u64,
    /// The facts of both directions of each connection, by the time of the sample.
    samples: Vec<(u64, Vec<[Connection; 2]>)>,
}

impl Tracks {
    fn new(survey: &Survey, chosen: &[Ends], begin: u64, end: u64) -> Self {
        let track = |ends: &Ends| {
            let seen = survey.connections.get(ends);
            Track::new(seen.is_some_and(Seen::is_one_way))
        };
        let length = end - begin;
        let count = (length / USUAL_STEP).clamp(FEWEST_SAMPLES, MOST_SAMPLES);
        Self {
            tracks: chosen.iter().map(|ends| (*ends, track(ends))).collect(),
            order: chosen.to_vec(),
            begin,
            step: (length / count).max(1),
            end: end.max(begin.saturating_add(1)),
            samples: Vec::new(),
        }
    }

    /// Sets the scales that the data shows. A handshake in the capture replaces these scales.
    fn set_scales(&mut self, scales: &Scales) {
        for (ends, track) in &mut self.tracks {
            if let Some(scales) = scales.0.get(ends) {
                track.set_scales([0, 1].map(|from: usize| scales[from].found()));
            }
        }
    }

    fn take(&mut self, now: u64, segment: &wire::tcp::Segment, is_cut: bool) {
        // The first sample follows the first packet.
        self.sample_until(now.saturating_sub(1));
        let ends = track::ends(segment);
        if let Some(track) = self.tracks.get_mut(&ends) {
            track.take(now, usize::from(segment.source != ends.0), segment, is_cut);
        }
    }

    fn sample_until(&mut self, now: u64) {
        loop {
            let count = self.samples.len() as u64;
            let next = self.begin.saturating_add(count.saturating_mul(self.step)).min(self.end);
            let is_done = self.samples.last().is_some_and(|(at, _)| *at >= self.end);
            if next > now || is_done {
                return;
            }
            let order = self.order.iter();
            let seen = order.filter_map(|ends| {
                let track = self.tracks.get_mut(ends)?;
                track.has_begun().then(|| [0, 1].map(|end| track.connection(next, *ends, end)))
            });
            let connections = seen.collect();
            self.samples.push((next, connections));
        }
    }

    /// Returns the samples. Each holds, for every connection, the direction that moved more data in
    /// total.
    fn finish(mut self) -> Vec<Sample> {
        self.sample_until(u64::MAX);
        let senders: BTreeMap<Ends, usize> =
            self.tracks.iter().map(|(ends, track)| (*ends, track.sender())).collect();
        let begin = self.begin;
        let samples = self.samples.into_iter().map(|(at, connections)| Sample {
            at: Span::from_nanos(at - begin),
            connections: connections
                .into_iter()
                .map(|[low, high]| {
                    let ends = (low.local, low.remote);
                    if senders.get(&ends) == Some(&1) { high } else { low }
                })
                .collect(),
            ..Sample::default()
        });
        samples.collect()
    }
}

fn recording(survey: Survey, tracks: Tracks, is_cut: bool, focus: &Focus) -> Recording {
    let one_way = tracks
        .order
        .iter()
        .filter(|ends| survey.connections.get(ends).is_some_and(Seen::is_one_way));
    let one_way = one_way.count();
    let length = Span::from_nanos(tracks.end - tracks.begin);
    let mut samples = tracks.finish();
    let counters = |values: [u64; 5]| {
        let names = COUNTERS.iter().map(|name| (*name).to_owned());
        names.zip(values).collect::<BTreeMap<_, _>>()
    };
    if let Some(first) = samples.first_mut() {
        first.counters = counters([0; 5]);
    }
    if let Some(last) = samples.last_mut() {
        last.counters = counters([
            survey.opened,
            survey.refused + survey.repeated_syns,
            survey.repeated_syns,
            survey.reset,
            0,
        ]);
    }
    let mut recording = Recording::new(Machine::default());
    recording.origin = Origin::Captured;
    recording.focus = Some(match focus {
        Focus::All => "a capture".to_owned(),
        focus => format!("{focus} of a capture"),
    });
    let (first, last) = survey.times.unwrap_or_default();
    recording.note = Some(format!(
        "{} in {}, {}; the busiest is judged over {}",
        counted(survey.packets, "packet", "packets"),
        span(Span::from_nanos(last - first)),
        counted(survey.connections.len() as u64, "connection", "connections"),
        span(length)
    ));
    let mut unseen = BTreeSet::from([Unseen {
        what: "both machines".to_owned(),
        reason: "a capture has packets only: run `weir doctor` at an end for its CPU, programs, queues and settings"
            .to_owned(),
    }]);
    let mut note = |what: &str, reason: String| {
        unseen.insert(Unseen { what: what.to_owned(), reason });
    };
    if one_way > 0 {
        note(
            "the other direction",
            format!(
                "{} have packets of one direction only: capture where both pass",
                counted(one_way as u64, "connection", "connections")
            ),
        );
    }
    if is_cut {
        note("the end of the capture", "the file ends within a packet".to_owned());
    }
    if survey.uncounted > 0 {
        note(
            "further connections",
            format!("{} segments belong to more connections than are counted", survey.uncounted),
        );
    }
    if survey.unjudged > 0 {
        note(
            "the less busy connections",
            format!(
                "only the {MOST_BUSY} busiest are judged: choose among the other {} with --flow",
                survey.unjudged
            ),
        );
    }
    recording.unseen = unseen.into_iter().collect();
    recording.periods.push(Period { label: "capture".to_owned(), samples, ..Period::default() });
    recording
}

/// Kernel counters that a capture can reproduce from its packets.
const COUNTERS: [&str; 5] = [
    "TcpActiveOpens",
    "TcpAttemptFails",
    "TcpExtTCPSynRetrans",
    "TcpEstabResets",
    "TcpPassiveOpens",
];
const USUAL_STEP: u64 = 250_000_000;
const FEWEST_SAMPLES: u64 = 12;
const MOST_SAMPLES: u64 = 240;
