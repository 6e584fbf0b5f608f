//! `weir lab show RUN --open`: a run's report in a browser.

use super::validate;
use crate::exit::Ending;
use crate::output;
use lab::LabError;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Opens the report in a browser and prints its path. Prints a note if no browser opens.
pub(super) fn run(run: &str) -> anyhow::Result<Ending> {
    let Some(found) = validate::run_at(run) else {
        let text = format!(
            "--open shows the report of a run, and {run} is no run: name a run's directory"
        );
        return Err(LabError::Usage(text).into());
    };
    found?;
    let report = super::absolute(&Path::new(&validate::directory_of(run)).join(REPORT));
    if !report.is_file() {
        let text = format!(
            "{} does not exist: run `weir lab run --resume {run}`, which writes the report",
            report.display()
        );
        return Err(LabError::Usage(text).into());
    }
    if let Err(reason) = open(&report) {
        output::note(format_args!("the report was not opened: {reason}"));
    }
    output::print(format_args!("{}\n", report.display()))?;
    Ok(Ending::Fine)
}

fn open(report: &Path) -> Result<(), String> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    // Without a display xdg-open starts a text browser, which takes over the terminal.
    if !DISPLAYS.into_iter().any(is_set) {
        return Err(format!(
            "there is no display ({} are not set); open the file yourself",
            DISPLAYS.join(" and ")
        ));
    }
    let mut command = Command::new(OPENER);
    command.arg(report).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| {
        format!(
            "{OPENER} cannot be started ({error}); install xdg-utils, or open the file yourself"
        )
    })?;
    match ending(&mut child) {
        Some(status) if !status.success() => {
            Err(format!("{OPENER} found no browser ({status}); open the file yourself"))
        }
        _ => Ok(()),
    }
}

/// Waits for the opener and returns its exit status. `None` for an opener that still runs: on some
/// desktops the opener runs until the browser ends.
fn ending(child: &mut Child) -> Option<ExitStatus> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(PAUSE);
    }
    None
}

const OPENER: &str = "xdg-open";
const REPORT: &str = "report.html";
const DISPLAYS: [&str; 2] = ["DISPLAY", "WAYLAND_DISPLAY"];
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);
