//! A switch in a sandbox, and the real tools that use it.

use crate::support::{CommandOutput, Running, Sandbox, await_some, is_installed};
use std::path::PathBuf;
use std::process::Command;

pub struct TestSwitch {
    pub sandbox: Sandbox,
    pub running: Running,
}

/// Makes a new sandbox, if Open vSwitch's tools are installed.
pub fn sandbox() -> Option<Sandbox> {
    for tool in ["ovs-ofctl", "ovs-appctl"] {
        if !is_installed(tool) {
            testing::skip(testing::Need::Program(tool));
            return None;
        }
    }
    Sandbox::new()
}

impl TestSwitch {
    /// Starts `weir switch run --rundir … WORDS`, and waits until it serves.
    pub fn start(sandbox: Sandbox, words: &[&str]) -> Self {
        let running = run(&sandbox, words);
        await_control(&sandbox, &running);
        Self { sandbox, running }
    }

    /// Ends the switch by Ctrl-C, and checks that no file is left.
    pub fn end(self) -> CommandOutput {
        let Self { sandbox, running } = self;
        running.signal("INT");
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        let left: Vec<_> = std::fs::read_dir(sandbox.path("run")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(sandbox.leftovers(), Vec::<String>::new());
        ended
    }

    pub fn ofctl(&self, words: &[&str]) -> String {
        let output = self.try_ofctl(words);
        assert!(output.status.success(), "ovs-ofctl {words:?}: {}", output.stderr);
        output.stdout
    }

    /// Runs ovs-ofctl. Bridges have their plain names, as in `ovs-ofctl add-flow br0 …`.
    pub fn try_ofctl(&self, words: &[&str]) -> CommandOutput {
        self.tool("ovs-ofctl", &[&["-t", "60"], words].concat())
    }

    pub fn appctl(&self, words: &[&str]) -> String {
        let output = self.try_appctl(words);
        assert!(output.status.success(), "ovs-appctl {words:?}: {}", output.stderr);
        output.stdout
    }

    pub fn try_appctl(&self, words: &[&str]) -> CommandOutput {
        let target = self.sandbox.path("run/weir-switch.ctl").display().to_string();
        self.tool("ovs-appctl", &[&["-T", "60", "-t", &target], words].concat())
    }

    /// Runs `weir switch WORDS`. Panics if the command fails.
    pub fn weir(&self, words: &[&str]) -> String {
        let output = self.try_weir(words);
        assert!(output.status.success(), "weir switch {words:?}: {}", output.stderr);
        output.stdout
    }

    pub fn try_weir(&self, words: &[&str]) -> CommandOutput {
        let rundir = self.sandbox.path("run").display().to_string();
        self.sandbox.weir(&[&["switch"], words, &["--rundir", &rundir]].concat())
    }

    fn tool(&self, tool: &str, words: &[&str]) -> CommandOutput {
        let mut command = Command::new(tool);
        command.args(words).env("OVS_RUNDIR", self.sandbox.path("run"));
        self.sandbox.start_command(command).end()
    }

    /// Sums the number after `name` over the statistics of all packet threads.
    pub fn counted(&self, name: &str) -> u64 {
        let text = self.appctl(&["dpif-netdev/pmd-stats-show"]);
        let lines =
            text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
        lines.map(|number| number.trim().parse::<u64>().unwrap()).sum()
    }

    /// Reads `n_packets` of the first rule whose line contains `part`.
    pub fn packets(&self, bridge: &str, part: &str) -> u64 {
        let text = self.ofctl(&["dump-flows", bridge]);
        let line = text.lines().find(|line| line.contains(part));
        let line = line.unwrap_or_else(|| panic!("no {part:?} in:\n{text}"));
        let number = line.split_once("n_packets=").unwrap().1;
        number.split_once(',').unwrap().0.parse().unwrap()
    }

    pub fn path(&self, name: &str) -> String {
        self.sandbox.path(name).display().to_string()
    }
}

pub fn run(sandbox: &Sandbox, words: &[&str]) -> Running {
    let rundir = sandbox.path("run").display().to_string();
    sandbox.start(&[&["switch", "run", "--rundir", &rundir], words].concat())
}

pub fn await_control(sandbox: &Sandbox, running: &Running) {
    await_some("the switch", || {
        let (_, said) = running.output_so_far();
        let has_failed = said.lines().any(|line| line.starts_with("weir: "));
        assert!(!has_failed, "{said}");
        said.contains("control at").then_some(())
    });
    assert!(socket(sandbox, "weir-switch.ctl").exists());
}

pub fn socket(sandbox: &Sandbox, name: &str) -> PathBuf {
    sandbox.path("run").join(name)
}
