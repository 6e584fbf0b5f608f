//! Chains of descriptors, which a driver writes.

use thiserror::Error;

#[derive(Debug, Clone, Copy)]
pub struct Table {
    pub address: u64,
    pub size: u16,
}

/// A buffer whose address is not checked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub address: u64,
    pub len: u32,
    /// Whether the device may write the buffer; otherwise, the device may only read the buffer.
    pub is_writable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ChainError {
    #[error("descriptor {0} is outside the table")]
    Index(u16),
    #[error("a table of descriptors is outside the memory")]
    Table,
    #[error("a chain has more descriptors than the ring")]
    TooLong,
    #[error("a table of {0} bytes in a descriptor is malformed")]
    Indirect(u32),
}

/// Appends the buffers of the chain that begins at `head`. `read` copies bytes of the driver's
/// memory, and returns false for an invalid address. A chain may have at most as many buffers as
/// the ring has descriptors, and never more than 1024 buffers.
pub fn walk(
    table: Table,
    head: u16,
    read: impl Fn(u64, &mut [u8]) -> bool,
    pieces: &mut Vec<Piece>,
) -> Result<(), ChainError> {
    let most = usize::from(table.size).min(LONGEST);
    let (mut address, mut size, mut index) = (table.address, table.size, head);
    let mut is_indirect = false;
    let mut count = 0;
    loop {
        if index >= size {
            return Err(ChainError::Index(index));
        }
        let mut bytes = [0; DESCRIPTOR as usize];
        let at = address.checked_add(u64::from(index) * DESCRIPTOR).ok_or(ChainError::Table)?;
        if !read(at, &mut bytes) {
            return Err(ChainError::Table);
        }
        let descriptor = Descriptor::parse(bytes);
        if descriptor.flags & INDIRECT != 0 {
            let is_fine = !is_indirect
                && descriptor.flags & NEXT == 0
                && descriptor.len > 0
                && u64::from(descriptor.len).is_multiple_of(DESCRIPTOR)
                && u64::from(descriptor.len) / DESCRIPTOR <= LONGEST as u64;
            if !is_fine {
                return Err(ChainError::Indirect(descriptor.len));
            }
            is_indirect = true;
            address = descriptor.address;
            size = (u64::from(descriptor.len) / DESCRIPTOR) as u16;
            index = 0;
            continue;
        }
        count += 1;
        if count > most {
            return Err(ChainError::TooLong);
        }
        pieces.push(Piece {
            address: descriptor.address,
            len: descriptor.len,
            is_writable: descriptor.flags & WRITE != 0,
        });
        if descriptor.flags & NEXT == 0 {
            return Ok(());
        }
        index = descriptor.next;
    }
}

/// The 16 bytes of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) flags: u16,
    pub(super) next: u16,
}

impl Descriptor {
    #[inline]
    pub(super) fn parse(bytes: [u8; DESCRIPTOR as usize]) -> Self {
        let word = u128::from_le_bytes(bytes);
        Self {
            address: word as u64,
            len: (word >> 64) as u32,
            flags: (word >> 96) as u16,
            next: (word >> 112) as u16,
        }
    }

    /// Returns the buffer if this descriptor is the only descriptor of its chain.
    #[inline]
    pub(super) fn alone(self) -> Option<Piece> {
        (self.flags & (NEXT | INDIRECT) == 0).then_some(Piece {
            address: self.address,
            len: self.len,
            is_writable: self.flags & WRITE != 0,
        })
    }

    #[inline]
    pub(super) fn to_bytes(self) -> [u8; DESCRIPTOR as usize] {
        let word = u128::from(self.address)
            | u128::from(self.len) << 64
            | u128::from(self.flags) << 96
            | u128::from(self.next) << 112;
        word.to_le_bytes()
    }
}

pub(super) const DESCRIPTOR: u64 = 16;
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const LONGEST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn walk_in(memory: &[u8], size: u16, head: u16) -> Result<Vec<Piece>, ChainError> {
        let read = |address: u64, out: &mut [u8]| {
            let Ok(start) = usize::try_from(address) else { return false };
            let Some(bytes) = start.checked_add(out.len()).and_then(|end| memory.get(start..end))
            else {
                return false;
            };
            out.copy_from_slice(bytes);
            true
        };
        let mut pieces = Vec::new();
        walk(Table { address: 0, size }, head, read, &mut pieces).map(|()| pieces)
    }

    fn table(descriptors: &[(u64, u32, u16, u16)]) -> Vec<u8> {
        let bytes = descriptors.iter().map(|(address, len, flags, next)| {
            Descriptor { address: *address, len: *len, flags: *flags, next: *next }.to_bytes()
        });
        bytes.flatten().collect()
    }

    #[test]
    fn a_descriptor_chain_gives_its_buffers_in_order() {
        let memory = table(&[(100, 12, NEXT, 2), (0, 0, 0, 0), (200, 60, WRITE, 0)]);
        let pieces = walk_in(&memory, 3, 0).unwrap();
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[1], Piece { address: 200, len: 60, is_writable: true });
    }

    #[test]
    fn an_indirect_descriptor_table_inside_an_indirect_table_is_refused() {
        let memory = table(&[(16, 32, INDIRECT, 0), (5, 6, NEXT, 1), (7, 8, 0, 0)]);
        assert_eq!(walk_in(&memory, 2, 0).unwrap().len(), 2);
        let nested = table(&[(16, 16, INDIRECT, 0), (0, 16, INDIRECT, 0)]);
        assert_eq!(walk_in(&nested, 1, 0), Err(ChainError::Indirect(16)));
        let odd = table(&[(16, 17, INDIRECT, 0)]);
        assert_eq!(walk_in(&odd, 1, 0), Err(ChainError::Indirect(17)));
    }

    #[test]
    fn descriptor_loops_and_invalid_indexes_are_errors() {
        let looped = table(&[(1, 1, NEXT, 1), (1, 1, NEXT, 0)]);
        assert_eq!(walk_in(&looped, 2, 0), Err(ChainError::TooLong));
        assert_eq!(walk_in(&looped, 2, 2), Err(ChainError::Index(2)));
        let wild = table(&[(1, 1, NEXT, 999)]);
        assert_eq!(walk_in(&wild, 1, 0), Err(ChainError::Index(999)));
        assert_eq!(walk_in(&wild, 9, 5), Err(ChainError::Table));
    }

    proptest! {
        #[test]
        fn any_memory_gives_a_descriptor_chain_or_an_error(memory in proptest::collection::vec(any::<u8>(), 0..600), size: u16, head: u16) {
            if let Ok(pieces) = walk_in(&memory, size, head) {
                prop_assert!(pieces.len() <= usize::from(size));
            }
        }
    }
}
