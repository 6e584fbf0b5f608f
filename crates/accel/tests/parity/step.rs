//! A step: a call of an algorithm's C function, with the state before the call, as bytes. Only the
//! C headers define the fields, so a change of an algorithm does not change this file.
#![allow(unsafe_code)]

use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::Range;

/// An algorithm in C. The C side of the test defines the struct of a step, and executes the steps.
pub(crate) trait Core: Debug + Clone + PartialEq {
    const NAME: &'static str;
    /// The BPF program that executes steps in the kernel.
    const PROGRAM: &'static [u8];
    /// The first call of a sequence, which sets up a state.
    const INIT: u32;

    fn size() -> usize;

    /// Returns the range of a step that holds the inputs of the call.
    fn input_words() -> Range<usize>;

    /// Returns the offset of the results: the state, which is also an input, and the decision.
    fn result() -> usize;

    /// # Safety
    ///
    /// `step` points to the bytes of a complete step of this algorithm, 8-byte aligned.
    unsafe fn take(step: *mut u8);
}

/// The bytes of a step's C struct, 8-byte aligned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step<C> {
    words: Vec<u64>,
    core: PhantomData<C>,
}

impl<C: Core> Step<C> {
    pub(crate) fn new(call: u32) -> Self {
        let mut step = Self { words: vec![0; C::size().div_ceil(8)], core: PhantomData };
        step.bytes_mut()[..4].copy_from_slice(&call.to_ne_bytes());
        step
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut step = Self::new(C::INIT);
        step.bytes_mut().copy_from_slice(bytes);
        step
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: each initialised u64 is eight initialised bytes.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.words.len() * 8) };
        &bytes[..C::size()]
    }

    pub(crate) fn call(&self) -> usize {
        (self.words[0] & u64::from(u32::MAX)) as usize
    }

    /// Changes the inputs of the call, each a 32-bit word.
    pub(crate) fn set_told(&mut self, mut word: impl FnMut(u32) -> u32) {
        let (words, _) = self.bytes_mut()[C::input_words()].as_chunks_mut::<4>();
        for bytes in words {
            *bytes = word(u32::from_ne_bytes(*bytes)).to_ne_bytes();
        }
    }

    pub(crate) fn result(&self) -> &[u8] {
        &self.bytes()[C::result()..]
    }

    /// Builds another step's call from this step's final state.
    pub(crate) fn follow(&self, next: &Self) -> Self {
        let mut step = next.clone();
        step.bytes_mut()[C::result()..].copy_from_slice(self.result());
        step
    }

    /// Takes the step in the native build, and returns the step with its results.
    pub(crate) fn taken(&self) -> Self {
        let mut step = self.clone();
        // SAFETY: the buffer has the size and the alignment of the struct; the core keeps no
        // pointer to it.
        unsafe { C::take(step.words.as_mut_ptr().cast()) };
        step
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; every bit pattern is a valid u64.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.words.len() * 8)
        };
        &mut bytes[..C::size()]
    }
}
