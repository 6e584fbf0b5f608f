//! The client: opens a test, runs its end of it, and tells what both ends saw.
