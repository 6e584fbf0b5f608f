use crate::output;
use emu::{EmuError, UsageError};
use lab::LabError;
use std::process::ExitCode;

/// How a verb ended when nothing was wrong with its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Fine,
    /// The thing measured failed: a failed or invalid cell, a bound that does not hold.
    Failed,
}

/// 0 fine, 1 the thing measured failed, 2 wrong use. The error goes to stderr.
pub(crate) fn code(outcome: anyhow::Result<Ending>) -> ExitCode {
    match outcome {
        Ok(Ending::Fine) => ExitCode::SUCCESS,
        Ok(Ending::Failed) => ExitCode::from(1),
        Err(error) => {
            output::note(format_args!("weir: {error:#}"));
            ExitCode::from(if is_misuse(&error) { 2 } else { 1 })
        }
    }
}

fn is_misuse(error: &anyhow::Error) -> bool {
    if error.is::<UsageError>() || error.downcast_ref().is_some_and(EmuError::is_misuse) {
        return true;
    }
    matches!(
        error.downcast_ref::<LabError>(),
        Some(
            LabError::File(_)
                | LabError::NoSuchLab { .. }
                | LabError::Usage(_)
                | LabError::ResumesAnother { .. }
        )
    )
}
