//! The document on a status socket: another process may have written it. Its text contains no
//! control characters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tunnel::status::Status;

fuzz_target!(|bytes: &[u8]| {
    let Ok(status) = Status::from_json(bytes) else { return };
    let _ = status.is_ready();
    let text = status.to_string();
    assert!(text.chars().all(|one| one == '\n' || !one.is_control()), "{text:?}");
    let again = serde_json::to_vec(&status).unwrap();
    assert!(Status::from_json(&again).is_ok());
});
