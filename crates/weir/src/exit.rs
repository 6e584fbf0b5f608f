use crate::output;
use accel::AccelError;
use doctor::DoctorError;
use emu::{EmuError, UsageError};
use generator::GenError;
use lab::LabError;
use perf::PerfError;
use std::process::ExitCode;
use switch::run::SwitchError;
use tunnel::config::ConfigError;
use units::visible;

/// The outcome of a verb that was used correctly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Fine,
    /// The thing measured failed: a failed or invalid cell, a bound that does not hold.
    Failed,
}

/// 0: success. 1: the thing measured failed. 2: wrong use. The error goes to stderr.
pub(crate) fn code(outcome: anyhow::Result<Ending>) -> ExitCode {
    match outcome {
        Ok(Ending::Fine) => ExitCode::SUCCESS,
        Ok(Ending::Failed) => ExitCode::from(1),
        Err(error) => {
            output::note(format_args!("weir: {}", visible(&error_text(&error))));
            ExitCode::from(if is_misuse(&error) { 2 } else { 1 })
        }
    }
}

/// The error and its causes without repetition: most messages already contain their cause.
fn error_text(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| match cause.to_string() {
        cause if text.contains(&cause) => text,
        cause if text.is_empty() => cause,
        cause => format!("{text}: {cause}"),
    })
}

fn is_misuse(error: &anyhow::Error) -> bool {
    if error.is::<UsageError>()
        || error.is::<ConfigError>()
        || error.is::<switch::run::ConfigError>()
        || error.downcast_ref().is_some_and(SwitchError::is_misuse)
        || error.downcast_ref().is_some_and(AccelError::is_misuse)
        || error.downcast_ref().is_some_and(DoctorError::is_misuse)
        || error.downcast_ref().is_some_and(EmuError::is_misuse)
        || error.downcast_ref().is_some_and(GenError::is_misuse)
        || error.downcast_ref().is_some_and(PerfError::is_misuse)
    {
        return true;
    }
    matches!(
        error.downcast_ref::<LabError>(),
        Some(
            LabError::File(_)
                | LabError::NoSuchLab { .. }
                | LabError::Usage(_)
                | LabError::CannotMeasure { .. }
                | LabError::ResumesAnother { .. }
        )
    )
}
