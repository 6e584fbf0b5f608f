//! Sends the frames and counts them by kind.

use super::settings::Load;
use crate::model::Failure;
use generator::malformed::{Addresses, Kind, Malformed};
use port::{PacketSender, Refusal};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A port at which frames enter.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) port: PacketSender,
    pub(super) addresses: Addresses,
}

/// The number of frames of each kind so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    sent: [AtomicU64; Kind::ALL.len()],
    refused: AtomicU64,
}

impl Counts {
    pub(super) fn of(&self, kind: Kind) -> u64 {
        self.sent[kind as usize].load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn sent(&self) -> u64 {
        Kind::ALL.into_iter().map(|kind| self.of(kind)).sum()
    }

    fn add(&self, kind: Kind) {
        self.sent[kind as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends frames until `over` is true. Each batch enters at the next entry.
pub(super) fn blow(
    entries: &[Entry],
    load: Load,
    (frames_s, seed): (u32, u64),
    over: &AtomicBool,
    counts: &Counts,
) -> Result<(), Failure> {
    if load == Load::Quiet {
        return Ok(());
    }
    let mut sources: Vec<Malformed> = entries
        .iter()
        .zip(0_u64..)
        .map(|(entry, number)| {
            Malformed::new(seed.wrapping_add(number), &entry.addresses, entry.port.longest())
        })
        .collect();
    let mut batch: Vec<(Kind, Vec<u8>)> = vec![(Kind::Noise, Vec::new()); BATCH];
    let begun = Instant::now();
    let mut turn = 0_u64;
    while !over.load(Ordering::Acquire) {
        let number = (turn % entries.len().max(1) as u64) as usize;
        let (Some(entry), Some(source)) = (entries.get(number), sources.get_mut(number)) else {
            return Ok(());
        };
        for (kind, frame) in &mut batch {
            match load {
                Load::Ordinary => {
                    source.write_ordinary(frame);
                    // An ordinary frame has no kind, and is counted as the last kind.
                    *kind = Kind::Noise;
                }
                _ => *kind = source.write_next(frame),
            }
        }
        send(&entry.port, &batch, counts)?;
        turn += 1;
        let due = begun + Duration::from_secs_f64(turn as f64 * BATCH as f64 / f64::from(frames_s));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

fn send(port: &PacketSender, batch: &[(Kind, Vec<u8>)], counts: &Counts) -> Result<(), Failure> {
    let (mut done, mut attempts) = (0, 0);
    while let Some(rest) = batch.get(done..).filter(|rest| !rest.is_empty()) {
        let accepted = port.send(rest.iter().map(|(_, frame)| frame.as_slice()))?;
        for (kind, _) in &rest[..accepted.sent] {
            counts.add(*kind);
        }
        done += accepted.sent;
        match accepted.refusal {
            None => attempts = 0,
            Some(Refusal::Full) if attempts < ATTEMPTS => {
                attempts += 1;
                std::thread::yield_now();
            }
            Some(_) => {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                (done, attempts) = (done + 1, 0);
            }
        }
    }
    Ok(())
}

/// The number of frames that one system call sends.
const BATCH: usize = 32;
const ATTEMPTS: usize = 1_000;
