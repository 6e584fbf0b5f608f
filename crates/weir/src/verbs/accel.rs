use crate::exit::Ending;
use crate::output::{note, print};
use accel::cgroup::Cgroup;
use accel::installation::{self, Change};
use accel::open::{Reach, Turned};
use accel::system::System;
use accel::{AccelError, Policy, Prefix, Rule, Status, Tunables, memory, rules};
use clap::{Args, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use units::Span;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Give new connections the algorithm; it stays when this command has ended
    #[command(after_help = ENABLE_EXAMPLES)]
    Enable(Enable),
    /// Put a file of rules in force, all at once, in the place of those there are
    #[command(after_help = POLICY_EXAMPLE)]
    Policy {
        file: PathBuf,
        /// Only say what is wrong with it, if anything
        #[arg(long)]
        check: bool,
        #[command(flatten)]
        reach: OpenToo,
    },
    /// Change a tunable while it runs: of a rule, of the system, or of whoever chooses the algorithm itself
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// For example init_cwnd=90
        #[arg(required = true, value_name = "NAME=VALUE")]
        values: Vec<String>,
        /// The rule's number in `weir accel status`
        #[arg(long, value_name = "N")]
        rule: Option<usize>,
    },
    /// Put this build's algorithm in the place of the one installed; open connections go on undisturbed
    Update,
    /// Leave new connections to the kernel again; open ones go on undisturbed
    Disable {
        /// Give open connections the algorithm they had before, too
        #[arg(long)]
        open: bool,
    },
    /// Show the rules in force and how the connections fare that have the algorithm
    Status {
        /// One JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show what ended connections knew of their paths, which new ones begin with
    Memory {
        /// Forget it instead
        #[arg(long, conflicts_with = "json")]
        clear: bool,
        /// One JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print a systemd unit that puts a policy in force at boot
    #[command(after_help = UNIT_EXAMPLE)]
    Unit {
        #[arg(default_value = "/etc/weir/accel.toml")]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Enable {
    algorithm: Algorithm,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    tunables: Values,
    /// Leave the limit of send buffers as it is; otherwise it is 16 MiB while the algorithm is on
    #[arg(long)]
    keep_wmem: bool,
    #[command(flatten)]
    reach: OpenToo,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OpenToo {
    /// Open connections too, by all rules in force, as if they began now
    #[arg(long)]
    open: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Algorithm {
    Tcpa,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Which connections (several conditions must all hold)")]
#[group(required = true, multiple = true)]
struct Whose {
    /// Of the processes in this control group and those below it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Whose other end is in this prefix, for example 192.0.2.0/24
    #[arg(long, value_name = "CIDR")]
    to: Option<String>,
    /// Of this port on this machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// All that no other rule is for
    #[arg(long, conflicts_with_all = ["cgroup", "to", "port"])]
    all: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "How it works on them")]
struct Values {
    /// The first window in segments, paced over the first round trip [default: 48]
    #[arg(long, value_name = "N")]
    init_cwnd: Option<u32>,
    /// The window in segments after a retransmission timeout [default: 10]
    #[arg(long, value_name = "N")]
    loss_init_cwnd: Option<u32>,
    /// How old the memory of a path may be to begin with; 0s: none is used [default: 10 minutes]
    #[arg(long, value_name = "TIME")]
    memory_age: Option<String>,
    /// The shortest retransmission timeout, 5ms to 200ms [default: the kernel's 200ms]
    #[arg(long, value_name = "TIME")]
    rto_min: Option<String>,
    /// The longest, 1s to 120s; Linux 6.15 and later [default: the kernel's 120s]
    #[arg(long, value_name = "TIME")]
    rto_max: Option<String>,
}

pub(crate) fn run(verb: Verb) -> anyhow::Result<Ending> {
    match verb {
        Verb::Enable(arguments) => enable(arguments)?,
        Verb::Policy { file, check, reach } => {
            let policy = Policy::read(&file)?;
            if check {
                note("nothing is wrong with it");
                return Ok(Ending::Fine);
            }
            let applied = installation::apply(&policy, reach.reach())?;
            note(format_args!("{} is in force: {} rules", file.display(), policy.rules.len()));
            tell(reach.reach(), applied.turned);
        }
        Verb::Set { values, rule } => {
            installation::set(&values, rule)?;
        }
        Verb::Update => {
            installation::update()?;
            note("new connections get this build's algorithm");
        }
        Verb::Disable { open } => {
            let reach = OpenToo { open }.reach();
            let removed = installation::remove(reach)?;
            note(if removed.there { "tcpa is off" } else { "tcpa was off already" });
            tell(reach, removed.turned);
        }
        Verb::Memory { clear: true, .. } => {
            note(format_args!("{} paths forgotten", memory::clear()?));
        }
        Verb::Memory { json: true, .. } => print_json(&memory::to_json(&memory::read()?))?,
        Verb::Memory { .. } => print(memory::to_text(&memory::read()?))?,
        Verb::Unit { file } => print(unit(&file)?)?,
        Verb::Status { json: true } => print_json(&Status::read()?.to_json())?,
        Verb::Status { json: false } => print(Status::read()?.to_text())?,
    }
    Ok(Ending::Fine)
}

fn print_json(document: &serde_json::Value) -> anyhow::Result<()> {
    print(format_args!("{}\n", serde_json::to_string_pretty(document)?))
}

/// Before anything listens: a connection is given the algorithm when it is established.
fn unit(policy: &Path) -> anyhow::Result<String> {
    let weir = std::env::current_exe()?;
    let (weir, policy) = (weir.display(), std::path::absolute(policy)?);
    let policy = policy.display();
    Ok(format!(
        "[Unit]\n\
         Description=TCP acceleration (weir accel)\n\
         RequiresMountsFor=/sys/fs/bpf\n\
         ConditionPathExists={policy}\n\
         Before=network.target\n\n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={weir} accel policy {policy}\n\
         ExecReload={weir} accel policy {policy}\n\
         ExecStop={weir} accel disable\n\n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    ))
}

fn enable(arguments: Enable) -> anyhow::Result<()> {
    let Enable { algorithm: Algorithm::Tcpa, whose, tunables, keep_wmem, reach } = arguments;
    let to =
        whose.to.as_deref().map(str::parse::<Prefix>).transpose().map_err(AccelError::Usage)?;
    let rule = Rule {
        cgroup: whose.cgroup.as_deref().map(Cgroup::named).transpose()?,
        to,
        port: whose.port,
        tunables: Some(tunables.read()?),
    };
    let told = rule.whose();
    let applied = installation::change(reach.reach(), |policy| {
        rules::insert(&mut policy.rules, rule);
        if !keep_wmem && policy.system.wmem.is_none() {
            policy.system.wmem = System::roomy().wmem;
        }
        Ok(())
    })?;
    if applied.change == Change::Repaired {
        note("what a killed command had left was removed");
    }
    note(format_args!("tcpa is on ({told}); `weir accel disable` ends that"));
    tell(reach.reach(), applied.turned);
    Ok(())
}

fn tell(reach: Reach, turned: Turned) {
    if reach == Reach::New {
        return;
    }
    let Turned { given, put_back, refused } = turned;
    note(format_args!(
        "open connections: {given} were given it, {put_back} have what they had before"
    ));
    if refused > 0 {
        note(format_args!("the kernel left {refused} as they were"));
    }
}

impl OpenToo {
    fn reach(self) -> Reach {
        if self.open { Reach::OpenToo } else { Reach::New }
    }
}

impl Values {
    fn read(&self) -> anyhow::Result<Tunables> {
        let usual = Tunables::default();
        let span = |text: &Option<String>| {
            let read = text.as_deref().map(str::parse::<Span>).transpose();
            read.map_err(|error| AccelError::Usage(error.to_string()))
        };
        Ok(Tunables {
            init_cwnd: self.init_cwnd.unwrap_or(usual.init_cwnd),
            loss_init_cwnd: self.loss_init_cwnd.unwrap_or(usual.loss_init_cwnd),
            memory_age: span(&self.memory_age)?.unwrap_or(usual.memory_age),
            rto_min: span(&self.rto_min)?,
            rto_max: span(&self.rto_max)?,
        })
    }
}

const ENABLE_EXAMPLES: &str = "\
Examples:
  weir accel enable tcpa --all
  weir accel enable tcpa --port 443 --init-cwnd 90
  weir accel enable tcpa --cgroup /system.slice/nginx.service --to 203.0.113.0/24
  weir accel status
  weir accel disable";
const POLICY_EXAMPLE: &str = "\
Example of a file; the first rule that fits decides:
  [defaults]
  init_cwnd = 48

  [[rule]]                      # leave these as they are
  port = 22
  algorithm = \"none\"

  [[rule]]
  cgroup = \"/system.slice/nginx.service\"
  to = \"203.0.113.0/24\"
  init_cwnd = 90
  rto_min = \"50ms\"

  [[rule]]                      # all others

  [system]                      # put back by `weir accel disable`
  wmem = [4096, 16384, 16777216]";
const SET_EXAMPLES: &str = "\
Examples:
  weir accel set init_cwnd=90 --rule 2
  weir accel set loss_init_cwnd=4
  weir accel set wmem=\"4096 16384 33554432\" timestamps=1";
const UNIT_EXAMPLE: &str = "\
Example:
  weir accel unit /etc/weir/accel.toml > /etc/systemd/system/weir-accel.service
  systemctl enable --now weir-accel";
