//! The examples of the switch's guide, run as a user types them.

use super::test_switch::sandbox;
use crate::support::is_installed;
use std::path::Path;
use std::process::Command;

/// A command of the guide, and the output that the guide prints below it.
#[derive(Debug, PartialEq)]
struct Example {
    command: String,
    output: Vec<String>,
}

#[test]
fn the_examples_of_the_guide_print_the_output_that_the_guide_shows() {
    print_what_the_guide_says(6, &["ping", "ethtool", "unshare"]);
}

#[test]
fn the_small_site_of_the_guide_prints_the_output_that_the_guide_shows() {
    let schema = "/usr/share/openvswitch/vswitch.ovsschema";
    let tools = ["ping", "unshare", "ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-ofctl", schema];
    print_what_the_guide_says(8, &tools);
}

/// Runs the examples of a section in one session.
fn print_what_the_guide_says(section: u8, tools: &[&'static str]) {
    for tool in tools {
        if !is_installed(tool) {
            return testing::skip(testing::Need::Program(tool));
        }
    }
    let Some(sandbox) = sandbox() else { return };
    let expected = examples(section);
    assert!(expected.len() > 15, "{}", expected.len());
    let mut script = String::from(PRELUDE);
    for (number, example) in expected.iter().enumerate() {
        script += &format!("echo '{MARK}{number}'\n");
        script += &match example.command.strip_suffix('&') {
            Some(command) => format!("start {command}\n"),
            None => format!("{}\n", example.command),
        };
    }
    let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
    let path = format!("{}:{}", weir.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["bash", "-c", &script]).env("PATH", path);
    let ended = sandbox.start_command(command).end();
    let printed: Vec<_> = ended.stdout.split(MARK).skip(1).collect();
    assert_eq!(printed.len(), expected.len(), "{ended:?}");
    for (example, printed) in expected.iter().zip(printed) {
        let lines: Vec<_> = printed.lines().skip(1).map(steady).collect();
        let wanted: Vec<_> = example.output.iter().map(|line| steady(line)).collect();
        assert_eq!(lines, wanted, "{}: {}", example.command, ended.stderr);
    }
}

fn examples(section: u8) -> Vec<Example> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/switch.md");
    let text = std::fs::read_to_string(guide).unwrap();
    let section = text.split_once(&format!("\n## {section}. ")).unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let mut found: Vec<Example> = Vec::new();
    for block in section.split("```console\n").skip(1) {
        let block = block.split_once("\n```").unwrap().0.replace("\\\n", "");
        for line in block.lines() {
            match line.strip_prefix("# ") {
                Some(command) => {
                    found.push(Example { command: command.to_owned(), output: Vec::new() });
                }
                None => found.last_mut().unwrap().output.push(line.to_owned()),
            }
        }
    }
    found
}

/// Returns a line without its times, which differ in each run.
fn steady(line: &str) -> String {
    let line = line.split_once(", time ").map_or(line, |(line, _)| line);
    let is_learned = line.contains("  02:00:");
    if is_learned { line.trim_end_matches(|c: char| c.is_ascii_digit()) } else { line }
        .trim_end()
        .to_owned()
}

const MARK: &str = "=== example ";
/// Namespaces and sockets that are removed with the shell. After starting a switch in the
/// background, the shell waits until the switch has printed that it is ready. A person does the
/// same before the next command.
const PRELUDE: &str = "
exec 2>&1
mount -t tmpfs -o mode=755 none /run && mkdir /run/netns && mount -t tmpfs none /tmp && ip link set lo up || exit
start() {
    \"$@\" >/tmp/said 2>&1 &
    for wait in $(seq 100); do grep -qs '^control at' /tmp/said && break; sleep 0.1; done
    # The line behind it says which database the switch follows.
    case \"$*\" in *--ovsdb*)
        for wait in $(seq 100); do grep -qs 'follows the database' /tmp/said && break; sleep 0.1; done
    esac
    sleep 0.1; cat /tmp/said
}
";
