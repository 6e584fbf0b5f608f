//! Publishes a run: a page with its answer and its origin, and an archive with all its data.

use super::directory::RunDirectory;
use super::inputs::{Inputs, cut};
use super::{on_disk, overview};
use crate::bench::LabFile;
use crate::model::LabError;
use crate::model::checksum::sha256;
use crate::model::file::Disturbance;
use crate::workloads::builtin::BUILTIN;
use report::ReportError;
use report::record::{self, Archived, Record};
use results::{Cell, Results};
use std::path::{Path, PathBuf};

/// Examples, printed in the command's help.
pub const EXAMPLES: &str = "\
Examples:
  weir lab record runs/quic-tun-20261124-070000
  weir lab record runs/quic-tun-20261124-070000 --archive quic-tun.tar.gz
  weir lab record runs/quic-tun-20261124-070000 --folder /srv/results

The page is docs/results/LAB.md, with the chart LAB.svg beside the page. A lab file that does not
come with weir is copied to LAB.toml. The page has at most 80 lines: --archive keeps the rest of the
run. A page is written only of a valid run without failed cells, by a weir that was built from a
clean commit, so that the figures can be repeated. All turns must be of one build and of the same
files. A run during which other programs used much CPU is refused: end these programs and run the
lab again. Cells that the lab makes late on purpose ([disturbance]) need not be valid, and are
marked.";

/// The files that the record of a run consists of.
#[derive(Debug)]
pub struct Recorded {
    pub page: PathBuf,
    /// The chart; `None` if the run has nothing to draw.
    pub chart: Option<PathBuf>,
    /// The copy of the lab file; `None` if the lab comes with weir.
    pub lab_file: Option<PathBuf>,
    pub archive: Option<Archive>,
}

/// The file with the full data of a run.
#[derive(Debug)]
pub struct Archive {
    pub file: PathBuf,
    pub sha256: String,
}

/// Writes the page of a run and the files beside the page into `folder`, and the full data of the
/// run into the file `archive`.
pub fn record(run: &Path, folder: &Path, archive: Option<&Path>) -> Result<Recorded, LabError> {
    let on_disk::Run { results, samples, lab_file, .. } = on_disk::read(run)?;
    let refuse = |reason: String| LabError::NotOnRecord { path: run.to_owned(), reason };
    let named = results.environment.get("lab_sha256").and_then(serde_json::Value::as_str);
    let lab_file =
        lab_file.ok_or_else(|| refuse("it has no lab.toml: run the lab again".to_owned()))?;
    if named != Some(sha256(&lab_file).as_str()) {
        let reason = "its lab.toml is not the file that was run: run the lab again";
        return Err(refuse(reason.to_owned()));
    }
    is_of_one_build(run, &results).map_err(&refuse)?;
    // An older weir may have accepted a file that this weir refuses.
    let lab = LabFile::parse(LAB, &lab_file).ok();
    let seeded = lab.clone().and_then(|lab| with_seed(lab, &results));
    let is_disturbed = |cell: &Cell| {
        let disturbance = lab.as_ref().and_then(|lab| lab.disturbance_at(&cell.axes).ok());
        disturbance.is_some_and(|found| found != Disturbance::default())
    };
    let written = on_disk::read_as_written(run)?;
    let beside = |extension: &str| record::file_in(folder, &results.lab, extension);
    let name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let builtin = BUILTIN.iter().any(|builtin| builtin.text == lab_file);
    let copied = (!builtin).then(|| beside("toml"));
    let is_of_page = |file: &Path| {
        let own =
            ["md", "svg", "toml"].map(|extension| std::path::absolute(beside(extension)).ok());
        std::path::absolute(file).is_ok_and(|file| own.contains(&Some(file)))
    };
    if archive.is_some_and(is_of_page) {
        let reason = "--archive names a file of the page: name another file with --archive";
        return Err(refuse(reason.to_owned()));
    }
    // An unfit run is refused before the archive and the chart are made.
    let fit = Record {
        written: &written,
        chart: None,
        lab_file: None,
        archive: None,
        planned: seeded.as_ref().and_then(|lab| overview::planned_of_run(lab, &results)),
        is_disturbed: &is_disturbed,
    };
    fit.page().map_err(|unfit| refuse(unfit.to_string()))?;
    let packed = archive.map(|file| Ok::<_, LabError>((file, pack(run)?))).transpose()?;
    let archive = packed
        .as_ref()
        .map(|(file, bytes)| Archive { file: (*file).to_owned(), sha256: sha256(bytes) });
    let archive_name = archive.as_ref().map(|archive| name(&archive.file));
    let archived = archive.as_ref().zip(archive_name.as_ref());
    let drawing = record::chart(&results, &samples).map(|text| (beside("svg"), text));
    let (chart_name, copy_name) =
        (drawing.as_ref().map(|(file, _)| name(file)), copied.as_deref().map(name));
    let page = Record {
        chart: chart_name.as_deref(),
        lab_file: copy_name.as_deref(),
        archive: archived.map(|(archive, name)| Archived { name, sha256: &archive.sha256 }),
        ..fit
    };
    let page = page.page().map_err(|unfit| refuse(unfit.to_string()))?;
    if let Some((file, bytes)) = &packed {
        keep_another(file, bytes).map_err(&refuse)?;
        record::write(file, bytes)?;
    }
    if let Some((file, text)) = &drawing {
        record::write(file, text.as_bytes())?;
    }
    if let Some(file) = &copied {
        record::write(file, lab_file.as_bytes())?;
    }
    // Write the page last, so that the files that the page names exist.
    let file = beside("md");
    record::write(&file, page.as_bytes())?;
    Ok(Recorded { page: file, chart: drawing.map(|(file, _)| file), lab_file: copied, archive })
}

/// Returns the lab with the seed of the run, which draws the run's paths.
fn with_seed(mut lab: LabFile, results: &Results) -> Option<LabFile> {
    let seed = results.environment.get("seed").and_then(serde_json::Value::as_u64);
    match seed {
        Some(seed) => lab.set_seed(seed).ok().map(|()| lab),
        None => Some(lab),
    }
}

/// Packs the run's files into one archive.
fn pack(run: &Path) -> Result<Vec<u8>, LabError> {
    let folder = folder_of(run);
    let mut files = Vec::new();
    for name in ARCHIVED {
        // The user may name a results.json by itself, with any file name.
        let file = if name == RESULTS { on_disk::results_file(run) } else { folder.join(name) };
        let read = |source| LabError::Report(ReportError::Read { file: file.clone(), source });
        match std::fs::symlink_metadata(&file) {
            Ok(found) if found.is_file() => files.push((name, std::fs::read(&file).map_err(read)?)),
            Ok(_) => {
                return Err(read(std::io::Error::other(
                    "an archive takes regular files only: put the run's own file there",
                )));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(read(error)),
        }
    }
    let packed = report::archive::pack(&files);
    packed.map_err(|source| ReportError::Write { file: folder.to_owned(), source }.into())
}

/// Refuses to replace another file: an archive may be the only copy of its run.
fn keep_another(file: &Path, bytes: &[u8]) -> Result<(), String> {
    let Ok(known) = std::fs::metadata(file) else { return Ok(()) };
    let is_same = known.is_file()
        && known.len() == bytes.len() as u64
        && std::fs::read(file).is_ok_and(|known| known == bytes);
    if is_same {
        return Ok(());
    }
    Err(format!(
        "{} exists and is not the archive of this run: name another file with --archive, or \
         remove the existing file",
        file.display()
    ))
}

fn folder_of(run: &Path) -> &Path {
    match run.is_dir() {
        true => run,
        false => run.parent().unwrap_or(Path::new(".")),
    }
}

/// Checks that every turn has the build and the files that the page names.
fn is_of_one_build(run: &Path, results: &Results) -> Result<(), String> {
    let folder = folder_of(run);
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

/// The fact in a run's environment with the checksum over all inputs.
pub(super) const INPUTS: &str = "inputs_sha256";
const LAB: &str = "lab.toml";
const RESULTS: &str = "results.json";
const ARCHIVED: [&str; 6] =
    ["journal.jsonl", LAB, "report.html", RESULTS, "run.toml", "samples.parquet"];
