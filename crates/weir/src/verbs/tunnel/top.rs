use crate::exit::Ending;
use crate::output::{note, print};
use crate::signals::cancel_on_signals;
use crate::terminal::{self, Screen};
use clap::Args;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tunnel::status::{Packets, top};

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Ask only the end with this socket instead of all ends of this user
    #[arg(long, value_name = "PATH")]
    status_socket: Option<PathBuf>,
    /// Print the view once and return, as without a terminal
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(arguments: &Top) -> anyhow::Result<Ending> {
    let read = || tunnel::run::statuses(arguments.status_socket.as_deref());
    let mut all = read()?;
    let mut before = Packets::default();
    if arguments.once || !terminal::shows_and_reads() {
        print(top(&all, &before, None))?;
        if all.is_empty() {
            note(super::status::NONE);
            return Ok(Ending::Failed);
        }
        return Ok(Ending::Fine);
    }
    let cancel = cancel_on_signals()?;
    let screen = Screen::open()?;
    let mut due = Instant::now() + SECOND;
    let mut drawn = None;
    while !cancel.is_cancelled() {
        let size = terminal::size();
        if drawn != Some(size) {
            // Leaves the last line free: a newline there would scroll.
            let view = size.map(|(columns, lines)| (columns, lines.saturating_sub(1)));
            let text = match all.is_empty() {
                true => format!("{}\n", super::status::NONE),
                false => top(&all, &before, view),
            };
            screen.draw(&text, "q ends")?;
            drawn = Some(size);
        }
        if matches!(screen.key()?, Some(b'q' | b'Q')) {
            break;
        }
        if Instant::now() >= due {
            due = Instant::now() + SECOND;
            before = Packets::of(&all);
            all = read()?;
            drawn = None;
        }
    }
    Ok(Ending::Fine)
}

const SECOND: Duration = Duration::from_secs(1);

pub(super) const EXAMPLES: &str = "\
Examples:
  weir tunnel top
  weir tunnel top --once
  weir tunnel top --status-socket /run/weir-tunnel-server/status.sock
Each line is a session, the busiest first: its carrier, its tunnels, the rates
of the last second, the round trip, the packets lost since the last view, the
limits of its identity, and what limits its rate at this end. q ends the view.
Exit status 1 with --once if no tunnel runs.";
