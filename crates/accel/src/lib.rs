//! Congestion control of ours in an unchanged Linux kernel: the C cores of `cc`, compiled to BPF.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`kernel`] | what this kernel can, before anything is tried |
//! | [`object`] | compiled programs into the kernel |

mod error;
pub mod kernel;
pub mod object;

pub use error::AccelError;
