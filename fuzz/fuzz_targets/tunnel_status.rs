//! Parses the document on a status socket, which another process may have written. The text that
//! users see contains no control characters. Also parses requests to the socket.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tunnel::status::{Request, Status};

fuzz_target!(|bytes: &[u8]| {
    if let Err(refused) = Request::from_json(bytes) {
        assert!(!refused.is_empty());
    }
    let Ok(status) = Status::from_json(bytes) else { return };
    let _ = status.is_ready();
    let text = status.to_string();
    assert!(text.chars().all(|one| one == '\n' || !one.is_control()), "{text:?}");
    let again = serde_json::to_vec(&status).unwrap();
    assert!(Status::from_json(&again).is_ok());
});
