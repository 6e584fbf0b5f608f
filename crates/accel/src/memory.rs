//! The memory of paths, by destination: the kernel writes an entry when a connection ends.

use crate::pins::{self, Pins, Presence};
use crate::{AccelError, Prefix, object::with_libbpf_log};
use libbpf_rs::{MapCore, MapFlags};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::fmt::Write as _;
use units::{Rate, Span};

#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    pub to: Prefix,
    pub rate: Rate,
    pub min_rtt: Span,
    pub age: Span,
}

/// Reads all memories, the newest first.
pub fn read() -> Result<Vec<Memory>, AccelError> {
    match Pins::open_if_any()? {
        Some(pins) if pins.presence() != Presence::Nothing => read_in(&pins),
        _ => Ok(Vec::new()),
    }
}

pub(crate) fn read_in(pins: &Pins) -> Result<Vec<Memory>, AccelError> {
    let map = pins.map(pins::PATHS)?;
    let now = clock_gettime(ClockId::Monotonic);
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let mut memories = Vec::new();
    for key in map.keys() {
        // The kernel may have evicted the entry after it returned the key.
        if let Some(value) = with_libbpf_log(WHAT, || map.lookup(&key, MapFlags::ANY))? {
            memories.extend(Memory::from_bytes(&key, &value, now));
        }
    }
    memories.sort_by_key(|memory| memory.age);
    Ok(memories)
}

/// Clears the memory; returns the number of paths.
pub fn clear() -> Result<usize, AccelError> {
    let pins = Pins::open_if_any()?.filter(|pins| pins.presence() != Presence::Nothing);
    let Some(pins) = pins else { return Ok(0) };
    let map = pins.map(pins::PATHS)?;
    let keys: Vec<_> = map.keys().collect();
    Ok(keys.iter().filter(|key| map.delete(key).is_ok()).count())
}

/// Reads all entries in the kernel's format, so that [`give`] can write the entries into another
/// map.
pub(crate) fn keep(pins: &Pins) -> Vec<(Vec<u8>, Vec<u8>)> {
    let Ok(map) = pins.map(pins::PATHS) else { return Vec::new() };
    let value = |key: &Vec<u8>| map.lookup(key, MapFlags::ANY).ok().flatten();
    map.keys().filter_map(|key| value(&key).map(|value| (key, value))).collect()
}

/// Writes entries into the map; drops entries in another version's format.
pub(crate) fn give(pins: &Pins, kept: &[(Vec<u8>, Vec<u8>)]) -> Result<(), AccelError> {
    let map = pins.map(pins::PATHS)?;
    for (key, value) in kept {
        if value.len() == map.value_size() as usize {
            with_libbpf_log(WHAT, || map.update(key, value, MapFlags::ANY))?;
        }
    }
    Ok(())
}

pub fn to_text(memories: &[Memory]) -> String {
    if memories.is_empty() {
        return "no path is remembered\n".to_owned();
    }
    let mut text = format!("{:<40} {:>12} {:>10} {:>10}\n", "to", "rate", "min rtt", "age");
    for memory in memories {
        let _ = writeln!(
            text,
            "{:<40} {:>12} {:>10} {:>10}",
            memory.to.to_string(),
            memory.rate.shown(),
            memory.min_rtt.shown(),
            memory.age.shown(),
        );
    }
    text
}

pub fn to_json(memories: &[Memory]) -> Value {
    memories.iter().map(Memory::to_json).collect()
}

impl Memory {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "to": self.to.to_string(),
            "rate_mbit_s": self.rate.mbit_per_second(),
            "min_rtt_us": self.min_rtt.micros_f64(),
            "age_s": self.age.secs_f64(),
        })
    }

    /// Parses `struct place` and `struct memory` of bpf/flow.h.
    fn from_bytes(key: &[u8], memory: &[u8], now: u64) -> Option<Self> {
        let octets: [u8; 16] = key.try_into().ok()?;
        let wide = |at: usize| Some(u64::from_ne_bytes(memory.get(at..at + 8)?.try_into().ok()?));
        let narrow = |at: usize| Some(u32::from_ne_bytes(memory.get(at..at + 4)?.try_into().ok()?));
        let bits = if octets[..12] == MAPPED { 96 + 24 } else { 48 };
        Some(Self {
            to: Prefix::from_mapped(octets, bits)?,
            rate: Rate::from_bits_per_second(wide(8)?.saturating_mul(8)),
            min_rtt: Span::from_micros(narrow(16)?.into()),
            age: Span::from_nanos(now.saturating_sub(wide(0)?)),
        })
    }
}

const WHAT: &str = "the memory of paths";
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_memory_from_the_kernel_is_parsed() {
        let mut key = [0; 16];
        key[10..15].copy_from_slice(&[0xff, 0xff, 192, 0, 2]);
        let mut memory = [0; 24];
        memory[..8].copy_from_slice(&1_000_000_000_u64.to_ne_bytes());
        memory[8..16].copy_from_slice(&1_250_000_u64.to_ne_bytes());
        memory[16..20].copy_from_slice(&20_000_u32.to_ne_bytes());
        let read = Memory::from_bytes(&key, &memory, 4_000_000_000).unwrap();
        assert_eq!(read.to.to_string(), "192.0.2.0/24");
        assert_eq!((read.rate, read.min_rtt), (Rate::from_mbit(10), Span::from_millis(20)));
        assert_eq!(read.age, Span::from_secs(3));
        assert_eq!(Memory::from_bytes(&key, &memory[..12], 0), None);
    }
}
