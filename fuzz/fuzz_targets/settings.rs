//! Parses values of a command line. The parser accepts the printed form of an accepted value again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use link::{Jitter, Loss, Overhead, QueueConfig, Reorder, Trace};
use units::{Bytes, Rate, Share, Span};

fuzz_target!(|text: &str| {
    let _ = text.parse::<Bytes>();
    let _ = text.parse::<Rate>();
    let _ = text.parse::<Share>();
    let _ = text.parse::<Span>();
    let _ = text.parse::<Jitter>();
    let _ = text.parse::<Overhead>();
    let _ = text.parse::<Reorder>();
    let _ = Trace::parse(text);
    if let Ok(loss) = text.parse::<Loss>() {
        assert!(loss.to_string().parse::<Loss>().is_ok());
    }
    if let Ok(queue) = text.parse::<QueueConfig>() {
        assert!(queue.to_string().parse::<QueueConfig>().is_ok());
    }
});
