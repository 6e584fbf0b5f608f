mod run;
mod tags;

use crate::background;
use crate::exit::Ending;
use crate::signals::cancel_on_signals;
use clap::{ArgAction, Args, Subcommand};
use emu::control::{Client, Directory, Server};
use emu::{EmuError, LinkOptions, LinkPlan, LinkReport, QueueConfig, RunningLink, Settings};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::id;
use std::time::{Duration, Instant};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Create a link between two interfaces, and carry packets until Ctrl-C
    #[command(after_help = UP_EXAMPLES)]
    Up(Box<Up>),
    /// Run a command behind a link: in a namespace of its own, joined by the link to another
    /// namespace
    #[command(after_help = run::EXAMPLES)]
    Run(Box<run::Run>),
    /// Change a running link: KEY=VALUE for both directions, --ab and --ba for one
    #[command(after_help = SET_EXAMPLES)]
    Set(Set),
    /// Show a running link's settings and figures; without a name, all links
    #[command(after_help = SHOW_EXAMPLES)]
    Show(Show),
    /// List the links that are up
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// End a running link and remove the interfaces made for it
    #[command(after_help = DOWN_EXAMPLES)]
    Down {
        /// The link's name
        name: String,
        /// Print one JSON document: the name, and that the link has ended
        #[arg(long)]
        json: bool,
    },
    /// Print the CAQM tags of an interface or a capture, packet by packet
    #[command(after_help = tags::EXAMPLES)]
    ShowTags(tags::ShowTags),
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Side a: NAMESPACE:INTERFACE, INTERFACE, pid:PID:INTERFACE or tap:NAME. A missing interface
    /// is created, as the outer end of a veth pair
    #[arg(long, value_name = "END")]
    a: Option<String>,
    /// Side b, likewise
    #[arg(long, value_name = "END")]
    b: Option<String>,
    /// An address for side a, if it is created, for example 10.0.0.1/24; may be repeated
    #[arg(long, value_name = "IP/PREFIX")]
    address_a: Vec<String>,
    /// An address for side b, likewise
    #[arg(long, value_name = "IP/PREFIX")]
    address_b: Vec<String>,
    /// The MTU of created interfaces [default: 1500]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<String>,
    /// Name of the link for other commands [default: the first free of link0, link1, …]
    #[arg(long)]
    name: Option<String>,
    /// End after this time, for example 30s
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Run in the background, once the link is up; `weir link down NAME` ends it
    #[arg(long, conflicts_with = "json")]
    detach: bool,
    /// A TOML file with these flags' names as keys, and tables `[ab]` and `[ba]`; flags take
    /// precedence
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON document at the end, with the queues' traces, instead of the table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    both: Both,
    /// A setting from a to b only, for example --ab loss=1%; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    ab: Vec<String>,
    /// A setting from b to a only, for example --ba rate=20mbit; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    ba: Vec<String>,
    /// The CPU for the emulation, for example 1; leave the other CPUs to the measured programs
    /// [default: any]
    #[arg(long, value_name = "N", help_heading = "Emulation")]
    cpu: Option<String>,
    /// Do not ask for real-time scheduling
    #[arg(long, action = ArgAction::SetTrue, help_heading = "Emulation")]
    no_real_time: bool,
    /// Time before a deadline to spin instead of sleep [default: 60us]
    #[arg(long, value_name = "TIME", help_heading = "Emulation")]
    spin: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Both directions")]
struct Both {
    /// The rate, counted from the MAC addresses on, for example 100mbit [default: unlimited]
    #[arg(long)]
    rate: Option<String>,
    /// A recorded capacity instead: a file with one time in milliseconds per line, each for 1504
    /// bytes
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
    /// The delay of each way, for example 10ms
    #[arg(long, value_name = "TIME")]
    delay: Option<String>,
    /// Twice the delay, half of it each way, for example 20ms
    #[arg(long, value_name = "TIME")]
    rtt: Option<String>,
    /// Variation of the delay: 1ms, or 1ms,normal; with ,reorder packets may overtake one another
    #[arg(long)]
    jitter: Option<String>,
    /// Share of packets lost: 1%, gilbert:p=1%,r=30%,h=0%,k=100%,every=1ms, or trace:00100
    #[arg(long)]
    loss: Option<String>,
    /// Share of packets delayed further, and by how much: 1%,5ms
    #[arg(long, value_name = "SHARE,TIME")]
    reorder: Option<String>,
    /// Share of packets that arrive twice, for example 0.1%
    #[arg(long, value_name = "SHARE")]
    duplicate: Option<String>,
    /// Share of packets in which one bit is flipped, for example 0.1%
    #[arg(long, value_name = "SHARE")]
    corrupt: Option<String>,
    #[arg(long, help = queue_help())]
    queue: Option<String>,
    /// Bytes that each frame takes in addition to its own: ethernet (+24), ip (-14) or a number
    /// [default: 0]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    overhead: Option<String>,
    /// The seed; equal seeds give equal decisions. The direction from b to a uses the seed plus one
    /// [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// The link's name
    name: String,
    /// For both directions, for example loss=1%
    #[arg(value_name = "KEY=VALUE")]
    both: Vec<String>,
    /// From a to b only, for example --ab rate=20mbit; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    ab: Vec<String>,
    /// From b to a only, likewise
    #[arg(long, value_name = "KEY=VALUE")]
    ba: Vec<String>,
    /// Then print what `weir link show NAME --json` prints
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The link's name [default: all links of this user]
    name: Option<String>,
    /// Print one JSON document; with --watch one per second, each on its own line
    #[arg(long)]
    json: bool,
    /// Repeat every second, until Ctrl-C or the link's end
    #[arg(long, requires = "name")]
    watch: bool,
}

pub(crate) fn run(verb: Verb) -> anyhow::Result<Ending> {
    match verb {
        Verb::Up(arguments) => up(&arguments),
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Set(arguments) => set(&arguments),
        Verb::Show(Show { name: Some(name), json, watch: true }) => watch(&name, json),
        Verb::Show(Show { name: Some(name), json, .. }) => show(&[name], json, false),
        Verb::Show(Show { name: None, json, .. }) => {
            show(&Directory::of_user().names()?, json, true)
        }
        Verb::List { json } => list(json),
        Verb::ShowTags(arguments) => tags::show(&arguments),
        Verb::Down { name, json } => {
            Client::connect(&Directory::of_user(), &name)?.down()?;
            if json {
                print_json(&serde_json::json!({ "name": name, "ended": true }).to_string());
            }
            Ok(Ending::Fine)
        }
    }
}

fn up(arguments: &Up) -> anyhow::Result<Ending> {
    let plan = arguments.options()?.plan()?;
    if arguments.detach
        && let Some(ending) = background::detach()?
    {
        return Ok(ending);
    }
    let directory = Directory::of_user();
    directory.prepare()?;
    refuse_ends_of_others(&directory, &plan)?;
    let claim = directory.claim(plan.name.as_deref())?;
    // Must precede the first thread: becoming root of a user namespace needs a single-threaded
    // process.
    let privilege = host::acquire()?;
    if let Some(sentence) = privilege.degradation() {
        eprintln!("note: {sentence}");
    }
    let cancel = cancel_on_signals()?;
    let end = plan.duration.map(|duration| Instant::now() + duration.as_duration());
    let link = RunningLink::start(claim.name(), plan, privilege)?;
    let inspector = link.inspector();
    let server = Server::start(claim, inspector.clone())?;
    for note in link.notes().iter().chain(&inspector.warnings()) {
        eprintln!("note: {note}");
    }
    let ends = if arguments.detach { "" } else { "Ctrl-C or " };
    eprintln!("link {} is up; {ends}`weir link down {0}` ends it", server.name());
    if arguments.detach {
        background::serving(None)?;
    }
    let mut view = View::new(!arguments.json);
    let over = || end.is_some_and(|end| Instant::now() >= end);
    while !cancel.is_cancelled() && !over() && !server.down_requested() && link.is_running() {
        if view.terminal && view.is_due() {
            // An error means that the link is ending, which the loop's condition detects.
            if let Ok(report) = inspector.inspect() {
                view.show(report);
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    view.clear();
    let report = link.finish()?;
    if arguments.json {
        print_json(&serde_json::to_string_pretty(&report)?);
    } else {
        print(&emu::table(&report));
    }
    Ok(if report.valid { Ending::Fine } else { Ending::Failed })
}

/// Refuses an interface that already belongs to a link: each of the two links would also carry the
/// frames that the other link delivers.
fn refuse_ends_of_others(directory: &Directory, plan: &LinkPlan) -> anyhow::Result<()> {
    let ends: Vec<String> = plan.ends.iter().map(ToString::to_string).collect();
    for name in directory.names()? {
        let shown = Client::connect(directory, &name).and_then(|mut client| client.show());
        // The link may have ended since the list was read.
        let Ok(report) = shown else { continue };
        // A name without a namespace means an interface in the namespace of the link's process.
        let own = || network(report.pid).is_some_and(|theirs| Some(theirs) == network(id()));
        let is_same =
            |end: &&String| [&report.a, &report.b].contains(end) && (end.contains(':') || own());
        if let Some(end) = ends.iter().find(is_same) {
            return Err(EmuError::Refused(format!(
                "{end} is an end of {name} already: `weir link set {name}` changes that link, \
                 `weir link down {name}` ends it"
            ))
            .into());
        }
    }
    Ok(())
}

fn network(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

impl Up {
    fn options(&self) -> Result<LinkOptions, EmuError> {
        let mut options = LinkOptions::default();
        let single = [
            ("a", &self.a),
            ("b", &self.b),
            ("mtu", &self.mtu),
            ("name", &self.name),
            ("duration", &self.duration),
            ("cpu", &self.cpu),
            ("spin", &self.spin),
        ];
        set_all(&mut options, &single)?;
        self.both.set(&mut options)?;
        for (key, values) in [("address-a", &self.address_a), ("address-b", &self.address_b)] {
            values.iter().try_for_each(|value| options.set(key, value))?;
        }
        if self.no_real_time {
            options.set("no-real-time", "true")?;
        }
        self.ab.iter().try_for_each(|pair| options.set_ab(pair))?;
        self.ba.iter().try_for_each(|pair| options.set_ba(pair))?;
        match &self.config {
            Some(file) => Ok(options.or_file(file)?),
            None => Ok(options),
        }
    }
}

impl Both {
    fn set(&self, options: &mut LinkOptions) -> Result<(), EmuError> {
        let settings = [
            ("rate", &self.rate),
            ("trace", &self.trace),
            ("delay", &self.delay),
            ("rtt", &self.rtt),
            ("jitter", &self.jitter),
            ("loss", &self.loss),
            ("reorder", &self.reorder),
            ("duplicate", &self.duplicate),
            ("corrupt", &self.corrupt),
            ("queue", &self.queue),
            ("overhead", &self.overhead),
            ("seed", &self.seed),
        ];
        set_all(options, &settings)
    }
}

fn set_all(
    options: &mut LinkOptions,
    settings: &[(&str, &Option<String>)],
) -> Result<(), EmuError> {
    for (key, value) in settings {
        if let Some(value) = value {
            options.set(key, value)?;
        }
    }
    Ok(())
}

fn set(arguments: &Set) -> anyhow::Result<Ending> {
    let read = |pairs: &[String]| -> Result<Settings, EmuError> {
        let mut settings = Settings::default();
        pairs.iter().try_for_each(|pair| emu::set_pair(&mut settings, pair))?;
        Ok(settings)
    };
    let (both, ab, ba) = (read(&arguments.both)?, read(&arguments.ab)?, read(&arguments.ba)?);
    if [&both, &ab, &ba].iter().all(|settings| settings.is_empty()) {
        let problem = "nothing to change: name settings, for example loss=1% or --ab rate=20mbit";
        return Err(EmuError::Refused(problem.to_owned()).into());
    }
    let mut client = Client::connect(&Directory::of_user(), &arguments.name)?;
    client.set(both, ab, ba)?;
    for warning in client.show()?.warnings {
        eprintln!("note: {warning}");
    }
    if arguments.json {
        return show(std::slice::from_ref(&arguments.name), true, false);
    }
    Ok(Ending::Fine)
}

/// Shows links. `all`: the user named no link, so a link that does not reply is noted and left out.
fn show(names: &[String], json: bool, all: bool) -> anyhow::Result<Ending> {
    let directory = Directory::of_user();
    let mut reports = Vec::new();
    for name in names {
        match Client::connect(&directory, name).and_then(|mut client| client.show()) {
            Err(EmuError::NoSuchLink { .. } | EmuError::Ended) if all => {}
            // The link's process may be stopped: show the other links.
            Err(error) if all => eprintln!("note: link {name}: {error}"),
            report => reports.push(report?),
        }
    }
    match (json, all, &reports[..]) {
        (true, false, [report]) => print_json(&serde_json::to_string_pretty(report)?),
        (true, ..) => print_json(&serde_json::to_string_pretty(&reports)?),
        (false, _, []) => eprintln!("no link is up"),
        (false, ..) => reports.iter().for_each(|report| print(&emu::table(report))),
    }
    Ok(Ending::Fine)
}

fn watch(name: &str, json: bool) -> anyhow::Result<Ending> {
    let mut client = Client::connect(&Directory::of_user(), name)?;
    let cancel = cancel_on_signals()?;
    let mut view = View::new(!json);
    while !cancel.is_cancelled() {
        if view.is_due() {
            match client.show() {
                Ok(report) if json => {
                    print_json(&serde_json::to_string(&report)?);
                    view.wait();
                }
                Ok(report) => view.show(report),
                // A watch ends when its link ends.
                Err(EmuError::Ended) => break,
                Err(error) => {
                    view.clear();
                    return Err(error.into());
                }
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(Ending::Fine)
}

fn list(json: bool) -> anyhow::Result<Ending> {
    let directory = Directory::of_user();
    let names = directory.names()?;
    if json {
        print_json(&serde_json::to_string_pretty(&names)?);
        return Ok(Ending::Fine);
    }
    let mut listed = false;
    for name in names {
        // Leaves out a link that has ended since it was listed.
        if let Ok(report) = Client::connect(&directory, &name).and_then(|mut client| client.show())
        {
            print(&format!("{name:<16} {} - {}  (process {})\n", report.a, report.b, report.pid));
            listed = true;
        }
    }
    if !listed {
        eprintln!("no link is up");
    }
    Ok(Ending::Fine)
}

struct View {
    terminal: bool,
    lines: usize,
    due: Instant,
    before: Option<LinkReport>,
}

impl View {
    fn new(drawn: bool) -> Self {
        let terminal = drawn && std::io::stdout().is_terminal();
        Self { terminal, lines: 0, due: Instant::now(), before: None }
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    fn wait(&mut self) {
        self.due += Duration::from_secs(1);
    }

    fn show(&mut self, report: LinkReport) {
        self.wait();
        self.clear();
        let text = emu::live(&report, self.before.as_ref(), self.terminal);
        if self.terminal {
            self.lines = text.lines().count();
            // Disables wrapping (DECAWM), so that a line of text takes one line even on a narrow
            // terminal.
            print(&format!("\x1b[?7l{text}\x1b[?7h"));
        } else {
            print(&text);
        }
        self.before = Some(report);
    }

    fn clear(&mut self) {
        if self.lines > 0 {
            // Move up and clear everything below (ECMA-48: CPL, ED).
            print(&format!("\x1b[{}F\x1b[J", self.lines));
            self.lines = 0;
        }
    }
}

/// Prints the text. Ignores errors: the end of the link must not depend on the reader of the text.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn print_json(document: &str) {
    print(&format!("{document}\n"));
}

/// Returns the help of `--queue`, which names every discipline.
fn queue_help() -> String {
    let names = QueueConfig::names().iter().map(|name| match *name {
        "droptail" => "droptail:256KiB",
        "caqm" => "caqm:143KB",
        other => other,
    });
    let mut names: Vec<&str> = names.collect();
    let last = names.pop().unwrap_or_default();
    format!(
        "Queue discipline: {} or {last}. A size may be packets (100p), or bandwidth-delay products \
         of rate and round trip (1bdp) [default: droptail with 1bdp, but at least 100 ms of the \
         rate]",
        names.join(", ")
    )
}

const LOOK_EVERY: Duration = Duration::from_millis(50);
const UP_EXAMPLES: &str = "\
Examples:
  Two namespaces, 600 Mbit/s, 20 ms round trip, 1 % loss:
    ip netns add left; ip netns add right
    weir link up --a left:eth0 --address-a 10.0.0.1/24 \\
      --b right:eth0 --address-b 10.0.0.2/24 \\
      --rate 600mbit --delay 10ms --loss 1% --queue droptail:256KiB --seed 7
    ip netns exec left ping 10.0.0.2          # from another terminal

  A slow way up and a fast way down, with CoDel in the slow one:
    weir link up --a left:eth0 --b right:eth0 --rtt 30ms \\
      --ab rate=20mbit --ab queue=codel --ba rate=100mbit

  Between two interfaces of this machine, for half a minute, for a program:
    weir link up --a eth1 --b eth2 --delay 5ms --duration 30s --json";
const SET_EXAMPLES: &str = "\
Examples:
  weir link set link0 loss=1% delay=20ms
  weir link set link0 --ab rate=20mbit --ba queue=codel:ecn";
const SHOW_EXAMPLES: &str = "\
Examples:
  weir link show link0
  weir link show link0 --watch
  weir link show link0 --json | jq .ab.statistics";
const LIST_EXAMPLES: &str = "\
Examples:
  weir link list
  weir link list --json | jq -r '.[]'";
const DOWN_EXAMPLES: &str = "\
Example:
  weir link down link0";

#[cfg(test)]
mod tests {
    use super::*;

    const LAB: &str = r#"
name = "keys"
hosts = ["near", "far"]
[workload]
kind = "bulk"
from = "near"
to = "far"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
duration = "1s"
[[link]]
between = ["near", "far"]
"#;

    #[test]
    fn the_help_of_queue_names_every_discipline_once() {
        let command = Both::augment_args(clap::Command::new("link"));
        let queue = command.get_arguments().find(|flag| flag.get_id() == "queue").unwrap();
        let help = queue.get_help().unwrap().to_string();
        let (names, _) = help.split_once(". A size").unwrap();
        let words: Vec<&str> = names.split([',', ' ', ':']).collect();
        for name in QueueConfig::names() {
            assert_eq!(words.iter().filter(|word| *word == name).count(), 1, "{help}");
        }
    }

    #[test]
    fn every_key_of_a_link_is_a_flag_and_a_key_of_lab_files() {
        let flags = Both::augment_args(clap::Command::new("link"));
        let mut flags: Vec<_> = flags.get_arguments().map(|flag| flag.get_id().as_str()).collect();
        let mut keys = Settings::KEYS.to_vec();
        flags.sort_unstable();
        keys.sort_unstable();
        assert_eq!(flags, keys);
        for key in keys {
            let text = format!("{LAB}{key} = \"?\"\n");
            let error = lab::LabFile::parse("keys.toml", &text).unwrap_err().to_string();
            // Lab files have no key `seed`: the runner chooses the seeds of a lab.
            assert_eq!(error.contains("unknown key"), key == "seed", "{key}: {error}");
        }
    }
}
