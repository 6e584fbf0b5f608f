//! Parses the tokens of quic-tun's clients, the sources of tokens, and the files of quic-tun's
//! programs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use tunnel::quic_tun::http::{LONGEST_RESPONSE, SourceUrl, is_whole, token_of};
use tunnel::quic_tun::settings::{Role, check_file};
use tunnel::quic_tun::token::{Cleartext, LONGEST, find_in_lines, is_fit};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(token) = token_of(bytes) {
        assert!(is_fit(&token) && token.len() <= LONGEST && bytes.len() <= LONGEST_RESPONSE);
    }
    let _ = is_whole(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for parser in [Cleartext::Plain, Cleartext::Base64] {
        let _ = parser.target(text);
    }
    if let Some(token) = find_in_lines(text, [10, 0, 0, 1].into()) {
        assert!(is_fit(token) && text.contains(token));
    }
    if let Ok(url) = text.parse::<SourceUrl>() {
        assert_eq!(url.to_string().parse::<SourceUrl>().as_ref(), Ok(&url));
        assert_eq!(url.request("[::1]:5").matches("\r\n").count(), 6);
    }
    for name in ["a.yaml", "a.toml"] {
        let _ = check_file(Role::Server, Path::new(name), text);
        let _ = check_file(Role::Client, Path::new(name), text);
    }
});
