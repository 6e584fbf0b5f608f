//! Signs that several rules read: each is a pure function of a connection. A sign tells what is
//! seen, and no cause.

pub(crate) mod far_window;
pub(crate) mod siblings;
