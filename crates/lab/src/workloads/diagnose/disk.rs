//! A file that is read from its disk and not from memory, like a database that is larger than the
//! page cache.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use units::Bytes;

/// A file without a name, whose space the kernel frees when this process ends.
#[derive(Debug)]
pub(super) struct Disk {
    file: File,
    buffer: Vec<u8>,
    /// Offset of the first byte of the buffer that O_DIRECT may use.
    start: usize,
    length: usize,
    at: u64,
}

impl Disk {
    /// Creates a file in this directory that is read in pieces of `chunk`.
    pub(super) fn new(directory: &Path, chunk: Bytes) -> io::Result<Self> {
        let path = directory.join(format!("weir-load-{}", std::process::id()));
        let mut written = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or(0);
        let opened = OpenOptions::new().read(true).custom_flags(direct).open(&path);
        std::fs::remove_file(&path)?;
        let file = opened?;
        let block = vec![b'd'; BLOCK];
        for _ in 0..BLOCKS {
            written.write_all(&block)?;
        }
        written.sync_all()?;
        let length = (chunk.count() as usize).clamp(ALIGNED, BLOCK) / ALIGNED * ALIGNED;
        let buffer = vec![0; length + ALIGNED];
        let start = buffer.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        Ok(Self { file, buffer, start, length, at: 0 })
    }

    /// Reads the next chunk, which lies far from the previous chunk, so that the disk cannot read
    /// ahead.
    pub(super) fn read(&mut self) -> io::Result<()> {
        let whole = (BLOCK * BLOCKS) as u64;
        self.at = (self.at + STEP) % (whole - self.length as u64) / ALIGNED as u64 * ALIGNED as u64;
        let buffer = &mut self.buffer[self.start..self.start + self.length];
        self.file.read_exact_at(buffer, self.at)
    }
}

/// Alignment that every disk accepts.
const ALIGNED: usize = 4096;
const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 32;
const STEP: u64 = 7_340_033;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_file_is_read_in_chunks_and_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = match Disk::new(folder.path(), Bytes::new(10_000)) {
            Ok(disk) => disk,
            Err(error) => return testing::skip_because(testing::Need::DirectReads, error),
        };
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        for _ in 0..50 {
            disk.read().unwrap();
            assert_eq!(disk.buffer[disk.start..disk.start + disk.length], [b'd'; 8192]);
        }
    }
}
