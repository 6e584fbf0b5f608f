use super::lab::Run;
use crate::exit::Ending;
use clap::{Args, Subcommand};
use lab::{Executor, LabError};
use std::path::PathBuf;

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
    /// Run parts of the lab on these machines at once, each by all its CPUs: destinations of ssh,
    /// separated by commas. The results do not depend on the machines
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "HOST",
        conflicts_with_all = ["threads", "shard", "resume"]
    )]
    hosts: Vec<String>,
    /// With --hosts: the file that ssh reads instead of your configuration (its option -F)
    #[arg(long, value_name = "FILE", requires = "hosts")]
    ssh_config: Option<PathBuf>,
}

pub(crate) fn run(verb: Verb) -> anyhow::Result<Ending> {
    let Verb::Run(RunInVirtualTime { mut run, threads, hosts, ssh_config }) = verb;
    // In virtual time the hosts of a lab are not real, so an inventory is only for --hosts.
    let inventory = run.take_inventory();
    if !hosts.is_empty() {
        let (inventory, config) = (inventory.as_deref(), ssh_config.as_deref());
        return run.spread(&lab::hosts::machines(&hosts, inventory, config)?);
    }
    if inventory.is_some() {
        let text = "--inventory names the machines of --hosts: add --hosts GROUP";
        return Err(LabError::Usage(text.to_owned()).into());
    }
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
  weir sim run cc-grid --hosts root@10.0.0.5,root@10.0.0.6 --out cc-grid
  weir sim run cc-grid --resume";
