//! The server: many clients at once, each within its limits.
