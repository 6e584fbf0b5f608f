//! Paragraphs of `--help` that clap wraps at the width of the terminal.
//!
//! The lines of a text in the source have the source's width. clap wraps each line separately,
//! which leaves a short line after every long line.

use clap::Command;

/// Joins each paragraph of the last help text (`after_help`) into one line, for the command and its
/// subcommands.
pub(crate) fn with_flowing_paragraphs(command: Command) -> Command {
    let text = command.get_after_help().map(|text| flowing(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(with_flowing_paragraphs)
}

/// Joins the lines of a paragraph. Leaves indented lines, which are examples.
fn flowing(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut is_open = false;
    for line in text.lines() {
        let flows = !line.is_empty() && !line.starts_with(' ');
        if !joined.is_empty() {
            joined.push(if flows && is_open { ' ' } else { '\n' });
        }
        joined += line;
        is_open = flows;
    }
    joined
}

pub(crate) const FIRST_COMMANDS: &str = "\
Examples:
  weir perf server                            # on the far machine
  weir perf client server.example             # how fast is the path, and why
  weir doctor                                 # what limits the connections here
  weir lab run quic-tun --quick               # compare on emulated paths
  weir sim run tunnel-paths --quick           # the same in virtual time
  weir link run --rate 100mbit --rtt 20ms -- COMMAND
  weir accel enable bbr --port 443

weir COMMAND --help explains a command and its options.";

pub(crate) const ACCEL: &str = "\
tcpa is for servers of short files: files of 640 KB arrived at 1,339 KB/s with tcpa and 1,207 with
BBR over drawn paths, files of 8 MB at 2,398 and 2,397 over eight fixed paths. For larger files and
lossy paths try BBR first: `weir accel enable bbr --port 443`.

Examples:
  weir accel enable bbr --port 443     # an algorithm of the kernel
  weir accel enable tcpa --port 443    # an algorithm of Weir
  weir accel status
  weir accel disable";

pub(crate) const LAB: &str = "\
Examples:
  weir lab list
  weir lab run quic-tun --quick
  weir lab show runs/quic-tun-quick-20260102-030405
  weir lab show quic-tun > my-lab.toml    # a file to change
  weir lab validate my-lab.toml
  weir lab run ./my-lab.toml";

pub(crate) const LINK: &str = "\
Examples:
  weir link run --rate 100mbit --rtt 20ms --loss 1% -- ping 10.0.0.2
  weir link up --a left:eth0 --b right:eth0 --rate 100mbit --rtt 20ms
  weir link list
  weir link set link0 delay=20ms
  weir link down link0";

pub(crate) const PERF: &str = "\
Examples:
  weir perf server                                 # on the far machine
  weir perf client server.example                  # this end sends
  weir perf client server.example -R               # this end receives
  weir perf rr server.example                      # requests a second, latency
  weir perf web http://server.example/ --time 2    # a web server";

pub(crate) const SIM: &str = "\
Examples:
  weir sim run tunnel-paths --quick
  weir sim run ./my-lab.toml

`weir lab list` names the labs that run in virtual time.";

pub(crate) const SWITCH: &str = "\
Examples:
  weir switch run --bridge br0 --port br0:p0=packet:eth1 --pmd-cpus 1
  weir switch add-flow br0 'in_port=p0,actions=drop'
  weir switch dump-flows br0
  weir switch show";

pub(crate) const TUNNEL: &str = "\
Examples:
  weir tunnel keys server                 # on the server
  weir tunnel keys client --name laptop   # on the client
  weir tunnel server --peer laptop=sha256/… --allow tcp:10.0.0.5:22
  weir tunnel client --server server.example:7500 --pin sha256/… \\
    --forward tcp:127.0.0.1:2222=tcp:10.0.0.5:22
  weir tunnel status";

/// Widest help: longer lines are hard to read on any terminal.
pub(crate) const WIDEST: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: usize = 80;

    #[test]
    fn paragraphs_are_joined_and_examples_keep_their_lines() {
        let text =
            "Examples:\n  weir a \\\n    --b\n\nOne\nparagraph.\n\nA file:\n  [a]\nAfter\nit.";
        let expected =
            "Examples:\n  weir a \\\n    --b\n\nOne paragraph.\n\nA file:\n  [a]\nAfter it.";
        assert_eq!(flowing(text), expected);
    }

    #[test]
    fn no_help_is_wider_than_eighty_columns_or_ragged() {
        let mut found = Vec::new();
        each(&mut |name, command| {
            let text = command.clone().render_long_help().to_string();
            let lines: Vec<&str> = text.lines().collect();
            for (line, next) in lines.iter().zip(lines.iter().skip(1).chain([&""])) {
                let width = line.chars().count();
                if width > NARROW {
                    found.push(format!("{name}: {width} columns: {line}"));
                }
                let flows = |line: &str| !line.is_empty() && !line.starts_with(' ');
                let word = next.split(' ').next().unwrap_or_default().chars().count();
                if flows(line) && flows(next) && width + 1 + word <= NARROW {
                    found.push(format!("{name}: ragged: {line}"));
                }
            }
        });
        assert_eq!(found, Vec::<String>::new());
    }

    /// clap breaks a line wider than the help in the middle, which turns one command into two.
    #[test]
    fn no_line_of_examples_is_broken() {
        let mut found = Vec::new();
        each(&mut |name, command| {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let long = |line: &&str| line.starts_with(' ') && line.chars().count() > NARROW;
            found.extend(text.lines().filter(long).map(|line| format!("{name}: {line}")));
        });
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn every_argument_is_explained() {
        let mut found = Vec::new();
        each(&mut |name, command| {
            let bare = command.get_arguments().filter(|one| !one.is_hide_set());
            let bare = bare.filter(|one| one.get_help().is_none());
            found.extend(bare.map(|one| format!("{name}: {}", one.get_id())));
        });
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn every_verb_and_every_first_command_shows_an_example() {
        let mut found = Vec::new();
        each(&mut |name, command| {
            let is_first = name.split(' ').count() <= 2;
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let has_example = text.contains("Example") || about.contains(name);
            if (is_first || !command.has_subcommands()) && !has_example {
                found.push(name.to_owned());
            }
        });
        assert_eq!(found, Vec::<String>::new());
    }

    /// The verbs without the flag print a file, or run until a user stops the verb or the verb's
    /// command ends.
    #[test]
    fn every_verb_but_the_exceptions_has_a_json_flag() {
        let without = [
            "weir completions",
            "weir accel unit",
            "weir tunnel unit",
            "weir tunnel server",
            "weir tunnel client",
            "weir tunnel top",
            "weir switch run",
            "weir link run",
            "weir perf plain-client",
            "weir perf plain-server",
            "weir perf web-server",
            "weir tunnel compat quic-tun server",
            "weir tunnel compat quic-tun client",
        ];
        let mut found = Vec::new();
        each(&mut |name, command| {
            let has = command.get_arguments().any(|one| one.get_long() == Some("json"));
            if !has && !command.has_subcommands() && !without.contains(&name) {
                found.push(name.to_owned());
            }
        });
        assert_eq!(found, Vec::<String>::new());
    }

    /// Calls `f` with every visible command.
    fn each(f: &mut dyn FnMut(&str, &Command)) {
        fn visit(name: &str, command: &Command, f: &mut dyn FnMut(&str, &Command)) {
            f(name, command);
            let shown = |inner: &&Command| !inner.is_hide_set() && inner.get_name() != "help";
            for inner in command.get_subcommands().filter(shown) {
                visit(&format!("{name} {}", inner.get_name()), inner, f);
            }
        }
        let mut root = crate::command().term_width(NARROW);
        root.build();
        visit("weir", &root, f);
    }
}
