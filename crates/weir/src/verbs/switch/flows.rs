use super::client::{Changed, Running};
use crate::exit::{Ending, Unusable};
use crate::output::print;
use anyhow::Context;
use clap::Args;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct OneFlow {
    /// The bridge
    bridge: String,
    /// The rule, in ovs-ofctl's language; or - for rules from standard input
    flow: String,
    #[command(flatten)]
    switch: Changed,
}

#[derive(Debug, Args)]
pub(crate) struct FlowFile {
    /// The bridge
    bridge: String,
    /// A file with a rule in each line, as ovs-ofctl takes it, or - for standard input
    file: PathBuf,
    #[command(flatten)]
    switch: Changed,
}

#[derive(Debug, Args)]
pub(crate) struct StrictFlow {
    /// The bridge
    bridge: String,
    /// The rule, in ovs-ofctl's language
    flow: String,
    /// Only the rule with exactly this match and priority
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    switch: Changed,
}

#[derive(Debug, Args)]
pub(crate) struct Deletion {
    /// The bridge
    bridge: String,
    /// The rules to delete [default: all]
    flow: Option<String>,
    /// Only the rule with exactly this match and priority
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    switch: Changed,
}

#[derive(Debug, Args)]
pub(crate) struct DumpFlows {
    /// The bridge
    bridge: String,
    /// The rules to print [default: all]
    flow: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    running: Running,
}

#[derive(Debug, Args)]
pub(crate) struct DumpPorts {
    /// The bridge
    bridge: String,
    /// The port, by number or name [default: all]
    port: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    running: Running,
}

pub(super) fn add(arguments: &OneFlow) -> anyhow::Result<Ending> {
    let OneFlow { bridge, flow, switch } = arguments;
    if flow == "-" {
        let text = read(Path::new("-"))?;
        switch.running.call("switch/add-flows", &[bridge, &text])?;
    } else {
        switch.running.call("switch/change-flow", &["add", bridge, flow])?;
    }
    switch.answer("")
}

pub(super) fn add_file(arguments: &FlowFile, command: &str) -> anyhow::Result<Ending> {
    let FlowFile { bridge, file, switch } = arguments;
    let text = read(file)?;
    let count = switch
        .running
        .call(command, &[bridge, &text])
        .with_context(|| format!("the rules of {} were not added", file.display()))?;
    switch.answer(&format!("{} rules", count.trim()))
}

pub(super) fn modify(arguments: &StrictFlow) -> anyhow::Result<Ending> {
    let StrictFlow { bridge, flow, strict, switch } = arguments;
    let command = if *strict { "modify_strict" } else { "modify" };
    switch.running.call("switch/change-flow", &[command, bridge, flow])?;
    switch.answer("")
}

pub(super) fn delete(arguments: &Deletion) -> anyhow::Result<Ending> {
    let Deletion { bridge, flow, strict, switch } = arguments;
    let command = if *strict { "delete_strict" } else { "delete" };
    let flow = flow.as_deref().unwrap_or_default();
    switch.running.call("switch/change-flow", &[command, bridge, flow])?;
    switch.answer("")
}

pub(super) fn dump(arguments: &DumpFlows) -> anyhow::Result<Ending> {
    let DumpFlows { bridge, flow, json, running } = arguments;
    let flow = flow.as_deref().unwrap_or_default();
    print(match json {
        true => running.json("switch/dump-flows-json", &[bridge, flow])?,
        false => running.text("switch/dump-flows", &[bridge, flow])?,
    })?;
    Ok(Ending::Fine)
}

pub(super) fn dump_ports(arguments: &DumpPorts) -> anyhow::Result<Ending> {
    let DumpPorts { bridge, port, json, running } = arguments;
    let mut words = vec![bridge.as_str()];
    words.extend(port.as_deref());
    print(match json {
        true => running.json("switch/dump-ports-json", &words)?,
        false => running.text("switch/dump-ports", &words)?,
    })?;
    Ok(Ending::Fine)
}

fn read(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    host::read_regular_file(path).map_err(|cause| Unusable::argument("read", path, &cause).into())
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir switch add-flow br0 'in_port=1,ip,nw_dst=48.0.0.0/8 actions=output:2'
  weir switch add-flows br0 rules.txt
  weir switch replace-flows br0 rules.txt
  weir switch mod-flows --strict br0 'priority=10,ip actions=drop'
  weir switch del-flows br0 table=1
  weir switch dump-flows br0 table=0
  weir switch dump-ports br0 p0
Rules are written as for ovs-ofctl. Each line of a file is a rule; delete, modify, modify_strict or
delete_strict may stand before it. Either all changes of a file are made or none.";
