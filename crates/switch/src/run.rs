//! A running switch: ports, threads, control sockets.
