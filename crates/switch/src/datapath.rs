//! Frames in, frames out.

pub mod step;
