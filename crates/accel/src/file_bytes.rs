//! The bytes of a file. This module maps a file of sysfs if the kernel allows the mapping, because
//! a read from sysfs copies at most a page: the 5.5 MB of the kernel's types take 1,348 reads.
#![allow(unsafe_code)]

use rustix::fs::{fstat, fstatfs};
use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;

#[derive(Debug)]
pub(crate) enum FileBytes {
    /// A file of sysfs that the kernel never changes.
    Mapped {
        start: *mut c_void,
        length: usize,
    },
    Read(Vec<u8>),
}

impl FileBytes {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        if let Some(mapped) = mapped(&file) {
            return Ok(mapped);
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Self::Read(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: the mapping has this length, exists as long as this value, and is read-only.
            // The kernel's description of its types does not change.
            Self::Mapped { start, length } => unsafe {
                std::slice::from_raw_parts(start.cast::<u8>(), *length)
            },
            Self::Read(bytes) => bytes,
        }
    }

    /// Returns the whole words of the file; no words if the file's memory is not aligned to words.
    pub(crate) fn words(&self) -> &[u32] {
        // SAFETY: any four initialised bytes are a valid u32.
        match unsafe { self.bytes().align_to::<u32>() } {
            ([], words, _) => words,
            _ => &[],
        }
    }
}

impl Drop for FileBytes {
    fn drop(&mut self) {
        if let Self::Mapped { start, length } = self {
            // SAFETY: no reference to the mapping outlives this value.
            unsafe { libc::munmap(*start, *length) };
        }
    }
}

/// Maps a file of sysfs, as Linux 6.16 and later allow for the types. A file of a disk may become
/// shorter, and a read behind its end would kill this process.
fn mapped(file: &File) -> Option<FileBytes> {
    let of_sysfs = fstatfs(file).is_ok_and(|system| system.f_type == SYSFS);
    let length = usize::try_from(fstat(file).ok()?.st_size).ok()?;
    if !of_sysfs || length == 0 {
        return None;
    }
    // SAFETY: the kernel chooses a free address, and the open file belongs to this call.
    let start = unsafe {
        let (none, at) = (std::ptr::null_mut(), 0);
        libc::mmap(none, length, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), at)
    };
    (start != libc::MAP_FAILED).then_some(FileBytes::Mapped { start, length })
}

/// SYSFS_MAGIC of include/uapi/linux/magic.h.
const SYSFS: rustix::fs::FsWord = 0x6265_6572;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_6_16_maps_the_types_with_the_bytes_of_the_file() {
        let path = Path::new(crate::kernel::VMLINUX);
        let read = match std::fs::read(path) {
            Ok(read) => read,
            Err(error) => return testing::skip_because(testing::Need::StructOps, error),
        };
        let file = FileBytes::of(path).unwrap();
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut parts = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        if (parts.next(), parts.next()) >= (Some(6), Some(16)) {
            assert!(matches!(file, FileBytes::Mapped { .. }), "{release}");
        }
        assert!(file.bytes() == read);
        let words = file.words();
        assert_eq!(words.len(), read.len() / 4);
        assert_eq!(words[1].to_ne_bytes(), read[4..8]);
    }

    #[test]
    fn a_file_of_a_disk_is_read_and_not_mapped() {
        let path = std::env::temp_dir().join(format!("weir-types-{}", std::process::id()));
        std::fs::write(&path, b"abcdefg").unwrap();
        let file = FileBytes::of(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(file, FileBytes::Read(_)));
        assert_eq!((file.bytes(), file.words().len()), (&b"abcdefg"[..], 1));
    }
}
