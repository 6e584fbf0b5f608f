//! What is read beside the streams: TCP_INFO over time, CPU of this end, latency under load.
