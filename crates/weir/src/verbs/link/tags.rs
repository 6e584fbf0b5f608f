use super::{LOOK_EVERY, print};
use crate::exit::{Ending, Unusable};
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::Args;
use emu::tags::{self, TagCapture};
use emu::{EmuError, Endpoint};
use host::HostError;
use std::path::Path;
use units::{Span, Time};

#[derive(Debug, Args)]
pub(crate) struct ShowTags {
    /// INTERFACE, NAMESPACE:INTERFACE, or a capture in libpcap's format
    #[arg(value_name = "IF|PCAP")]
    what: String,
    /// TPID of a tag
    #[arg(long, value_name = "HEX", default_value = "0x88a8")]
    tpid: String,
    /// End after this many tagged packets
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after this time, for example 5s
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Also print each SYN and SYN-ACK with the reserved bits and the option that negotiate CAQM
    #[arg(long)]
    handshakes: bool,
    /// Also print the packets' first bytes
    #[arg(long)]
    hex: bool,
    /// Print each packet that is shown as a JSON document on its own line
    #[arg(long, conflicts_with = "hex")]
    json: bool,
    /// Bytes per unit of a hint on data
    #[arg(long, value_name = "BYTES", default_value_t = 8)]
    data_hint_unit: u64,
    /// Bytes per unit of a hint on an acknowledgement
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    ack_hint_unit: u64,
}

#[derive(Debug, Default)]
struct Seen {
    tagged: u64,
    plain: u64,
    began: Option<Time>,
}

pub(super) fn show(arguments: &ShowTags) -> anyhow::Result<Ending> {
    let digits = arguments.tpid.strip_prefix("0x").or_else(|| arguments.tpid.strip_prefix("0X"));
    let tpid = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()).ok_or_else(|| {
        EmuError::Refused(format!("the tpid `{}`: write it like 0x88a8", arguments.tpid))
    })?;
    let duration = arguments.duration.as_deref().map(str::parse::<Span>).transpose();
    let duration = duration.map_err(|error| EmuError::Refused(error.to_string()))?;
    let mut seen = Seen::default();
    let file = Path::new(&arguments.what);
    // A path has a slash. An interface's name has no slash, and a namespace comes before a colon.
    if file.is_file() || arguments.what.contains('/') && !arguments.what.contains(':') {
        let bytes = host::read_regular_bytes(file)
            .map_err(|cause| Unusable::argument("read", file, &cause))?;
        let packets = tags::of_capture(&bytes).with_context(|| file.display().to_string())?;
        for (when, frame) in packets {
            if seen.enough(arguments) {
                break;
            }
            seen.capture(arguments, tpid, when, &frame);
        }
        seen.sum_up();
        return Ok(Ending::Fine);
    }
    let end: Endpoint = arguments.what.parse().map_err(EmuError::from)?;
    let cancel = cancel_on_signals()?;
    let mut capture = TagCapture::open(&end).map_err(|error| match error {
        EmuError::Host { source: HostError::NotPermitted { .. }, .. } => {
            anyhow::anyhow!(
                "reading the packets of {end} needs root: run as root, or name a capture"
            )
        }
        error => error.into(),
    })?;
    let mut end = duration.map(|duration| probe::clock::now() + duration);
    loop {
        let now = probe::clock::now();
        if cancel.is_cancelled() {
            end = Some(end.map_or(now, |end| end.min(now)));
        }
        // Also shows packets that arrived before the end of the capture and are read afterwards.
        let (mut any, mut is_over) = (false, false);
        for (when, frame) in capture.take()? {
            any = true;
            is_over = end.is_some_and(|end| when > end);
            if is_over || seen.enough(arguments) {
                break;
            }
            seen.capture(arguments, tpid, when, &frame);
        }
        is_over |= !any && end.is_some_and(|end| now >= end);
        if is_over || seen.enough(arguments) {
            break;
        }
        if !any {
            std::thread::sleep(LOOK_EVERY / 10);
        }
    }
    seen.sum_up();
    Ok(Ending::Fine)
}

impl Seen {
    fn enough(&self, arguments: &ShowTags) -> bool {
        arguments.count.is_some_and(|count| self.tagged >= count)
    }

    fn capture(&mut self, arguments: &ShowTags, tpid: u16, when: Time, frame: &[u8]) {
        let began = *self.began.get_or_insert(when);
        let since = Time::from_nanos(when.nanos().saturating_sub(began.nanos()));
        let units = (arguments.data_hint_unit, arguments.ack_hint_unit);
        let line = if arguments.json {
            tags::document(since, frame, tpid, units).map(|document| document.to_string())
        } else {
            tags::line(since, frame, tpid, units)
        };
        match line {
            None => {
                self.plain += 1;
                let line = match (arguments.handshakes, arguments.json) {
                    (false, _) => None,
                    (true, false) => tags::handshake(since, frame, tpid),
                    (true, true) => tags::handshake_document(since, frame, tpid)
                        .map(|document| document.to_string()),
                };
                line.iter().for_each(|line| print(&format!("{line}\n")));
            }
            Some(line) => {
                self.tagged += 1;
                print(&format!("{line}\n"));
                if arguments.hex {
                    print(&tags::dump(frame));
                }
            }
        }
    }

    fn sum_up(&self) {
        eprintln!("{} packets with a tag, {} without", self.tagged, self.plain);
    }
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir link show-tags eth0 --count 20
  weir link show-tags eth0 --handshakes
  weir link show-tags left:eth0 --duration 5s --hex
  weir link show-tags capture.pcap";
