//! A capture of an interface of this machine in memory. Keeps the headers of packets, and no data.

use super::parse;
use crate::DoctorError;
use crate::observe::Focus;
use crate::recording::Recording;
use port::{PacketOptions, PacketPort, Port};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use units::Span;
use wire::Layout;
use wire::pcap::{file_header, record_header_cut};

/// Captures for `time`, and judges the connections in the capture. `stop` ends the capture early.
pub fn live(
    interface: &str,
    time: Span,
    focus: &Focus,
    stop: &AtomicBool,
) -> Result<Recording, DoctorError> {
    let failed = |source| DoctorError::Interface { interface: interface.to_owned(), source };
    // The loopback interface shows each packet twice: when it leaves and when it arrives.
    let outgoing = interface != "lo";
    let options = PacketOptions { outgoing, promiscuous: false, ..PacketOptions::default() };
    let mut port = PacketPort::open_with(interface, options).map_err(failed)?;
    let mut bytes = file_header(KEPT).to_vec();
    let mut batch = Vec::new();
    let end = Instant::now() + time.as_duration();
    while Instant::now() < end && !stop.load(Ordering::Relaxed) && bytes.len() < MOST_BYTES {
        port.receive(&mut batch, AT_ONCE).map_err(failed)?;
        if batch.is_empty() {
            std::thread::sleep(PAUSE);
            continue;
        }
        for frame in batch.drain(..) {
            let all = frame.bytes();
            // The payload's length is in the IP header, and the payload itself is not kept.
            let kept = Layout::parse(all).and_then(|layout| layout.payload_offset());
            let kept = kept.unwrap_or(0).min(KEPT as usize).min(all.len());
            if kept > 0 {
                let (kept_length, length) = (kept as u32, all.len() as u32);
                bytes.extend(record_header_cut(frame.arrival().nanos(), kept_length, length));
                bytes.extend(&all[..kept]);
            }
        }
    }
    let is_full = bytes.len() >= MOST_BYTES;
    let lost = port.counters().kernel_drops;
    let mut recording = parse(&bytes, focus).map_err(|error| match error {
        DoctorError::NoSegments { .. } => DoctorError::NothingCaptured(interface.to_owned()),
        error => error,
    })?;
    if lost > 0 {
        let what = "packets of the capture".to_owned();
        let reason = format!("the kernel dropped {lost} packets before this program read them");
        recording.unseen.push(crate::recording::Unseen { what, reason });
    }
    if is_full {
        let what = "later packets".to_owned();
        let reason =
            "the capture was full before its time was up: capture for less time".to_owned();
        recording.unseen.push(crate::recording::Unseen { what, reason });
    }
    Ok(recording)
}

/// Bytes kept per packet: enough for all headers.
const KEPT: u32 = 256;
/// Maximum size of a capture, in bytes; the capture ends when it is full.
const MOST_BYTES: usize = 512 << 20;
const AT_ONCE: usize = 256;
const PAUSE: Duration = Duration::from_millis(1);
