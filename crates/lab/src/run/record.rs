//! Puts a run on record: a page that names everything that its figures came from.

use super::directory::RunDirectory;
use super::inputs::{Inputs, cut};
use super::{programs, runs};
use crate::builtin::BUILTIN;
use crate::file::Disturbance;
use crate::{LabError, LabFile};
use results::{Cell, Results};
use std::path::{Path, PathBuf};

/// Printed in the command's help.
pub const EXAMPLES: &str = "\
Examples:
  weir lab record runs/quic-tun-20261124-070000
  weir lab record runs/quic-tun-20261124-070000 --folder /srv/results

The page is docs/results/LAB.md. It is written only of a valid run without failed cells, by a weir
that was built from a clean commit, so that the figures on it can be repeated. All turns must be of
one build and of the same files. A run during which other programs used much CPU is refused: end
them and run the lab again. Cells that the lab
makes late on purpose ([disturbance]) need not be valid, and are marked.";

/// Writes the page of a run into `folder`. Returns its path.
pub fn record(run: &Path, folder: &Path) -> Result<PathBuf, LabError> {
    let runs::Run { results, lab_file, .. } = runs::read(run)?;
    let refuse = |reason: String| LabError::NotOnRecord { path: run.to_owned(), reason };
    let named = results.environment.get("lab_sha256").and_then(serde_json::Value::as_str);
    let lab_file =
        lab_file.ok_or_else(|| refuse("it has no lab.toml: run the lab again".to_owned()))?;
    if named != Some(programs::sha256(&lab_file).as_str()) {
        let reason = "its lab.toml is not the file that was run: run the lab again";
        return Err(refuse(reason.to_owned()));
    }
    is_of_one_build(run, &results).map_err(&refuse)?;
    // An older weir may have accepted a file that this one does not.
    let lab = LabFile::parse(LAB, &lab_file).ok();
    let is_disturbed = |cell: &Cell| {
        let disturbance = lab.as_ref().and_then(|lab| lab.disturbance_at(&cell.axes).ok());
        disturbance.is_some_and(|found| found != Disturbance::default())
    };
    let builtin = BUILTIN.iter().any(|builtin| builtin.text == lab_file);
    let lab_file = (!builtin).then_some(lab_file.as_str());
    let written = runs::read_as_written(run)?;
    let page = report::record::page(&written, lab_file, &is_disturbed);
    let page = page.map_err(|unfit| refuse(unfit.to_string()))?;
    Ok(report::record::write(folder, &results.lab, &page)?)
}

/// Every turn was measured by the build and from the files that the page would name.
fn is_of_one_build(run: &Path, results: &Results) -> Result<(), String> {
    let folder = match run.is_dir() {
        true => run,
        false => run.parent().unwrap_or(Path::new(".")),
    };
    let own = results.environment.get(INPUTS).and_then(serde_json::Value::as_str);
    let Some(own) = own else {
        return Err(
            "the weir that measured it recorded no inputs, so builds may be mixed in it: run \
                    the lab again"
                .to_owned(),
        );
    };
    let described = RunDirectory::description(folder, true).map_err(|error| error.to_string())?;
    let described = Inputs::of_run(&described).unwrap_or_default();
    if described.sha256() != own {
        return Err(
            "run.toml names other inputs (the program, its files) than the results: run the lab \
                    again"
                .to_owned(),
        );
    }
    let own = described.mark();
    let marks = RunDirectory::marks(folder).map_err(|error| error.to_string())?;
    let Some(other) = marks.iter().find(|mark| **mark != own) else { return Ok(()) };
    let changed = match (other.weir.as_str(), own.weir.as_str()) {
        ("", _) => "a weir that recorded no inputs".to_owned(),
        (weir, own) if weir == own => "other files than run.toml names".to_owned(),
        (weir, own) => {
            format!("another build of weir ({}, and {} in run.toml)", cut(weir), cut(own))
        }
    };
    Err(format!("some of its turns are of {changed}: run the lab again with one build"))
}

/// The checksum over all inputs, in the environment of a run.
pub(super) const INPUTS: &str = "inputs_sha256";
const LAB: &str = "lab.toml";
