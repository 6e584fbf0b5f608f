use crate::exit::Ending;
use crate::output::note;
use crate::signals::cancel_on_signals;
use clap::Args;
use host::MetricsAddress;
use std::path::PathBuf;
use switch::run::{BridgeConfig, Config, ConfigError, Confinement, OvsdbAddress, Process};
use units::visible;

#[derive(Debug, Clone, Args)]
pub(crate) struct Run {
    /// A file of settings; flags are added to it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder of the sockets: OpenFlow at BRIDGE.mgmt, ovs-appctl at weir-switch.ctl. Only this
    /// user and root may be able to change it and the folders above it [default: /run/weir-switch]
    #[arg(long, value_name = "DIR")]
    rundir: Option<PathBuf>,
    /// A bridge, for example br0; may be repeated
    #[arg(long, value_name = "NAME")]
    bridge: Vec<String>,
    /// A port: pcap:FILE, null, dummy, packet:INTERFACE, tap:INTERFACE, xdp:INTERFACE,
    /// ring:PATH, vhost-user:PATH or patch:PEER, with loop, write=FILE, queues=N, number=N,
    /// rate=RATE, queue=QUEUE and policing=RATE behind commas; may be repeated
    #[arg(long, value_name = "BRIDGE:PORT=KIND")]
    port: Vec<String>,
    /// CPUs of the packet threads, one thread each: 1,2 or 1-3 [default: the first CPU]
    #[arg(long, value_name = "CPUS")]
    pmd_cpus: Option<String>,
    /// Packet threads never sleep, not even when no frame arrives
    #[arg(long)]
    busy_poll: bool,
    /// Serve metrics to Prometheus: 127.0.0.1:9151 or unix:/PATH; addresses of this host alone
    #[arg(long, value_name = "ADDRESS")]
    metrics_on: Option<MetricsAddress>,
    /// Take the place of ovs-vswitchd: the database behind this socket of ovsdb-server has bridges,
    /// ports and settings, and ovs-vsctl changes them. The folder of sockets is then $OVS_RUNDIR or
    /// /run/openvswitch
    #[arg(long, value_name = "unix:SOCKET", conflicts_with_all = ["bridge", "port", "pmd_cpus"])]
    ovsdb: Option<OvsdbAddress>,
    /// Open only the folders of the settings, files and sockets that are named at the start. Later
    /// ports, rules and files of TLS must lie there
    #[arg(long)]
    confine_files: bool,
    /// Keep all rights of the user. Without this flag the process starts no program and drops
    /// capabilities that no port needs
    #[arg(long, conflicts_with = "confine_files")]
    unconfined: bool,
    /// Make dummy ports of all interfaces, as ovs-vswitchd does for Open vSwitch's own test cases
    #[arg(long, hide = true, requires = "ovsdb")]
    enable_dummy: bool,
}

pub(crate) fn run(arguments: Run) -> anyhow::Result<Ending> {
    let cancel = cancel_on_signals()?;
    let process = Process {
        file: arguments.config.clone(),
        confinement: arguments.confinement(),
        settings: Box::new(move || arguments.config()),
        set_log_level: Box::new(crate::log::set_level),
    };
    switch::run::run(process, cancel.flag(), |line| note(visible(&line)))?;
    Ok(Ending::Fine)
}

impl Run {
    fn confinement(&self) -> Confinement {
        match (self.confine_files, self.unconfined) {
            (true, _) => Confinement::Files,
            (_, true) => Confinement::Nothing,
            _ => Confinement::Calls,
        }
    }

    fn config(&self) -> Result<Config, ConfigError> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        if let Some(rundir) = &self.rundir {
            config.rundir = Some(rundir.clone());
        }
        for name in &self.bridge {
            if config.bridge.insert(name.clone(), BridgeConfig::default()).is_some() {
                return Err(ConfigError::Value(format!(
                    "--bridge {name}: it is named twice, or in the file already: leave one out"
                )));
            }
        }
        for port in &self.port {
            config.add_port(port)?;
        }
        if let Some(cpus) = &self.pmd_cpus {
            config.pmd_cpus = Some(units::parse_cpus(cpus).map_err(ConfigError::Value)?);
        }
        config.busy_poll |= self.busy_poll;
        config.dummies = self.enable_dummy;
        if let Some(address) = &self.ovsdb {
            config.ovsdb = Some(address.clone());
        }
        if let Some(address) = &self.metrics_on {
            config.metrics_on = Some(switch::run::Leaf(address.clone()));
        }
        Ok(config)
    }
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir switch run --config /etc/weir/switch.toml
  weir switch run --rundir /run/weir/sw --bridge br0 --pmd-cpus 1 \\
      --port br0:p0=pcap:in.pcap,loop --port br0:p1=null
  ovs-ofctl add-flow unix:/run/weir/sw/br0.mgmt in_port=1,actions=output:2
  ovs-appctl -t /run/weir/sw/weir-switch.ctl dpif-netdev/pmd-stats-show
  weir switch run --ovsdb unix:/run/openvswitch/db.sock

A file:
  pmd-cpus = [1]

  [bridge.br0]
  flows = \"/etc/weir/br0.flows\"

  [bridge.br0.port]
  p0 = { type = \"packet\", interface = \"eth1\" }
  p1 = { type = \"tap\" }";
