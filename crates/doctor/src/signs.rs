//! Signs that several rules read: each sign is a pure function of a connection or of the machine. A
//! sign describes an observation, and names no cause.

pub(crate) mod accepting;
pub(crate) mod emulated;
pub(crate) mod far_window;
pub(crate) mod full_path;
pub(crate) mod input_queues;
pub(crate) mod late_answers;
pub(crate) mod loss_model;
pub(crate) mod own_refusals;
pub(crate) mod rejected;
pub(crate) mod send_buffer;
pub(crate) mod short_memory;
pub(crate) mod siblings;
pub(crate) mod timeouts;
