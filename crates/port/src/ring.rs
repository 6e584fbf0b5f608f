#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use wire::VirtioHeader;
use wire::vlan::Tag;

use crate::socket;

/// The receive ring of a packet socket, version 2 (Documentation/networking/packet_mmap.rst). The
/// slots of the ring have the same size. The kernel fills the slots, and the port returns the slots
/// in order.
#[derive(Debug)]
pub(crate) struct Ring {
    start: NonNull<u8>,
    slot_size: usize,
    slots: usize,
    next: usize,
}

/// A packet in the ring. `data` may lack the end of the packet.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    pub(crate) status: u32,
    /// The length of the whole packet, even if `data` is shorter.
    pub(crate) len: usize,
    pub(crate) seconds: u32,
    pub(crate) nanoseconds: u32,
    pub(crate) tag: Option<Tag>,
    pub(crate) virtio: VirtioHeader,
    pub(crate) data: &'a [u8],
}

// SAFETY: the mapping belongs to the process and not to a thread, and `Ring` is its only owner.
unsafe impl Send for Ring {}

impl Ring {
    /// Requests a ring and maps it. The socket must be set to version 2 and must not be bound yet.
    pub(crate) fn map(socket: &OwnedFd, slot_size: usize, slots: usize) -> io::Result<Self> {
        let per_block = (BLOCK / slot_size).max(1);
        let block_size = per_block * slot_size;
        let blocks = slots.div_ceil(per_block);
        socket::set_ring(
            socket,
            &libc::tpacket_req {
                tp_block_size: block_size as u32,
                tp_block_nr: blocks as u32,
                tp_frame_size: slot_size as u32,
                tp_frame_nr: (blocks * per_block) as u32,
            },
        )?;
        let len = blocks * block_size;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no other.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, flags, socket.as_raw_fd(), 0)
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Self { start, slot_size, slots: blocks * per_block, next: 0 })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    pub(crate) fn slot_size(&self) -> usize {
        self.slot_size
    }

    /// Returns the oldest packet that the port has not returned to the kernel. If the ring has no
    /// packet, the call costs a single load.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Slot<'_>> {
        let status = self.status(self.next).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let slot = self.slot(self.next);
        // SAFETY: the slot starts with a tpacket2_hdr (alignment 16), and while its status says
        // USER the kernel does not write to it.
        let header = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        let offset = usize::from(header.tp_mac);
        let len = (header.tp_snaplen as usize).min(self.slot_size.saturating_sub(offset));
        // SAFETY: `offset + len` lies within the slot, and as above nobody writes to it before
        // `release`, which needs `&mut self` and so ends this borrow.
        let data = unsafe { std::slice::from_raw_parts(slot.add(offset).as_ptr(), len) };
        let virtio = (offset >= HEADER + VirtioHeader::LEN && offset <= self.slot_size)
            .then(|| {
                // SAFETY: tpacket_rcv puts the virtio_net_hdr right in front of the packet, and the
                // condition says that this is within the slot.
                unsafe {
                    let start = slot.add(offset - VirtioHeader::LEN).as_ptr();
                    std::slice::from_raw_parts(start, VirtioHeader::LEN)
                }
            })
            .and_then(VirtioHeader::parse)
            .unwrap_or_default();
        let tag = (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(Tag {
            tpid: match status & libc::TP_STATUS_VLAN_TPID_VALID {
                0 => libc::ETH_P_8021Q as u16,
                _ => header.tp_vlan_tpid,
            },
            tci: header.tp_vlan_tci,
        });
        Some(Slot {
            status,
            len: header.tp_len as usize,
            seconds: header.tp_sec,
            nanoseconds: header.tp_nsec,
            tag,
            virtio,
            data,
        })
    }

    /// Returns the oldest packet's slot to the kernel.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.status(self.next).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = if self.next + 1 == self.slots { 0 } else { self.next + 1 };
    }

    fn slot(&self, index: usize) -> NonNull<u8> {
        debug_assert!(index < self.slots);
        // SAFETY: slots lie one behind the other in the mapping, as a block holds a whole number of
        // slots; `index` is below the number of slots.
        unsafe { self.start.add(index * self.slot_size) }
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: a slot starts with the status, which is aligned, mapped as long as `self` lives,
        // and which both sides access atomically.
        unsafe { AtomicU32::from_ptr(self.slot(index).cast().as_ptr()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, has this length, and no slice into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.slots * self.slot_size) };
    }
}

/// The size of a block. The kernel tries to allocate the pages of a block contiguously, and usually
/// succeeds at this size.
const BLOCK: usize = 1 << 16;
const HEADER: usize = size_of::<libc::tpacket2_hdr>();
