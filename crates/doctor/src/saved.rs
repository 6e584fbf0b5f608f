//! Recordings made of the figures that another verb saved: `weir perf --report` and `--json`,
//! iperf3 `-J`, and the directory of `weir lab run`. They hold what those files hold. Each signal
//! that the files lack is listed as not seen, so that no rule takes its absence for a zero.

mod figures;
mod lab_run;
mod perf_test;

use crate::recording::{CoreTimes, Recording, Sample, Unseen};
use crate::{DoctorError, recording};
use serde_json::Value;
use std::path::Path;
use units::foreign_json;

/// Reads a recording, or makes one of saved figures. Anybody may have written the file: it is
/// bounded, and its texts are escaped.
pub fn open(path: &Path) -> Result<Recording, DoctorError> {
    let text = recording::bounded(path)?;
    let malformed = |reason: String| DoctorError::Malformed {
        path: path.to_owned(),
        reason: units::foreign(reason).to_string(),
    };
    let mut document: Value =
        serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
    if document.get("weir_recording").is_some() {
        return Recording::parse(&text).map_err(malformed);
    }
    foreign_json(&mut document, LONGEST_TEXT);
    if document.get("cells").is_some_and(Value::is_array) {
        let journal = path.with_file_name(JOURNAL);
        let turns = journal.is_file().then(|| recording::bounded(&journal)).transpose()?;
        return lab_run::read(&document, turns.as_deref()).map_err(malformed);
    }
    if document.get("start").is_some() && document.get("end").is_some() {
        return perf_test::read(&document).map_err(malformed);
    }
    Err(malformed(
        "it is no recording of `weir doctor`, no result of `weir perf` or iperf3 -J, and no result \
         of a lab"
            .to_owned(),
    ))
}

/// The cores' time before the first interval is zero.
fn begin_cores(samples: &mut [Sample]) {
    if let [first, second, ..] = samples {
        first.cores = second.cores.keys().map(|core| (*core, CoreTimes::default())).collect();
    }
}

fn unseen(what: &str, reason: &str) -> Unseen {
    Unseen { what: what.to_owned(), reason: reason.to_owned() }
}

const JOURNAL: &str = "journal.jsonl";
const LONGEST_TEXT: usize = 4096;
