//! The native core, and what simulated connections ask of it. A step is bytes here: what they mean only
//! the C headers know, so that nothing of this has to change with the core.
#![allow(unsafe_code)]

use std::cell::RefCell;

/// `struct parity_step`, 8-byte aligned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step(Vec<u64>);

impl Step {
    pub(crate) fn new(call: Call) -> Self {
        let mut step = Self(vec![0; size().div_ceil(8)]);
        step.set_call(call);
        step
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut step = Self::new(Call::Init);
        step.bytes_mut().copy_from_slice(bytes);
        step
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: any initialised u64s are as many initialised bytes times eight.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 8) };
        &bytes[..size()]
    }

    pub(crate) fn set_call(&mut self, call: Call) {
        self.bytes_mut()[..4].copy_from_slice(&(call as u32).to_ne_bytes());
    }

    /// What the core is told, as 32-bit words.
    pub(crate) fn set_told(&mut self, mut word: impl FnMut(u32) -> u32) {
        for bytes in self.bytes_mut()[told_from()..told_from() + told_length()].chunks_exact_mut(4)
        {
            let old = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            bytes.copy_from_slice(&word(old).to_ne_bytes());
        }
    }

    pub(crate) fn call(&self) -> u32 {
        (self.0[0] & u64::from(u32::MAX)) as u32
    }

    /// The state, the decision and what is noted.
    pub(crate) fn result(&self) -> &[u8] {
        &self.bytes()[result_from()..]
    }

    /// Another's call, from this one's end.
    pub(crate) fn follow(&self, next: &Self) -> Self {
        let mut step = next.clone();
        step.bytes_mut()[result_from()..].copy_from_slice(self.result());
        step
    }

    /// The same after it was taken natively.
    pub(crate) fn taken(&self) -> Self {
        let mut step = self.clone();
        // SAFETY: as large and as aligned as the struct; the core keeps no pointer to it.
        unsafe { weir_parity_take(step.0.as_mut_ptr().cast()) };
        step
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; every pattern of bits is a u64.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 8) };
        &mut bytes[..size()]
    }
}

/// `enum parity_call`
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    Init,
    Ack,
    Timeout,
    Idle,
    Note,
}

/// The calls that connections on this thread make of the core during `work`.
pub(crate) fn recorded(work: impl FnOnce()) -> Vec<Step> {
    RECORD.with_borrow_mut(|record| *record = Some(Vec::new()));
    work();
    RECORD.take().unwrap_or_default()
}

pub(crate) fn size() -> usize {
    // SAFETY: reads nothing.
    unsafe { weir_parity_size() as usize }
}

fn told_from() -> usize {
    // SAFETY: reads nothing.
    unsafe { weir_parity_told_offset() as usize }
}

fn told_length() -> usize {
    // SAFETY: reads nothing.
    unsafe { weir_parity_told_size() as usize }
}

fn result_from() -> usize {
    // SAFETY: reads nothing.
    unsafe { weir_parity_result_offset() as usize }
}

thread_local! {
    static RECORD: RefCell<Option<Vec<Step>>> = const { RefCell::new(None) };
}

/// Called by tests/parity/native.c before each call of the core.
#[unsafe(no_mangle)]
extern "C" fn weir_parity_record(step: *const u8) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            // SAFETY: native.c hands over a whole `struct parity_step`, zeroed before it was filled.
            let bytes = unsafe { std::slice::from_raw_parts(step, size()) };
            record.push(Step::from_bytes(bytes));
        }
    });
}

unsafe extern "C" {
    fn weir_parity_size() -> u64;
    fn weir_parity_told_offset() -> u64;
    fn weir_parity_told_size() -> u64;
    fn weir_parity_result_offset() -> u64;
    fn weir_parity_take(step: *mut u8);
}
