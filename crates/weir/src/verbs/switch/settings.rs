use super::client::{Changed, Running};
use crate::exit::Ending;
use crate::output::print;
use clap::{Args, Subcommand};
use switch::run::parse_cpu_mask;

#[derive(Debug, Subcommand)]
pub(crate) enum Port {
    /// Add a port: weir switch port add br0 p2 packet:eth2
    Add {
        /// The bridge
        bridge: String,
        /// The port
        port: String,
        /// As behind --port of `weir switch run`: pcap:FILE,loop or packet:INTERFACE
        kind: String,
        #[command(flatten)]
        switch: Changed,
    },
    /// Delete a port: weir switch port del br0 p2
    Del {
        /// The bridge
        bridge: String,
        /// The port
        port: String,
        #[command(flatten)]
        switch: Changed,
    },
    /// Change a port: weir switch port set br0 p0 --rxq-affinity 0:1,1:2
    Set {
        /// The bridge
        bridge: String,
        /// The port
        port: String,
        /// Queues and the CPUs whose packet threads poll them, separated by commas; empty lets the
        /// switch choose
        #[arg(long, value_name = "QUEUE:CPU")]
        rxq_affinity: String,
        #[command(flatten)]
        switch: Changed,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bridge {
    /// Add a bridge: weir switch bridge add br1
    Add {
        /// The bridge
        bridge: String,
        #[command(flatten)]
        switch: Changed,
    },
    /// Delete a bridge with its ports and rules: weir switch bridge del br1
    Del {
        /// The bridge
        bridge: String,
        #[command(flatten)]
        switch: Changed,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Set {
    /// CPUs of the packet threads as a mask: weir switch set pmd-cpu-mask 6
    PmdCpuMask {
        /// Hexadecimal: 6 is CPUs 1 and 2
        mask: String,
        #[command(flatten)]
        switch: Changed,
    },
    /// CPUs of the packet threads: weir switch set pmd-cpus 1,2
    PmdCpus {
        /// The CPUs: 1,2 or 1-3
        cpus: String,
        #[command(flatten)]
        switch: Changed,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Reload {
    #[command(flatten)]
    switch: Changed,
}

#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The command; list-commands prints all. Options stand before the command: words behind the
    /// command are its arguments
    command: String,
    /// The command's arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
    /// Print one JSON document: the command and its text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    running: Running,
}

pub(super) fn port(verb: &Port) -> anyhow::Result<Ending> {
    match verb {
        Port::Add { bridge, port, kind, switch } => {
            switch.call("switch/add-port", &[bridge, port, kind])
        }
        Port::Del { bridge, port, switch } => switch.call("switch/delete-port", &[bridge, port]),
        Port::Set { bridge, port, rxq_affinity, switch } => {
            switch.call("switch/rxq-affinity", &[bridge, port, rxq_affinity])
        }
    }
}

pub(super) fn bridge(verb: &Bridge) -> anyhow::Result<Ending> {
    match verb {
        Bridge::Add { bridge, switch } => switch.call("switch/add-bridge", &[bridge]),
        Bridge::Del { bridge, switch } => switch.call("switch/delete-bridge", &[bridge]),
    }
}

pub(super) fn set(verb: &Set) -> anyhow::Result<Ending> {
    match verb {
        Set::PmdCpuMask { mask, switch } => {
            let cpus = parse_cpu_mask(mask).map_err(switch::run::ConfigError::Value)?;
            let cpus: Vec<_> = cpus.iter().map(usize::to_string).collect();
            switch.call("switch/pmd-cpus", &[&cpus.join(",")])
        }
        Set::PmdCpus { cpus, switch } => switch.call("switch/pmd-cpus", &[cpus]),
    }
}

pub(super) fn reload(arguments: &Reload) -> anyhow::Result<Ending> {
    arguments.switch.call("switch/reload", &[])
}

pub(super) fn call(arguments: &Call) -> anyhow::Result<Ending> {
    let words: Vec<_> = arguments.arguments.iter().map(String::as_str).collect();
    let text = arguments.running.text(&arguments.command, &words)?;
    if arguments.json {
        let document = serde_json::json!({ "command": arguments.command, "text": text });
        print(format_args!("{document:#}\n"))?;
        return Ok(Ending::Fine);
    }
    print(&text)?;
    if !text.is_empty() && !text.ends_with('\n') {
        print("\n")?;
    }
    Ok(Ending::Fine)
}

pub(super) const RELOAD_EXAMPLES: &str = "\
Examples:
  weir switch reload
Ports, bridges and packet threads that differ from the file are changed; all others go on without a
pause. The rules of bridges that stay are not touched. Ports that `weir switch port add` has added
and that the file does not have are removed.";
pub(super) const CALL_EXAMPLES: &str = "\
Examples:
  weir switch call list-commands
  weir switch call ofproto/trace br0 in_port=1,ip,nw_dst=10.0.0.1
  weir switch call dpif-netdev/pmd-perf-show
  weir switch call --rundir /run/weir/sw list-commands

--rundir stands before the command. It names the folder that the switch was given, by
`weir switch run --rundir /run/weir/sw` or by `rundir` in its file; leave it out if it was given
none.";
