use crate::output;
use accel::AccelError;
use doctor::DoctorError;
use emu::{EmuError, UsageError};
use generator::GenError;
use lab::LabError;
use perf::PerfError;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::{fmt, io};
use switch::run::SwitchError;
use tunnel::config::ConfigError;
use tunnel::identity::IdentityError;
use tunnel::run::RunError;
use units::visible;

/// The outcome of a verb that was used correctly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Fine,
    /// The measured object failed: a failed or invalid cell, a bound that does not hold.
    Failed,
    /// Wrong use, which another process has already reported.
    Misused,
}

/// Returns the exit status (0: success; 1: the measured object failed; 2: wrong use) and prints an
/// error to stderr.
pub(crate) fn code(outcome: anyhow::Result<Ending>) -> ExitCode {
    match outcome {
        Ok(Ending::Fine) => ExitCode::SUCCESS,
        Ok(Ending::Failed) => ExitCode::from(1),
        Ok(Ending::Misused) => ExitCode::from(2),
        Err(error) => {
            output::note(format_args!("weir: {}", visible(&error_text(&error))));
            ExitCode::from(if is_misuse(&error) { 2 } else { 1 })
        }
    }
}

/// A file, directory or program that the user named and that cannot be used; the text asks the user
/// for another name.
#[derive(Debug)]
pub(crate) struct Unusable(String);

impl Unusable {
    /// Builds the error for a path. `doing` is a verb, as in `write`; `flag` is the flag with which
    /// the user named the path.
    pub(crate) fn path(doing: &str, path: &Path, cause: &io::Error, flag: &str) -> Self {
        Self(format!("cannot {doing} {}: {cause}; name another with {flag}", path.display()))
    }

    /// Builds the error for a path that is an argument without a flag.
    pub(crate) fn argument(doing: &str, path: &Path, cause: &io::Error) -> Self {
        Self(format!("cannot {doing} {}: {cause}; name another file", path.display()))
    }

    /// Builds the error for a directory that must be empty; `name` is an entry in this directory.
    pub(crate) fn held(directory: &Path, name: &OsStr, flag: &str) -> Self {
        let (directory, name) = (directory.display(), name.display());
        Self(format!(
            "{flag} {directory}: the directory holds something already (`{name}`): name a new one"
        ))
    }

    pub(crate) fn program(name: &str) -> Self {
        Self(format!("{name} is not installed: install it, or name the program by its path"))
    }
}

impl std::error::Error for Unusable {}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Formats the error and its causes without repetition: most messages already contain their cause.
fn error_text(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| match cause.to_string() {
        cause if text.contains(&cause) => text,
        cause if text.is_empty() => cause,
        cause => format!("{text}: {cause}"),
    })
}

fn is_misuse(error: &anyhow::Error) -> bool {
    error.is::<UsageError>()
        || error.is::<Unusable>()
        || error.is::<ConfigError>()
        || error.is::<switch::run::ConfigError>()
        || error.downcast_ref().is_some_and(SwitchError::is_misuse)
        || error.downcast_ref().is_some_and(AccelError::is_misuse)
        || error.downcast_ref().is_some_and(DoctorError::is_misuse)
        || error.downcast_ref().is_some_and(EmuError::is_misuse)
        || error.downcast_ref().is_some_and(GenError::is_misuse)
        || error.downcast_ref().is_some_and(LabError::is_misuse)
        || error.downcast_ref().is_some_and(IdentityError::is_misuse)
        || error.downcast_ref().is_some_and(PerfError::is_misuse)
        || error.downcast_ref().is_some_and(RunError::is_misuse)
}
