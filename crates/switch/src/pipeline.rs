//! Tables, groups, meters, MAC learning, and a packet's way through them.
