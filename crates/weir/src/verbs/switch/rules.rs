//! The rules of a running switch.

use super::Target;
use crate::exit::Ending;
use crate::output::print;
use anyhow::Context;
use clap::Args;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct OneRule {
    bridge: String,
    /// The rule, as ovs-ofctl(8) describes it
    rule: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct RuleFile {
    bridge: String,
    /// A file with a rule in each line
    file: PathBuf,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct RulesToChange {
    bridge: String,
    /// The match and the new actions
    rule: String,
    /// Only the rule with exactly this match and priority
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct RulesToDelete {
    bridge: String,
    /// The match
    #[arg(default_value = "")]
    rule: String,
    /// Only the rule with exactly this match and priority
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct RulesToDump {
    bridge: String,
    /// The match
    #[arg(default_value = "")]
    filter: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Trace {
    bridge: String,
    /// The packet, for example in_port=1,ip,nw_dst=48.0.0.1
    packet: String,
    #[command(flatten)]
    target: Target,
}

pub(super) fn add(arguments: &OneRule) -> anyhow::Result<Ending> {
    let OneRule { bridge, rule, target } = arguments;
    print(target.call("weir/add-flow", &[bridge, rule])?)?;
    Ok(Ending::Fine)
}

pub(super) fn add_file(arguments: &RuleFile, method: &str) -> anyhow::Result<Ending> {
    let text = read(&arguments.file)?;
    print(arguments.target.call(method, &[&arguments.bridge, &text])?)?;
    Ok(Ending::Fine)
}

pub(super) fn modify(arguments: &RulesToChange) -> anyhow::Result<Ending> {
    let method = if arguments.strict { "weir/mod-flows-strict" } else { "weir/mod-flows" };
    print(arguments.target.call(method, &[&arguments.bridge, &arguments.rule])?)?;
    Ok(Ending::Fine)
}

pub(super) fn delete(arguments: &RulesToDelete) -> anyhow::Result<Ending> {
    let method = if arguments.strict { "weir/del-flows-strict" } else { "weir/del-flows" };
    print(arguments.target.call(method, &[&arguments.bridge, &arguments.rule])?)?;
    Ok(Ending::Fine)
}

pub(super) fn dump(arguments: &RulesToDump) -> anyhow::Result<Ending> {
    print(arguments.target.call("weir/dump-flows", &[&arguments.bridge, &arguments.filter])?)?;
    Ok(Ending::Fine)
}

pub(super) fn trace(arguments: &Trace) -> anyhow::Result<Ending> {
    print(arguments.target.call("ofproto/trace", &[&arguments.bridge, &arguments.packet])?)?;
    Ok(Ending::Fine)
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("reading the rules from stdin")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    }
    Ok(text)
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir switch add-flow br0 'ip,nw_dst=48.0.0.0/8 actions=output:2'
  weir switch add-flows br0 rules.txt
The same by Open vSwitch's own tool:
  ovs-ofctl add-flow unix:/run/weir-switch/br0.mgmt 'ip,nw_dst=48.0.0.0/8 actions=output:2'";
