//! Signs that several rules read: each is a pure function of a connection. A sign tells what is
//! seen, and no cause.

pub(crate) mod accepting;
pub(crate) mod far_window;
pub(crate) mod input_queues;
pub(crate) mod late_answers;
pub(crate) mod loss_model;
pub(crate) mod send_buffer;
pub(crate) mod siblings;
pub(crate) mod timeouts;
