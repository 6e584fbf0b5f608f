//! Parses the requests of applications to a client's proxies (SOCKS5 with its datagrams, and
//! CONNECT of HTTP), and the file of names and passwords.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use tunnel::proxy::Users;
use tunnel::proxy::connect::{ConnectRequest, LONGEST_HEAD};
use tunnel::proxy::socks5::{self, Greeting, LONGEST, Login, Request};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((_, taken))) = Greeting::decode(bytes) {
        assert!(taken <= bytes.len() && taken <= LONGEST);
    }
    if let Ok(Some((login, taken))) = Login::decode(bytes) {
        assert!(taken <= bytes.len() && taken <= LONGEST);
        assert_eq!(taken, 3 + login.name.len() + login.password.len());
    }
    if let Ok(Some((_, taken))) = Request::decode(bytes) {
        assert!(taken <= bytes.len() && taken <= LONGEST);
    } else if let Ok(None) = Request::decode(bytes) {
        assert!(bytes.len() < LONGEST);
    }
    if let Some((target, payload)) = socks5::datagram(bytes) {
        let mut again = BytesMut::new();
        socks5::put_datagram_head(&mut again, &target);
        again.extend_from_slice(payload);
        let (_, same) = socks5::datagram(&again).unwrap();
        assert_eq!(same, payload);
    }
    match ConnectRequest::decode(bytes) {
        Ok(Some((request, taken))) => {
            assert!(taken <= bytes.len() && bytes[..taken].ends_with(b"\r\n\r\n"));
            assert!(request.to.port() > 0);
            // Bytes behind the header change nothing.
            assert_eq!(ConnectRequest::decode(&bytes[..taken]), Ok(Some((request, taken))));
        }
        Ok(None) => assert!(bytes.len() < LONGEST_HEAD),
        Err(error) => assert!(!error.status().is_empty()),
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(users) = Users::parse(text)
    {
        assert!(!users.admit(b"", b""));
    }
});
