use crate::model::file::FileError;
use emu::EmuError;
use host::HostError;
use port::PortError;
use probe::ProbeError;
use report::ReportError;
use std::path::{Path, PathBuf};

/// A reason why a lab cannot run at all. A failure in one cell is that cell's
/// [`Failure`](crate::model::Failure), and the other cells continue.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "there is no lab `{name}`{hint}: `weir lab list` has the built-in labs; name a file of your own by its path, as in ./{name}.toml"
    )]
    NoSuchLab { name: String, hint: String },
    #[error(
        "none of the lab's systems can run here; install what is missing, or name others with --systems: {reasons}"
    )]
    NothingToRun { reasons: String },
    /// The check before the first measurement found problems.
    #[error(
        "nothing was measured, because this machine lacks what the lab needs; install it, or leave systems out \
         with --systems\n{}", .problems.join("\n")
    )]
    CannotMeasure { problems: Vec<String> },
    /// Some hosts are unfit for the lab. Nothing was measured.
    #[error("nothing was measured, because not every host is fit for the lab\n{}", .problems.join("\n"))]
    HostsUnfit { problems: Vec<String> },
    #[error("weir was not removed from every host: mend the reason, and run the command again\n{}", .hosts.join("\n"))]
    NotRemoved {
        /// A line for each host: removed, nothing to remove, or the reason of a failure.
        hosts: Vec<String>,
    },
    /// A host could not be reached, or its connection was lost for good.
    #[error("{host}: {reason}{}", kept(.directory.as_deref()))]
    HostLost { host: String, reason: String, directory: Option<PathBuf> },
    /// The directory cannot be used. The user named this directory, or it is the working directory.
    #[error("{}: {reason}", path.display())]
    RunDirectory { path: PathBuf, reason: String },
    /// The disk failed, or filled up, while the run went on.
    #[error("{}: {reason}", path.display())]
    Unwritten { path: PathBuf, reason: String },
    #[error("{}: {reason}", path.display())]
    NotOnRecord { path: PathBuf, reason: String },
    #[error("--resume {}: it holds a run of another lab file, form or seed: {difference}", path.display())]
    ResumesAnother { path: PathBuf, difference: String },
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{0}")]
    Usage(String),
    #[error("nothing was decided: {reason}")]
    NotMeasured { reason: String },
    /// A step's state is still in force, so no further step may be measured.
    #[error("{reason}{}", kept(.directory.as_deref()))]
    NotUndone { reason: String, directory: Option<PathBuf> },
    #[error("interrupted{}", kept(.directory.as_deref()))]
    Interrupted {
        /// The directory that keeps the finished turns.
        directory: Option<PathBuf>,
    },
}

impl LabError {
    /// Adds the directory that keeps the finished turns to the error.
    pub(crate) fn within(self, run: &Path) -> Self {
        match self {
            Self::HostLost { host, reason, .. } => {
                Self::HostLost { host, reason, directory: Some(run.to_owned()) }
            }
            other => other,
        }
    }

    /// Converts the failure of a measurement that has a single cell.
    pub(crate) fn not_measured(failure: Failure) -> Self {
        match failure {
            Failure::Interrupted => Self::Interrupted { directory: None },
            failure => Self::NotMeasured { reason: failure.to_string() },
        }
    }

    /// Whether a different command line would have helped.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            Self::File(_)
                | Self::NoSuchLab { .. }
                | Self::NothingToRun { .. }
                | Self::Usage(_)
                | Self::CannotMeasure { .. }
                | Self::HostsUnfit { .. }
                | Self::NotRemoved { .. }
                | Self::RunDirectory { .. }
                | Self::ResumesAnother { .. }
        )
    }
}

/// A reason why one cell has no figures. The cell's field `failed` holds the reason's text.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Emulator(#[from] EmuError),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error("{0}")]
    Workload(String),
    /// The program exited normally before the lab had read the connection twice: the lab was late.
    #[error("{program} ended before the lab had read its connection twice: measure for longer")]
    ReadTooLate { program: String },
    /// The state of a step could not be removed.
    #[error("{0}")]
    NotUndone(String),
    /// The connection to a host ended, or the host sent no valid answer.
    #[error("{host}: {reason}")]
    HostLost { host: String, reason: String },
    #[error("interrupted")]
    Interrupted,
}

impl Failure {
    pub(crate) fn io(doing: &str, error: &std::io::Error) -> Self {
        Self::Workload(format!("{doing}: {error}"))
    }
}

fn kept(directory: Option<&Path>) -> String {
    match directory {
        Some(directory) => format!("; finished turns are kept in {}", directory.display()),
        None => String::new(),
    }
}
