use std::io;
use std::os::fd::OwnedFd;

use super::message::Region;
use crate::shared_memory::SharedMemory;

/// The front end's memory, mapped into this process.
#[derive(Debug)]
pub(super) struct GuestMemory {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    region: Region,
    memory: SharedMemory,
    /// The offset of the region in the mapping.
    skipped: usize,
}

/// A range of the guest memory that lies within one mapping.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    part: usize,
    pub(super) at: usize,
}

impl GuestMemory {
    /// Maps the regions of a message, each from its file.
    pub(super) fn map(regions: &[Region], files: &[OwnedFd]) -> io::Result<Self> {
        let invalid = |problem: &'static str| io::Error::new(io::ErrorKind::InvalidData, problem);
        if regions.len() != files.len() {
            return Err(invalid("the memory table has another number of files than of regions"));
        }
        let mut parts = Vec::with_capacity(regions.len());
        for (region, file) in regions.iter().zip(files) {
            let end = region.file_offset.checked_add(region.size);
            let fits = region.size > 0
                && region.guest_address.checked_add(region.size).is_some()
                && region.user_address.checked_add(region.size).is_some();
            let Some(end) = end.filter(|_| fits) else {
                return Err(invalid("a memory region wraps around"));
            };
            let size = rustix::fs::fstat(file)?.st_size;
            if u64::try_from(size).map_or(true, |size| size < end) {
                return Err(invalid("a memory region is longer than its file"));
            }
            // mmap(2) maps whole pages. A file in huge pages has larger pages.
            let page = u64::try_from(rustix::fs::fstat(file)?.st_blksize).unwrap_or(PAGE).max(PAGE);
            let page = if page.is_power_of_two() && page <= MOST_PAGE { page } else { PAGE };
            let skipped = region.file_offset % page;
            let too_large = |_| invalid("a memory region is too large");
            let len = usize::try_from(region.size + skipped).map_err(too_large)?;
            let memory = SharedMemory::map_guarded(file, region.file_offset - skipped, len)?;
            parts.push(Part { region: *region, memory, skipped: skipped as usize });
        }
        Ok(Self { parts })
    }

    /// Whether the front end has truncated the memory and an access has noticed the truncation.
    #[inline]
    pub(super) fn is_cut(&self) -> bool {
        self.parts.iter().any(|part| part.memory.is_cut())
    }

    #[inline]
    pub(super) fn read(&self, address: u64, out: &mut [u8]) -> bool {
        match self.spot(address, out.len() as u64) {
            Some(spot) => self.parts[spot.part].memory.read(spot.at, out),
            None => false,
        }
    }

    #[inline]
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> bool {
        match self.spot(address, bytes.len() as u64) {
            Some(spot) => self.parts[spot.part].memory.write(spot.at, bytes),
            None => false,
        }
    }

    /// See [`SharedMemory::prefetch`].
    #[inline]
    pub(super) fn prefetch(&self, address: u64, is_written: bool) {
        if let Some(spot) = self.spot(address, 1) {
            self.of(spot).prefetch(spot.at, is_written);
        }
    }

    /// Returns the position of `len` bytes at a guest address.
    #[inline]
    pub(super) fn spot(&self, address: u64, len: u64) -> Option<Spot> {
        self.find(len, |region| address.checked_sub(region.guest_address))
    }

    /// Returns the position of `len` bytes at a user address.
    pub(super) fn user_spot(&self, address: u64, len: u64) -> Option<Spot> {
        self.find(len, |region| address.checked_sub(region.user_address))
    }

    /// Converts the user address of `len` bytes to a guest address.
    pub(super) fn guest_address(&self, address: u64, len: u64) -> Option<u64> {
        let spot = self.user_spot(address, len)?;
        let part = &self.parts[spot.part];
        Some(part.region.guest_address + (spot.at - part.skipped) as u64)
    }

    /// Returns the mapping that contains a position.
    #[inline]
    pub(super) fn of(&self, spot: Spot) -> &SharedMemory {
        &self.parts[spot.part].memory
    }

    #[inline]
    fn find(&self, len: u64, offset: impl Fn(&Region) -> Option<u64>) -> Option<Spot> {
        self.parts.iter().enumerate().find_map(|(number, part)| {
            let offset = offset(&part.region)?;
            let fits = offset <= part.region.size && len <= part.region.size - offset;
            fits.then(|| Spot { part: number, at: part.skipped + offset as usize })
        })
    }
}

const PAGE: u64 = 4096;
const MOST_PAGE: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn file(size: u64) -> OwnedFd {
        let file = memfd_create("weir-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, size).unwrap();
        file
    }

    #[test]
    fn truncated_guest_memory_reads_as_zeros_and_is_marked() {
        let region =
            Region { guest_address: 0, size: 0x4000, user_address: 0, file_offset: 0x1000 };
        let files = [file(0x5000), file(0x5000)];
        let copies = files.each_ref().map(|file| file.try_clone().unwrap());
        let [first, second] = copies;
        let memory = GuestMemory::map(&[region], &[first]).unwrap();
        let other = GuestMemory::map(&[region], &[second]).unwrap();
        assert!(memory.write(0x3ffc, b"four") && !memory.is_cut());
        ftruncate(&files[0], 0x1000).unwrap();
        let mut four = [1; 4];
        assert!(memory.read(0x3ffc, &mut four) && four == [0; 4]);
        assert!(memory.write(0, b"four") && memory.is_cut());
        assert!(other.write(0, b"four") && !other.is_cut());
        ftruncate(&files[1], 0).unwrap();
        assert!(other.write(0x2000, b"four") && other.is_cut());
        drop((memory, other));
        assert!(!GuestMemory::map(&[region], &[file(0x5000)]).unwrap().is_cut());
    }

    #[test]
    fn addresses_outside_the_guest_memory_are_refused() {
        let region = |guest_address, size, file_offset| Region {
            guest_address,
            size,
            user_address: guest_address + 0x10_0000,
            file_offset,
        };
        let regions = [region(0x1000, 0x1000, 0x800), region(0x8000, 0x1000, 0)];
        let memory = GuestMemory::map(&regions, &[file(0x1800), file(0x1000)]).unwrap();
        assert!(memory.write(0x1ffc, b"four"));
        let mut four = [0; 4];
        assert!(memory.read(0x1ffc, &mut four) && &four == b"four");
        assert_eq!(memory.guest_address(0x10_1ffc, 4), Some(0x1ffc));
        for (address, len) in
            [(0x1ffd, 4), (0xfff, 1), (0x2000, 1), (0x9000, 1), (u64::MAX, 4), (0x1000, 0x1001)]
        {
            assert!(!memory.read(address, &mut vec![0; len]), "{address:x} {len}");
        }
        for wrong in [region(0, 0, 0), region(u64::MAX - 0x20_0000, u64::MAX, 0)] {
            assert!(GuestMemory::map(&[wrong], &[file(0x1000)]).is_err());
        }
        assert!(GuestMemory::map(&[region(0, 0x1001, 0)], &[file(0x1000)]).is_err());
        assert!(GuestMemory::map(&regions, &[file(0x1000)]).is_err());
    }
}
