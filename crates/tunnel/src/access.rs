//! Which identity may reach which target.
