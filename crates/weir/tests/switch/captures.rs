//! Capture files for ports, and reading the files that ports write.

use crate::support::Sandbox;

/// Builds a UDP frame of 60 bytes from 16.0.0.1 + `flow` to 48.0.0.1 + `flow`.
pub fn udp(flow: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend([0x02, 0xac, 0x10, 0xff, 0, 2, 0x02, 0xac, 0x10, 0xff, 0, 3, 8, 0]);
    let start = frame.len();
    frame.extend([0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0]);
    frame.extend((0x1000_0001 + flow).to_be_bytes());
    frame.extend((0x3000_0001 + flow).to_be_bytes());
    let sum = checksum(&frame[start..], 0);
    frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
    let pseudo: Vec<u8> = [&frame[start + 12..start + 20], &[0, 17, 0, 26]].concat();
    let transport = frame.len();
    frame.extend([0x04, 0x01, 0, 12, 0, 26, 0, 0]);
    frame.extend([b'x'; 18]);
    let sum = checksum(&frame[transport..], u32::from(!checksum(&pseudo, 0)));
    frame[transport + 6..transport + 8].copy_from_slice(&sum.to_be_bytes());
    frame
}

pub fn checksum(bytes: &[u8], start: u32) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum = start + bytes.chunks(2).map(word).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

pub fn write(sandbox: &Sandbox, name: &str, frames: &[Vec<u8>]) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    sandbox.write(name, bytes);
}

/// Reads the complete frames of a capture, which may still be written.
pub fn read(sandbox: &Sandbox, name: &str) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(sandbox.path(name)).unwrap_or_default();
    let mut frames = Vec::new();
    let mut at = 24;
    while let Some(length) = bytes.get(at + 8..at + 12) {
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        let Some(frame) = bytes.get(at + 16..at + 16 + length) else { break };
        frames.push(frame.to_vec());
        at += 16 + length;
    }
    frames
}
