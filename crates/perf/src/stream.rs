//! Data streams, a thread each.
