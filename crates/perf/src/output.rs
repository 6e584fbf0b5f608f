//! Audiences that write: text for people, iperf3's JSON, a line of JSON for each event.
