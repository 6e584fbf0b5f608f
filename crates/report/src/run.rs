//! The files of a run directory.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::profile::Profile;
use crate::{ReportError, encode_samples, html, markdown};
use results::{Results, Samples, Series};

/// Paths of a run's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFiles {
    /// `results.json`: all values and verdicts.
    pub results: PathBuf,
    /// `samples.parquet`: the values of every repeat, and the time series.
    pub samples: PathBuf,
    /// `report.md`: the report as text.
    pub markdown: PathBuf,
    /// `report.html`: the report as a page.
    pub html: PathBuf,
}

impl RunFiles {
    /// Returns the paths inside a run directory, whether or not the files exist.
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            results: directory.join("results.json"),
            samples: directory.join("samples.parquet"),
            markdown: directory.join("report.md"),
            html: directory.join("report.html"),
        }
    }
}

/// Writes all four files, each atomically, and the profile's files, if the run has a profile.
/// Writes results.json first, so that a failure to draw never costs a measurement.
pub fn write_run(
    directory: &Path,
    results: &Results,
    samples: &Samples,
    series: &[Series],
    lab_file: &str,
    profile: Option<&Profile>,
) -> Result<RunFiles, ReportError> {
    let files = RunFiles::in_directory(directory);
    std::fs::create_dir_all(directory)
        .map_err(|source| ReportError::Write { file: directory.to_owned(), source })?;
    replace(&files.results, results.to_json()?.as_bytes())?;
    replace(&files.samples, &encode_samples(samples, series)?)?;
    replace(&files.markdown, markdown::render(results, lab_file).as_bytes())?;
    replace(&files.html, html::render_run(results, samples, series, lab_file, profile).as_bytes())?;
    profile.map_or(Ok(()), |profile| profile.write(directory))?;
    Ok(files)
}

/// Reads a `results.json`, and escapes its texts for a terminal and a page.
pub fn read_results(file: &Path) -> Result<Results, ReportError> {
    Ok(read_results_as_written(file)?.shown())
}

/// Reads a `results.json` with unchanged texts, for a caller that escapes them.
pub fn read_results_as_written(file: &Path) -> Result<Results, ReportError> {
    let text = host::read_regular_file(file)
        .map_err(|source| ReportError::Read { file: file.to_owned(), source })?;
    Ok(Results::from_json(&text, file)?)
}

// A reader gets either the old or the new file: the rename is atomic within a directory, rename(2).
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let write = || {
        let directory = file.parent().unwrap_or(Path::new("."));
        let mut temporary =
            tempfile::Builder::new().permissions(readable()).tempfile_in(directory)?;
        temporary.write_all(bytes)?;
        temporary.as_file().sync_all()?;
        temporary.persist(file)?;
        Ok(())
    };
    write().map_err(|source| ReportError::Write { file: file.to_owned(), source })
}

// Temporary files are private by default, but a report is for other readers. The umask still
// applies.
fn readable() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_samples;
    use results::Form;

    #[test]
    fn a_run_writes_exactly_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("runs/1");
        let results = Results::new("x", Form::Smoke);
        for _ in 0..2 {
            let files = write_run(&run, &results, &Samples::new("x"), &[], "", None).unwrap();
            assert_eq!(read_results(&files.results).unwrap(), results);
            assert!(read_samples(&files.samples).unwrap().rows.is_empty());
        }
        let mut names: Vec<_> = std::fs::read_dir(&run)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["report.html", "report.md", "results.json", "samples.parquet"]);
    }

    #[test]
    fn an_impossible_directory_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inside = file.path().join("run");
        let results = Results::new("x", Form::Smoke);
        let error = write_run(&inside, &results, &Samples::new("x"), &[], "", None).unwrap_err();
        assert!(error.to_string().contains(&inside.display().to_string()), "{error}");
    }
}
