//! What a tunnel is told by its file.
