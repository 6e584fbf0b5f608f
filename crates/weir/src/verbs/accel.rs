mod caqm;
mod kernel;
mod unit;

use crate::exit::Ending;
use crate::output::{note, print};
use crate::{config_file, port, terminal, watch};
use accel::caqm::{CaqmStatus, Network, reference};
use accel::cgroup::Cgroup;
use accel::installation::{self, Change, Removed, Scope};
use accel::names::{self, ListedTunable};
use accel::open::{Reach, SwitchedConnections};
use accel::pins::{Pins, Presence};
use accel::system::System;
use accel::{
    AccelError, KernelAlgorithm, PolicyFile, Prefix, Rule, Status, Tunables, algorithm, memory,
    rules,
};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use units::Span;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Give new connections an algorithm; it stays active after this command has ended
    #[command(subcommand, after_help = kernel::ENABLE_EXAMPLES)]
    Enable(Box<Enable>),
    /// Replace all rules by the rules of a file, atomically
    #[command(after_help = POLICY_EXAMPLE)]
    Policy {
        /// The policy's file [default: $XDG_CONFIG_HOME/weir/accel.toml or /etc/weir/accel.toml]
        file: Option<PathBuf>,
        /// Only check the file, and whether this machine can apply the policy
        #[arg(long)]
        check: bool,
        #[command(flatten)]
        reach: OpenConnections,
        #[command(flatten)]
        after: StatusAfterwards,
    },
    /// Change a tunable at run time: of a rule, of the system, of programs that choose the
    /// algorithm themselves, or of caqm
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// For example init_cwnd=90, or net.ipv4.tcp_init_cwnd=90
        #[arg(required_unless_present = "list", value_name = "NAME=VALUE")]
        values: Vec<String>,
        /// Show all tunables with their values and states, and change nothing
        #[arg(long, conflicts_with_all = ["values", "rule"])]
        list: bool,
        /// Only this rule, by its number in `weir accel status`, or `own`: only programs that
        /// choose the algorithm themselves [default: all of them]
        #[arg(long, value_name = "N", value_parser = scope)]
        rule: Option<Scope>,
        #[command(flatten)]
        after: StatusAfterwards,
    },
    /// Replace the installed algorithms by this build's; open connections continue undisturbed
    #[command(after_help = UPDATE_EXAMPLES)]
    Update {
        #[command(flatten)]
        reach: OpenConnections,
        #[command(flatten)]
        after: StatusAfterwards,
    },
    /// Return new connections to the kernel's default; open connections continue undisturbed
    #[command(after_help = DISABLE_EXAMPLES)]
    Disable {
        /// Disable only this algorithm: tcpa, caqm or one of the kernel's
        algorithm: Option<String>,
        /// Also restore the former algorithm of open connections
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        after: StatusAfterwards,
    },
    /// Show the rules in force and the connections that use the algorithm
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        /// Print one JSON document; with --watch one per second, each on its own line
        #[arg(long)]
        json: bool,
        /// Repeat every second, until Ctrl-C
        #[arg(long)]
        watch: bool,
        /// Also show the nine modules of tcpa: counters and switches. The JSON always has them
        #[arg(long)]
        modules: bool,
    },
    /// Show the path records of ended connections, from which new connections start
    #[command(after_help = MEMORY_EXAMPLES)]
    Memory {
        /// Delete the records instead
        #[arg(long, conflicts_with = "json")]
        clear: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print a systemd unit that applies a policy at boot
    #[command(after_help = unit::EXAMPLE)]
    Unit {
        /// The policy's file
        #[arg(default_value = "/etc/weir/accel.toml")]
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Enable {
    /// For servers of short files; level with BBR for larger files and on lossy paths; works with
    /// any receiver
    ///
    /// Files of 640 KB arrived at 1,339 KB/s with tcpa and 1,207 with BBR over drawn paths, files
    /// of 8 MB at 2,398 and 2,397 over eight fixed paths. Beside other flows BBR may be much
    /// faster. For larger files and lossy paths try `weir accel enable bbr` first.
    #[command(after_help = ENABLE_EXAMPLES, override_usage = TCPA_USAGE)]
    Tcpa(EnableTcpa),
    /// For networks whose ports support CAQM: both ends request every increase of their window in a
    /// tag
    #[command(after_help = caqm::EXAMPLES, override_usage = caqm::USAGE)]
    Caqm(Box<caqm::EnableCaqm>),
    /// Any congestion control of the kernel: its name, and then the options of `kernel::Enable`.
    #[command(external_subcommand)]
    Kernel(Vec<String>),
}

#[derive(Debug, Args)]
pub(crate) struct EnableTcpa {
    #[command(flatten)]
    selector: Selector,
    #[command(flatten)]
    tunables: Values,
    /// Also connections whose program named an algorithm itself, as `weir perf client -C` does; by
    /// default these connections keep their algorithm
    #[arg(long)]
    named_too: bool,
    /// Do not raise the limit of send buffers to 16 MiB while the algorithm is on
    #[arg(long)]
    keep_wmem: bool,
    #[command(flatten)]
    reach: OpenConnections,
    #[command(flatten)]
    after: StatusAfterwards,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OpenConnections {
    /// Also apply all rules in force to open connections, as if they began now
    #[arg(long, help_heading = None::<&str>)]
    open: bool,
}

/// The answer of a command that changes something.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct StatusAfterwards {
    /// Then print what `weir accel status --json` prints
    #[arg(long, help_heading = None::<&str>)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Selected connections (all given conditions must hold)")]
#[group(required = true, multiple = true)]
struct Selector {
    /// Connections of the processes in this control group and those below it, for example
    /// /system.slice/nginx.service
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Connections to this prefix, for example 192.0.2.0/24
    #[arg(long, value_name = "CIDR")]
    to: Option<String>,
    /// Connections of this local port, for example 443
    #[arg(long, value_name = "N", value_parser = port::named)]
    port: Option<u16>,
    /// All connections that no other rule matches
    #[arg(long, conflicts_with_all = ["cgroup", "to", "port"])]
    all: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Tunables")]
struct Values {
    /// The first window in segments, paced over the first round trip [default: 48]
    #[arg(long, value_name = "N")]
    init_cwnd: Option<u32>,
    /// The window in segments after a retransmission timeout [default: 10]
    #[arg(long, value_name = "N")]
    loss_init_cwnd: Option<u32>,
    /// Maximum age of a path record that a new connection starts from; 0s: use none [default: 10
    /// minutes]
    #[arg(long, value_name = "TIME")]
    memory_age: Option<String>,
    /// The shortest retransmission timeout, 5ms to 200ms [default: the kernel's 200ms]
    #[arg(long, value_name = "TIME")]
    rto_min: Option<String>,
    /// The longest retransmission timeout, 1s to 120s; Linux 6.15 and later [default: the kernel's
    /// 120s]
    #[arg(long, value_name = "TIME")]
    rto_max: Option<String>,
}

pub(crate) fn run(verb: Verb) -> anyhow::Result<Ending> {
    match verb {
        Verb::Enable(what) => match *what {
            Enable::Tcpa(arguments) => {
                let after = arguments.after;
                enable(arguments)?;
                after.print()?;
            }
            Enable::Caqm(arguments) => {
                let after = arguments.after;
                caqm::enable(*arguments)?;
                after.print()?;
            }
            Enable::Kernel(words) => return kernel::enable(&words),
        },
        Verb::Policy { file, check, reach, after } => {
            let file = file.or_else(|| config_file::find("accel.toml")).ok_or_else(|| {
                let places = "~/.config/weir/accel.toml or /etc/weir/accel.toml";
                AccelError::Usage(format!("there is no {places}: name a policy's file"))
            })?;
            let policy = PolicyFile::read(&file)?;
            if check {
                policy.check_machine(reach.reach())?;
                note("no mistakes found");
                after.print()?;
                return Ok(Ending::Fine);
            }
            let applied = policy.apply(reach.reach())?;
            let rules = |count| format!("{count} {}", if count == 1 { "rule" } else { "rules" });
            let count = rules(policy.tcpa.rules.len());
            note(format_args!("{} applied: {count}", file.display()));
            if let Some(caqm) = &policy.caqm {
                note(format_args!("rules for caqm: {}", rules(caqm.rules.len())));
            }
            if let Some(applied) = applied {
                tell(reach.reach(), applied.switched);
            }
            after.print()?;
        }
        Verb::Set { list: true, after, .. } => list_tunables(after)?,
        Verb::Set { values, rule, after, .. } => {
            let (network, others): (Vec<_>, Vec<_>) =
                values.into_iter().partition(|text| Network::knows(text));
            if !others.is_empty() {
                let changes = installation::set(&others, rule.unwrap_or(Scope::Everything))?;
                changes.iter().for_each(note);
            }
            if !network.is_empty() {
                accel::caqm::installation::set(&network)?;
                for text in &network {
                    let text = text.replacen('=', " ", 1);
                    note(format_args!("{text}: caqm, for connections that begin from now on"));
                }
            }
            after.print()?;
        }
        Verb::Update { reach, after } => {
            update(reach.reach())?;
            after.print()?;
        }
        Verb::Disable { algorithm, open, after } => {
            disable(algorithm.as_deref(), OpenConnections { open }.reach())?;
            after.print()?;
        }
        Verb::Memory { clear: true, .. } => {
            note(format_args!("{} path records deleted", memory::clear()?));
        }
        Verb::Memory { json: true, .. } => print_json(&memory::to_json(&memory::read()?))?,
        Verb::Memory { .. } => print(memory::to_text(&memory::read()?))?,
        Verb::Unit { file } => print(unit::unit(&file)?)?,
        Verb::Status { json, watch: false, modules } => print(status(json, false, modules)?)?,
        Verb::Status { json, watch: true, modules } => {
            watch::every_second(json, || status(json, true, modules))?;
        }
    }
    Ok(Ending::Fine)
}

impl StatusAfterwards {
    fn print(self) -> anyhow::Result<()> {
        if self.json {
            print(status(true, false, false)?)?;
        }
        Ok(())
    }
}

/// Reads the status as text or JSON. `compact`: a JSON document takes one line. `modules`: the text
/// has the table of the modules.
fn status(json: bool, compact: bool, modules: bool) -> anyhow::Result<String> {
    let (tcpa, caqm) = (Status::read()?, CaqmStatus::read()?);
    if json {
        let mut document = tcpa.to_json();
        document["caqm"] = caqm.to_json();
        return watch::document(&document, compact);
    }
    let width = terminal::columns().unwrap_or(usize::MAX);
    let (mut tcpa_text, caqm_text) = (tcpa.to_text(width), caqm.to_text(width));
    if modules {
        tcpa_text += &tcpa.modules_to_text(width);
    }
    Ok(match (tcpa.presence, caqm.is_off()) {
        (_, true) => tcpa_text,
        // Begin with the algorithm that is on.
        (Presence::Nothing, false) => format!("{caqm_text}\n{tcpa_text}"),
        (_, false) => format!("{tcpa_text}\n{caqm_text}"),
    })
}

fn scope(text: &str) -> Result<Scope, String> {
    match text {
        "own" => Ok(Scope::OwnChoice),
        number => number
            .parse()
            .map(Scope::Rule)
            .map_err(|_| "write the number of a rule, or own".to_owned()),
    }
}

/// Updates all installed algorithms; an error if none is installed.
fn update(reach: Reach) -> anyhow::Result<()> {
    let caqm = CaqmStatus::read()?.presence == Presence::Whole;
    if !caqm || Status::read()?.presence != Presence::Nothing {
        let switched = installation::update(reach)?;
        note("new connections use this build's tcpa");
        tell(reach, switched);
    }
    if caqm {
        accel::caqm::installation::update()?;
        note("all connections, also open ones, use this build's caqm");
    }
    Ok(())
}

fn disable(algorithm: Option<&str>, reach: Reach) -> anyhow::Result<()> {
    let wanted = |one| algorithm.is_none_or(|algorithm| algorithm == one);
    if wanted(CAQM) {
        let removed = accel::caqm::installation::remove()?;
        if removed.there || algorithm.is_some() {
            note(if removed.there { "caqm is off" } else { "caqm was off already" });
        }
        tell_foreign(&removed);
    }
    if algorithm.is_none() {
        let in_force = Pins::open().and_then(|pins| installation::in_force(&pins));
        let others = in_force.unwrap_or_default();
        let others = others.kernel_algorithms().into_iter().map(ToString::to_string);
        let removed = installation::remove(reach)?;
        others.for_each(|name| note(format_args!("{name} is off")));
        tell_removed(TCPA, reach, &removed);
    }
    if let Some(name) = algorithm.filter(|name| *name != CAQM) {
        let removed = installation::withdraw(name, reach)?;
        // If no kernel has an algorithm of this name, report a mistake.
        if !removed.there && name != TCPA {
            name.parse::<KernelAlgorithm>()?;
        }
        tell_removed(name, reach, &removed);
    }
    Ok(())
}

fn tell_removed(name: &str, reach: Reach, removed: &Removed) {
    note(format_args!("{name} {}", if removed.there { "is off" } else { "was off already" }));
    tell(reach, removed.switched);
    tell_foreign(removed);
}

fn tell_foreign(removed: &Removed) {
    for path in &removed.foreign {
        note(format_args!(
            "{} is not of weir accel and was left alone: examine the file, then remove it",
            path.display()
        ));
    }
}

/// Lists the tunables of tcpa, and those of caqm while caqm is on.
fn list_tunables(after: StatusAfterwards) -> anyhow::Result<()> {
    let (tunables, caqm) = (names::list()?, CaqmStatus::read()?);
    if after.json {
        return print_json(&serde_json::json!({
            "tcpa": tunables.iter().map(ListedTunable::to_json).collect::<Vec<_>>(),
            "caqm": reference::list_to_json(&caqm),
        }));
    }
    let width = terminal::columns().unwrap_or(usize::MAX);
    print(format_args!("{}\n{}", names::to_text(&tunables, width), reference::list_to_text(&caqm)))
}

fn print_json(document: &serde_json::Value) -> anyhow::Result<()> {
    print(format_args!("{}\n", serde_json::to_string_pretty(document)?))
}

fn enable(arguments: EnableTcpa) -> anyhow::Result<()> {
    let EnableTcpa { selector, tunables, named_too, keep_wmem, reach, after: _ } = arguments;
    let rule = Rule { named_too, ..selector.rule(tunables.read()?)? };
    let description = rule.whose();
    let applied = installation::change(reach.reach(), |policy| {
        rules::insert(&mut policy.rules, rule);
        if !keep_wmem && policy.system.wmem.is_none() {
            policy.system.wmem = System::roomy().wmem;
        }
        Ok(())
    })?;
    if applied.change == Change::Repaired {
        note("removed the incomplete installation of a killed command");
    }
    note(format_args!("tcpa is on ({description}); `weir accel disable` turns it off"));
    tell(reach.reach(), applied.switched);
    Ok(())
}

fn tell(reach: Reach, switched: SwitchedConnections) {
    if reach == Reach::New {
        return;
    }
    let SwitchedConnections { given, put_back, refused, kept } = switched;
    note(format_args!(
        "open connections: {given} now use it, {put_back} use their former algorithm again"
    ));
    if kept > 0 {
        note(format_args!("{kept} keep the algorithm that their program named"));
    }
    if refused > 0 {
        note(format_args!("the kernel refused to change {refused}"));
    }
}

impl OpenConnections {
    fn reach(self) -> Reach {
        if self.open { Reach::OpenToo } else { Reach::New }
    }
}

impl Selector {
    fn rule(&self, tunables: Tunables) -> anyhow::Result<Rule> {
        let to = self.to.as_deref().map(str::parse::<Prefix>).transpose();
        Ok(Rule {
            cgroup: self.cgroup.as_deref().map(Cgroup::named).transpose()?,
            to: to.map_err(AccelError::Usage)?,
            port: self.port,
            tunables: Some(tunables),
            algorithm: None,
            named_too: false,
        })
    }
}

impl Values {
    fn read(&self) -> anyhow::Result<Tunables> {
        let usual = Tunables::default();
        let span = |text: &Option<String>| {
            let read = text.as_deref().map(str::parse::<Span>).transpose();
            read.map_err(|error| AccelError::Usage(error.to_string()))
        };
        let tunables = Tunables {
            init_cwnd: self.init_cwnd.unwrap_or(usual.init_cwnd),
            loss_init_cwnd: self.loss_init_cwnd.unwrap_or(usual.loss_init_cwnd),
            memory_age: span(&self.memory_age)?.unwrap_or(usual.memory_age),
            rto_min: span(&self.rto_min)?,
            rto_max: span(&self.rto_max)?,
            ..usual
        };
        tunables.check()?;
        Ok(tunables)
    }
}

const TCPA: &str = algorithm::NAME;
const CAQM: &str = accel::caqm::NAME;
const TCPA_USAGE: &str =
    "weir accel enable tcpa [OPTIONS] <--cgroup PATH|--to CIDR|--port N|--all>";
const ENABLE_EXAMPLES: &str = "\
Examples:
  weir accel enable tcpa --all
  weir accel enable tcpa --port 443 --init-cwnd 90
  weir accel enable tcpa --cgroup /system.slice/nginx.service --port 443
  weir accel status
  weir accel disable";
const POLICY_EXAMPLE: &str = "\
Example of a file; the first rule that matches decides:
  [defaults]
  init_cwnd = 48

  [[rule]]               # keep the kernel's choice for these
  port = 22
  algorithm = \"none\"

  [[rule]]
  cgroup = \"/system.slice/nginx.service\"
  to = \"203.0.113.0/24\"
  init_cwnd = 90
  rto_min = \"50ms\"

  [[rule]]               # if the other end offers it too, or else the next rule
  to = \"10.0.0.0/8\"
  algorithm = \"caqm\"

  [[rule]]               # all others; `named_too = true`: also those whose
                         # program named an algorithm

  [caqm]                 # keys: see `weir accel enable caqm --help`
  interface = [\"eth0\"]
  rtt_standard = \"1ms\"

  [system]               # put back by `weir accel disable`
  wmem = [4096, 16384, 16777216]";
const SET_EXAMPLES: &str = "\
Examples:
  weir accel set init_cwnd=90
  weir accel set init_cwnd=90 --rule 2
  weir accel set --list
  weir accel set loss_init_cwnd=4
  weir accel set net.ipv4.tcp_rto_min=50 tlp=off
  weir accel set wmem=\"4096 16384 33554432\" timestamps=1
  weir accel set rtt_standard=1ms alpha=4";
const UPDATE_EXAMPLES: &str = "\
Examples:
  weir accel update
  weir accel update --open";
const DISABLE_EXAMPLES: &str = "\
Examples:
  weir accel disable           # all of them
  weir accel disable bbr
  weir accel disable caqm
  weir accel disable --open    # change open connections back, too";
const MEMORY_EXAMPLES: &str = "\
Examples:
  weir accel memory
  weir accel memory --clear";
const STATUS_EXAMPLES: &str = "\
Examples:
  weir accel status
  weir accel status --watch
  weir accel status --modules
  weir accel status --json | jq '.flows[] | {remote, rate_mbit_s, limited_by}'";
