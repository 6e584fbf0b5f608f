use units::Time;
use wire::vlan::{ADDRESSES, Tag};
use wire::{Segmenter, VirtioHeader};

use crate::Offload;
use crate::counters::PortCounters;
use crate::frame::Frame;

/// Completes packets that the kernel left unfinished, and cuts them into frames.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// Whether the port leaves a packet unfinished if an [`Offload`] can describe the packet's
    /// missing checksum and segmentation.
    pub(crate) keeps_offloads: bool,
    /// A super-packet into which its VLAN tag was inserted again.
    tagged: Vec<u8>,
}

impl Intake {
    pub(crate) fn new(keeps_offloads: bool) -> Self {
        Self { keeps_offloads, ..Self::default() }
    }

    pub(crate) fn take(
        &mut self,
        packet: &[u8],
        tag: Option<Tag>,
        virtio: &VirtioHeader,
        arrival: Time,
        batch: &mut Vec<Frame>,
        counters: &mut PortCounters,
    ) {
        let tag = tag.filter(|_| packet.len() >= ADDRESSES);
        if self.keeps_offloads && virtio.partial_checksum.is_some() {
            let frame = match tag {
                None => Frame::from_bytes(packet, arrival),
                Some(tag) => {
                    let mut frame = Frame::with_len(packet.len() + TAG, arrival);
                    write_tagged(packet, tag, frame.bytes_mut());
                    frame
                }
            };
            self.keep(frame, tag.is_some(), virtio, batch, counters);
            return;
        }
        counters.tags_inserted += u64::from(tag.is_some());
        match (virtio.gso, tag) {
            (None, None) => {
                let frame = Frame::from_bytes(packet, arrival);
                finish(frame, virtio, batch, counters);
            }
            (None, Some(tag)) => {
                let mut frame = Frame::with_len(packet.len() + TAG, arrival);
                write_tagged(packet, tag, frame.bytes_mut());
                finish(frame, &virtio.shifted(TAG as u16), batch, counters);
            }
            (Some(_), None) => segment(packet, virtio, arrival, batch, counters),
            (Some(_), Some(tag)) => {
                self.tagged.resize(packet.len() + TAG, 0);
                write_tagged(packet, tag, &mut self.tagged);
                segment(&self.tagged, &virtio.shifted(TAG as u16), arrival, batch, counters);
            }
        }
    }
}

impl Intake {
    /// Takes a packet whose bytes, including the VLAN tag, are already in a frame.
    pub(crate) fn keep(
        &self,
        mut frame: Frame,
        is_tagged: bool,
        virtio: &VirtioHeader,
        batch: &mut Vec<Frame>,
        counters: &mut PortCounters,
    ) {
        counters.tags_inserted += u64::from(is_tagged);
        let virtio = if is_tagged { virtio.shifted(TAG as u16) } else { *virtio };
        let offload = Offload::of(frame.bytes(), &virtio).filter(|_| self.keeps_offloads);
        match (offload, virtio.gso) {
            (Some(offload), _) => {
                frame.set_offload(offload);
                let (frames, bytes) = frame.on_wire();
                counters.received_frames += frames;
                counters.received_bytes += bytes;
                if offload.is_super() {
                    counters.super_packets += 1;
                    counters.segments += frames;
                }
                batch.push(frame);
            }
            (None, None) => finish(frame, &virtio, batch, counters),
            (None, Some(_)) => segment(frame.bytes(), &virtio, frame.arrival(), batch, counters),
        }
    }
}

#[inline]
fn finish(
    mut frame: Frame,
    virtio: &VirtioHeader,
    batch: &mut Vec<Frame>,
    counters: &mut PortCounters,
) {
    if let Some(partial) = virtio.partial_checksum {
        let (start, offset) = (usize::from(partial.start), usize::from(partial.offset));
        let done = wire::checksum::complete(frame.bytes_mut(), start, offset);
        counters.checksums_completed += u64::from(done);
    }
    counters.received_frames += 1;
    counters.received_bytes += frame.len() as u64;
    batch.push(frame);
}

fn segment(
    packet: &[u8],
    virtio: &VirtioHeader,
    arrival: Time,
    batch: &mut Vec<Frame>,
    counters: &mut PortCounters,
) {
    let mut segmenter = match Segmenter::new(packet, virtio) {
        Ok(segmenter) => segmenter,
        Err(error) => {
            counters.unsegmentable += 1;
            tracing::debug!(%error, len = packet.len(), "super-packet dropped");
            return;
        }
    };
    counters.super_packets += 1;
    while let Some(len) = segmenter.next_len() {
        let mut frame = Frame::with_len(len, arrival);
        segmenter.write_next(frame.bytes_mut());
        counters.segments += 1;
        counters.received_frames += 1;
        counters.received_bytes += len as u64;
        batch.push(frame);
    }
}

fn write_tagged(packet: &[u8], tag: Tag, out: &mut [u8]) {
    let (addresses, rest) = packet.split_at(ADDRESSES);
    out[..ADDRESSES].copy_from_slice(addresses);
    out[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag.to_bytes());
    out[ADDRESSES + TAG..].copy_from_slice(rest);
}

const TAG: usize = wire::headers::TAG;
