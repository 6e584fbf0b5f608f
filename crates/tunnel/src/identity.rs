//! Keys, pins and certificates: who is at the other end.
