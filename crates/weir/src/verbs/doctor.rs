use crate::exit::Ending;
use crate::output;
use crate::signals::cancel_on_signals;
use clap::Args;
use doctor::observe::{self, Focus, Plan};
use doctor::{Question, Recording};
use std::path::PathBuf;
use units::Span;

#[derive(Debug, Args)]
#[command(disable_version_flag = true, after_help = DETAILS)]
pub(crate) struct Doctor {
    /// Judge a recording that `--record` wrote, perhaps on another machine
    #[arg(value_name = "RECORDING", conflicts_with_all = ["flow", "time", "record"])]
    recording: Option<PathBuf>,
    /// Judge the connections of a process, a port or an address: 4711, pid:4711, port:443,
    /// 10.0.0.2, 10.0.0.2:443
    #[arg(long, value_name = "PID|PORT|ADDR")]
    flow: Option<String>,
    /// Observe for so many seconds
    #[arg(short, long, value_name = "SECONDS", default_value_t = 3,
        value_parser = clap::value_parser!(u16).range(1..=600))]
    time: u16,
    /// Also write all signals to a file, which names processes and peers
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Show every cause that was ruled out or could not be seen
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(arguments: &Doctor) -> anyhow::Result<Ending> {
    let recording = match &arguments.recording {
        Some(path) => Recording::read(path)?,
        None => arguments.observe()?,
    };
    let diagnosis = doctor::diagnose(&recording, Question::of(&recording));
    if arguments.json {
        output::print(doctor::output::json(&diagnosis))?;
    } else {
        output::print(doctor::output::text(&diagnosis, columns(), arguments.verbose))?;
    }
    Ok(Ending::Fine)
}

impl Doctor {
    fn observe(&self) -> anyhow::Result<Recording> {
        let cancel = cancel_on_signals()?;
        let focus = self.flow.as_deref().map_or(Ok(Focus::All), Focus::parse)?;
        let plan = Plan { time: Span::from_secs(self.time.into()), focus, ..Plan::default() };
        let recording = observe::machine(&plan, &cancel.flag())?;
        if let Some(path) = &self.record {
            recording.write(path)?;
            output::note(format_args!("The recording is in {}.", path.display()));
        }
        Ok(recording)
    }
}

/// The terminal's width, or that of a page.
fn columns() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
        .map_or(100, |columns| columns.min(120))
}

const DETAILS: &str = "\
Without an argument it observes this machine. It sends nothing and changes nothing. It ranks the
busiest TCP connections, and says for each which cause limits it, by which evidence, and which
causes a number rules out. Then it lists what is out of order on interfaces, queues and limits.

Root sees the processes of all users. Another user sees only the own, and the output names the
signals that were not seen.";
