use super::lab::Run;
use crate::exit::Ending;
use clap::{Args, Subcommand};
use lab::Executor;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Measure every cell of a lab in virtual time and write a report
    #[command(after_help = EXAMPLES)]
    Run(RunInVirtualTime),
}

#[derive(Debug, Args)]
pub(crate) struct RunInVirtualTime {
    #[command(flatten)]
    run: Run,
    /// Number of cells to simulate in parallel; the results do not depend on it [default: one per
    /// CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

pub(crate) fn run(verb: Verb) -> anyhow::Result<Ending> {
    let Verb::Run(RunInVirtualTime { run, threads }) = verb;
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.map_or_else(cpus, |threads| threads as usize);
    run.measure("weir sim run", |_, _| Ok(Executor::Simulator { threads }))
}

const EXAMPLES: &str = "\
Examples:
  weir sim run cc-grid --quick
  weir sim run validate
  weir sim run quic-tun --systems tcp-bbr,tcp-cubic
  weir sim run ./my-lab.toml --threads 1
  weir sim run cc-grid --resume";
