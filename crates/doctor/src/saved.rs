//! Builds recordings from results that another verb saved: `weir perf --report` and `--json`,
//! iperf3 `-J`, and the directory of `weir lab run`. Each signal that the files lack is listed as
//! not seen, so that no rule takes its absence for a zero.

mod figures;
mod lab_run;
mod perf_test;

use crate::observe::Focus;
use crate::recording::{CoreTimes, Recording, Sample, Unseen};
use crate::{DoctorError, capture, recording};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use units::foreign_json;

/// Reads a recording, or makes a recording of saved results. The file is untrusted: its size is
/// bounded, and its texts are escaped.
pub fn open(path: &Path, focus: &Focus) -> Result<Recording, DoctorError> {
    if is_capture(path) {
        return capture::open(path, focus);
    }
    if *focus != Focus::All {
        return Err(DoctorError::Usage(
            "a recording is not observed again: leave out --flow".to_owned(),
        ));
    }
    let text = recording::bounded(path)?;
    let journal = path.with_file_name(JOURNAL);
    let parsed = match path == journal {
        true => parse("null", Some(&text)),
        false if text.contains(CELLS) && journal.is_file() => {
            parse(&text, Some(&recording::bounded(&journal)?))
        }
        false => parse(&text, None),
    };
    parsed.map_err(|reason| DoctorError::Malformed {
        path: path.to_owned(),
        reason: units::foreign(reason).to_string(),
    })
}

/// Whether the file's first bytes, or its name, are a capture's.
fn is_capture(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = host::open_regular_file(path).and_then(|file| file.take(64).read_to_end(&mut start));
    let has_name = path.extension().is_some_and(|name| CAPTURES.iter().any(|known| name == *known));
    has_name || read.is_ok() && capture::is_capture(&start)
}

/// As [`open`], for the text of a file, and for the journal beside the results of a lab. The
/// results are `null` if the run was stopped before it wrote any.
pub fn parse(text: &str, journal: Option<&str>) -> Result<Recording, String> {
    let mut document: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if document.get("weir_recording").is_some() {
        return Recording::parse(text);
    }
    foreign_json(&mut document, LONGEST_TEXT);
    if document.get("cells").is_some_and(Value::is_array) || document.is_null() {
        return lab_run::read(&document, journal);
    }
    if document.get("start").is_some() && document.get("end").is_some() {
        return perf_test::read(&document);
    }
    Err("it is no recording of `weir doctor`, no result of `weir perf` or iperf3 -J, and no result \
         of a lab"
        .to_owned())
}

/// Sets the CPU times before the first interval to zero.
fn begin_cores(samples: &mut [Sample]) {
    if let [first, second, ..] = samples {
        first.cores = second.cores.keys().map(|core| (*core, CoreTimes::default())).collect();
    }
}

fn unseen(what: &str, reason: &str) -> Unseen {
    Unseen { what: what.to_owned(), reason: reason.to_owned() }
}

/// Endings of the names of captures.
pub const CAPTURES: [&str; 3] = ["pcap", "pcapng", "cap"];
/// The journal of a run of a lab.
pub const JOURNAL: &str = "journal.jsonl";
/// A key that only the results of a lab have.
const CELLS: &str = "\"cells\"";
const LONGEST_TEXT: usize = 4096;
