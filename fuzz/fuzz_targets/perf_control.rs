//! Parses input on a control connection from an unknown client: lengths, JSON, and values. A server
//! can print every message that it accepts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf::control::{Cookie, Message, Parameters, Results, State, count};
use perf::rounds::wire::{Order, Report, TestRequest};
use serde::de::DeserializeOwned;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let _ = State::from_byte(*first);
    if let Some(cookie) = rest.first_chunk::<{ Cookie::LENGTH }>() {
        let _ = Cookie::from_bytes(*cookie).map(|cookie| cookie.as_str().to_owned());
    }
    // Parse the raw input, with a length of any value, in pieces of any size.
    fed(rest, usize::from(*first).max(1));
    // Parse the same input behind a valid length, so that the parser reads the message's content.
    let Ok(length) = u32::try_from(rest.len()) else { return };
    let framed = [&length.to_be_bytes()[..], rest].concat();
    let Some(message) = fed(&framed, framed.len()) else { return };
    if let Some(parameters) = read::<Parameters>(&message)
        && let Ok(options) = parameters.options()
    {
        let _ = parameters.weir.as_ref().and_then(TestRequest::within);
        assert!(options.block_bytes() <= 1 << 20);
        assert!(Parameters::of(&options).options().is_ok());
    }
    if let Some(results) = read::<Results>(&message) {
        for stream in results.streams {
            let _ = (count(stream.bytes), count(stream.retransmits), count(stream.packets));
        }
    }
    let _ = (read::<Order>(&message), read::<Report>(&message));
});

/// Returns the message; `None` if the message is incomplete. Checks that the reader never stores
/// more than the bytes received.
fn fed(bytes: &[u8], step: usize) -> Option<Message> {
    let mut message = Message::new(LONGEST);
    let mut rest = bytes;
    loop {
        match message.wants().ok()? {
            0 => return Some(message),
            _ if rest.is_empty() => return None,
            wants => {
                let (now, later) = rest.split_at(wants.min(step).min(rest.len()));
                message.take(now);
                rest = later;
            }
        }
    }
}

fn read<T: DeserializeOwned>(message: &Message) -> Option<T> {
    message.parse().ok()
}

const LONGEST: usize = 8 * 1024;
