//! Classifies a tunnel by the first bytes of both directions, from any application and any target.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tunnel::quic_tun::classify::{HEAD, classify};

fuzz_target!(|heads: (&[u8], &[u8])| {
    let (client, server) = heads;
    let found = classify(client, server);
    if client.len() >= HEAD && server.len() >= HEAD {
        assert!(found.is_final);
    }
    if let Some(protocol) = found.protocol {
        assert!(serde_json::to_string(&protocol).is_ok());
    }
});
