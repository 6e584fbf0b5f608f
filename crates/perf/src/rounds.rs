//! Request/response tests after netperf: stream, rr, crr, udp-rr, repeated until they are sure.
