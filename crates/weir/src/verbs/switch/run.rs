//! `weir switch run`.

use crate::exit::Ending;
use crate::output::note;
use crate::signals::cancel_on_signals;
use clap::Args;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use switch::run::{BridgeConfig, Config, ConfigError, RunningSwitch};

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// A TOML file with tables [bridge.NAME] and [bridge.NAME.port.NAME]; flags add to it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder of the control sockets [default: /run/weir-switch]
    #[arg(long, value_name = "DIR")]
    rundir: Option<PathBuf>,
    /// Add a bridge; may be repeated
    #[arg(long, value_name = "NAME")]
    bridge: Vec<String>,
    /// Add a port: KIND is pcap:FILE[,loop][,write=FILE], null, packet[:INTERFACE] or tap; may be
    /// repeated
    #[arg(long, value_name = "BRIDGE:PORT=KIND")]
    port: Vec<String>,
    /// The CPUs of the packet threads, for example 1 or 1,2 [default: one thread on any CPU]
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    pmd_cpus: Option<Vec<usize>>,
    /// End after this time, for example 30s
    #[arg(long, value_name = "TIME")]
    duration: Option<units::Span>,
}

pub(super) fn run(arguments: &Run) -> anyhow::Result<Ending> {
    let config = arguments.config()?;
    let cancel = cancel_on_signals()?;
    let end = arguments.duration.map(|duration| Instant::now() + duration.as_duration());
    let running = RunningSwitch::start(&config)?;
    for line in running.announcement() {
        note(line);
    }
    let over = || end.is_some_and(|end| Instant::now() >= end);
    while !cancel.is_cancelled() && !over() && running.is_running() {
        std::thread::sleep(LOOK_EVERY);
    }
    running.finish()?;
    Ok(Ending::Fine)
}

impl Run {
    fn config(&self) -> Result<Config, ConfigError> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        if let Some(rundir) = &self.rundir {
            config.rundir = Some(rundir.clone());
        }
        if let Some(cpus) = &self.pmd_cpus {
            config.pmd_cpus = Some(cpus.clone());
        }
        for bridge in &self.bridge {
            config.bridge.entry(bridge.clone()).or_insert_with(BridgeConfig::default);
        }
        for port in &self.port {
            config.add_port(port)?;
        }
        config.check()?;
        Ok(config)
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) const EXAMPLES: &str = "\
Examples:
  weir switch run --rundir /run/sw --bridge br0 --port br0:p0=pcap:in.pcap,loop --port br0:p1=null --pmd-cpus 1
  ovs-ofctl add-flow unix:/run/sw/br0.mgmt 'in_port=1 actions=output:2'
  ovs-appctl -t /run/sw/weir-switch.ctl dpif-netdev/pmd-perf-show
A bridge's OpenFlow socket is DIR/BRIDGE.mgmt, the control socket is DIR/weir-switch.ctl.";
