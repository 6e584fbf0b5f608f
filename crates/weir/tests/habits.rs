//! Habits from other tools: iperf3's spelling, files and time stamps, completions, a version with
//! its commit, commands behind a link.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Sandbox, await_some};

fn listening(sandbox: &Sandbox, file: &str) {
    await_some("a server", || {
        std::fs::read_to_string(sandbox.path(file)).ok()?.contains("listening").then_some(())
    });
}

#[test]
fn iperf3s_command_lines_start_a_server_in_the_background_and_a_client() {
    let Some(sandbox) = Sandbox::new() else { return };
    let server = ["perf", "-s", "-D", "-1", "--logfile", "log", "-I", "pid", "--timestamps=%s "];
    let output = sandbox.weir(&server);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    listening(&sandbox, "log");
    let pid: u32 = sandbox.read("pid").trim().parse().unwrap();
    assert!(sandbox.marked().iter().any(|(one, _)| *one == pid), "{pid}");
    let client = ["perf", "-t", "1", "-c", "127.0.0.1", "--logfile", "client", "-I", "client.pid"];
    let further =
        ["--snd-timeout", "30000", "--cntl-ka=60/10/5", "--forceflush", "--bandwidth", "9M"];
    let output = sandbox.weir(&[&client[..], &further].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!sandbox.path("client.pid").exists());
    assert_eq!(output.stdout, "");
    assert!(sandbox.read("client").contains("received"), "{}", sandbox.read("client"));
    await_some("the end of the server", || sandbox.marked().is_empty().then_some(()));
    assert!(!sandbox.path("pid").exists());
    let log = sandbox.read("log");
    let stamped =
        |line: &str| line.split(' ').next().is_some_and(|word| word.parse::<u64>().is_ok());
    assert!(log.lines().count() > 2 && log.lines().all(stamped), "{log}");
}

#[test]
fn a_server_in_the_background_reports_a_port_in_use() {
    let Some(sandbox) = Sandbox::new() else { return };
    assert_eq!(
        sandbox.weir(&["perf", "-s", "-D", "-1", "--logfile", "log"]).status.code(),
        Some(0)
    );
    listening(&sandbox, "log");
    let output = sandbox.weir(&["perf", "-sD1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.contains("5201"), "{output:?}");
    for (pid, _) in sandbox.marked() {
        support::signal(pid, "TERM");
    }
}

#[test]
fn a_server_refuses_options_of_the_client_with_the_remedy() {
    let Some(sandbox) = Sandbox::new() else { return };
    for (words, remedy) in [
        (["perf", "-s", "-u"], "leave --udp out"),
        (["perf", "-s", "--snd-timeout=9"], "--rcv-timeout"),
    ] {
        let output = sandbox.weir(&words);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains(remedy), "{output:?}");
    }
}

#[test]
fn an_unknown_algorithm_is_reported_before_the_test() {
    let Some(sandbox) = Sandbox::new() else { return };
    // No server listens, but the command ends before it connects.
    let output = sandbox.weir(&["perf", "-c", "127.0.0.1", "-C", "cubik"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("cubik"), "{output:?}");
}

#[test]
fn a_command_runs_behind_a_link() {
    let Some(sandbox) = Sandbox::new() else { return };
    let link = ["link", "run", "--rtt", "40ms", "--rate", "100mbit"];
    let weir = env!("CARGO_BIN_EXE_weir");
    let server = format!("{weir} perf server --one-off --logfile served");
    // On a busy machine the command may begin before the far side listens.
    let client = format!(
        "until grep -qs listening served; do sleep 0.01; done; \
         exec {weir} perf client 10.0.0.2 -t 1 --json"
    );
    let far = ["--far", &server, "--", "sh", "-c", &client];
    let output = sandbox.weir(&[&link[..], &far].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let test: Value = serde_json::from_str(&output.stdout).unwrap();
    let least = test["end"]["streams"][0]["sender"]["min_rtt"].as_f64().unwrap();
    assert!(least >= 40_000.0, "{least} µs");
    let output = sandbox.weir(&[&link[..], &["--", "false"]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = sandbox.weir(&[&link[..], &["--", "no-such-program"]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("no-such-program is not installed"), "{output:?}");
    let output = sandbox.weir(&[&link[..], &["--far", "sleep 1000", "--", "true"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // The far side's output must not mix with the command's output. The far side's output is
    // printed if a command failed.
    let far = |told: &str| format!("echo listening; echo said >&2; touch {told}; sleep 1000");
    let fails = |told: &str| format!("until [ -e {told} ]; do sleep 0.01; done; false");
    let fars = ["one", "two", "three"].map(far);
    let greets = ["--far", &fars[0], "--", "echo", "hello"];
    let output = sandbox.weir(&[&link[..], &greets].concat());
    // On a busy machine the kernel's own frames may be late.
    let is_late = |line: &&str| line.starts_with("note: figures of this run do not hold: frames ");
    let said: Vec<&str> = output.stderr.lines().filter(|line| !is_late(line)).collect();
    assert_eq!((output.stdout.as_str(), said.len()), ("hello\n", 1), "{output:?}");
    assert!(said[0].starts_with("note: the link used "), "{output:?}");
    let script = fails("two");
    let shown = ["--far", &fars[1], "--", "sh", "-c", &script];
    let output = sandbox.weir(&[&link[..], &shown].concat());
    assert!(output.stderr.contains("far: listening\nfar: said\n"), "{output:?}");
    let script = fails("three");
    let log = ["--far", &fars[2], "--far-log", "far.log", "--", "sh", "-c", &script];
    let output = sandbox.weir(&[&link[..], &log].concat());
    assert!(!output.stderr.contains("far:"), "{output:?}");
    assert_eq!(sandbox.read("far.log"), "listening\nsaid\n");
    // The command lasts long enough for the far side to fail first.
    let missing = ["--far", "no-such-server", "--", "sleep", "3"];
    let output = sandbox.weir(&[&link[..], &missing].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.contains("--far failed before the other one ended"), "{output:?}");
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn an_unusable_path_is_a_usage_error_that_names_the_flag() {
    let Some(sandbox) = Sandbox::new() else { return };
    sandbox.write("file", "");
    std::fs::create_dir(sandbox.path("folder")).unwrap();
    sandbox.write("folder/server.crt", "");
    let client = ["perf", "client", "127.0.0.1"];
    let run = ["link", "run", "--far", "true"];
    let search = ["gen", "ndr", "--port", "null", "--port", "null"];
    for (words, says) in [
        ([&client[..], &["--report", "file/report"]].concat(), "name another with --report"),
        ([&client[..], &["--logfile", "none/log"]].concat(), "name another with --logfile"),
        ([&client[..], &["--bind", "203.0.113.7"]].concat(), "of --bind is no address"),
        (vec!["perf", "server", "--bind", "203.0.113.7"], "leave --bind out"),
        ([&client[..], &["--port", "https"]].concat(), "write a number from 1 to 65535"),
        (vec!["doctor", "--record", "none/seen.json"], "name another with --record"),
        (vec!["doctor", "--record", "folder"], "name another with --record"),
        ([&search[..], &["--report", "none/ndr.md"]].concat(), "name another with --report"),
        (vec!["doctor", "--cpus", "two"], "for example 1,2 or 0-3"),
        (vec!["doctor", "--cpus", "8191"], "--cpus 8191: the CPUs are 0"),
        (vec!["lab", "run", "--resume"], "name the lab, or the directory"),
        (vec!["perf", "server", "-I", "none/pid"], "name another with --pidfile"),
        (vec!["perf", "server", "-D", "-I", "none/pid"], "name another with --pidfile"),
        ([&run[..], &["--far-log", "none/log", "--", "true"]].concat(), "with --far-log"),
        (vec!["tunnel", "keys", "server", "--directory", "file/keys"], "with --directory"),
        (vec!["tunnel", "keys", "server", "--directory", "folder"], "--force replaces it"),
        (vec!["accel", "policy", "none.toml"], "cannot read none.toml"),
        (vec!["accel", "enable", "tcpa", "--all", "--init-cwnd", "0"], "1 to 10000 segments"),
        (vec!["accel", "set", "init_cwn=60"], "no tunable is called `init_cwn`"),
        (vec!["lab", "run", "perf-overhead", "--out", "file/run"], "name another with --out"),
        (vec!["sim", "run", "tcpa-hard", "--resume", "none"], "not a run that can be resumed"),
        (vec!["lab", "validate", "none.toml"], "weir: cannot read none.toml"),
        (vec!["lab", "validate", "folder"], "folder has no results.json"),
        (vec!["lab", "show", "folder"], "folder has no results.json"),
        (vec!["lab", "export", "none"], "cannot read none"),
        (vec!["link", "show-tags", "file"], "file: the capture is not a pcap file"),
        (
            vec!["lab", "ab", "--base-command", "no-such-program", "--change-command", "true"],
            "no-such-program is not installed",
        ),
        (vec!["perf", "-c"], "<HOST>"),
    ] {
        let output = sandbox.weir(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(output.stderr.contains(says), "{words:?}: {output:?}");
        assert_eq!(output.stdout, "", "{words:?}");
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// open(2) of a pipe waits for its other end; a command must not wait.
#[test]
fn no_command_waits_for_a_pipe() {
    let Some(sandbox) = Sandbox::new() else { return };
    let pipes = ["pipe", "pipe.json", "pipe.toml", "run/results.json", "saved/recording.json"];
    for name in pipes {
        std::fs::create_dir_all(sandbox.path(name).parent().unwrap()).unwrap();
        assert!(Command::new("mkfifo").arg(sandbox.path(name)).status().unwrap().success());
    }
    std::os::unix::fs::symlink("pipe.json", sandbox.path("link.json")).unwrap();
    sandbox.write("flows.toml", "[bridge.br0]\nflows = \"pipe\"\n");
    let switch = ["switch", "run", "--rundir", "sw", "--bridge", "br0", "--port"];
    let (unread, irregular) =
        ("no program reads this pipe", "is a pipe (FIFO), not a regular file");
    for (words, says) in [
        (vec!["accel", "policy", "pipe", "--check"], irregular),
        (vec!["doctor", "pipe"], irregular),
        (vec!["doctor", "pipe.json"], irregular),
        (vec!["doctor", "link.json"], irregular),
        (vec!["doctor", "./run"], "cannot read ./run/recording.json"),
        (vec!["doctor", "saved/recording.json"], irregular),
        (vec!["doctor", "-t", "1", "--record", "pipe"], unread),
        (vec!["lab", "compare", "./run", "./run"], irregular),
        (vec!["lab", "validate", "./pipe.toml"], irregular),
        (vec!["lab", "show", "./run"], irregular),
        (vec!["lab", "run", "./pipe.toml", "--smoke"], irregular),
        (vec!["sim", "run", "./pipe.toml", "--smoke"], irregular),
        (vec!["link", "run", "--trace", "pipe", "--", "true"], irregular),
        (vec!["link", "up", "--config", "pipe"], irregular),
        (vec!["link", "run", "--far", "true", "--far-log", "pipe", "--", "true"], unread),
        (vec!["link", "show-tags", "./pipe"], irregular),
        (vec!["perf", "server", "--users", "pipe", "--rsa-private-key", "pipe"], irregular),
        (vec!["perf", "server", "--logfile", "pipe"], unread),
        (vec!["perf", "server", "--pidfile", "pipe"], unread),
        (vec!["gen", "-f", "pipe", "--port", "null"], irregular),
        (vec!["gen", "--cfg", "pipe", "-f", "imix.yaml"], irregular),
        (
            vec!["gen", "-f", "imix.yaml", "-d", "1", "--port", "pcap:pipe", "--port", "null"],
            unread,
        ),
        (vec!["switch", "add-flows", "br0", "pipe"], irregular),
        (vec!["switch", "check", "pipe"], irregular),
        (vec!["switch", "check", "flows.toml"], irregular),
        (vec!["switch", "run", "--rundir", "sw", "--config", "pipe"], irregular),
        (vec!["switch", "run", "--rundir", "sw", "--config", "flows.toml"], irregular),
        ([&switch[..], &["br0:p0=pcap:pipe"]].concat(), irregular),
        ([&switch[..], &["br0:p0=pcap,write=pipe"]].concat(), irregular),
        (vec!["tunnel", "check", "server", "--config", "pipe"], irregular),
        (vec!["tunnel", "server", "--config", "pipe"], irregular),
        (vec!["tunnel", "unit", "server", "pipe"], irregular),
    ] {
        let begun = Instant::now();
        let output = sandbox.weir(&words);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{words:?}: {output:?}");
        // `weir switch check` prints the mistakes of a file to standard output.
        let said = output.stderr.clone() + &output.stdout;
        assert!(said.contains(says), "{words:?}: {output:?}");
        assert!(begun.elapsed() < WITHOUT_WAITING, "{words:?}: {:?}", begun.elapsed());
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// Users pass reports on to other people.
#[test]
fn a_secret_of_the_kernels_command_line_is_in_no_report() {
    let Some(sandbox) = Sandbox::new() else { return };
    if !rustix::process::geteuid().is_root() {
        return testing::skip(testing::Need::Root);
    }
    sandbox.write(
        "cmdline",
        "quiet isolcpus=7 foo.password=hunter2 nohz=\"hunter2 2\" -- idle=hunter2\n",
    );
    sandbox.write(
        "both",
        "mount --bind cmdline /proc/cmdline\n$1 perf server --one-off --logfile log &\n\
         until grep -qs listening log; do sleep 0.01; done\n\
         $1 perf client 127.0.0.1 -t 1 --report perf && $1 sim run quic-tun --smoke --out lab\n",
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "both", env!("CARGO_BIN_EXE_weir")]);
    let output = sandbox.start_command(command).end();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for run in ["perf", "lab"] {
        let report = sandbox.read(&format!("{run}/report.md"));
        assert!(report.contains("isolcpus=7"), "{run}: {report}");
        for entry in std::fs::read_dir(sandbox.path(run)).unwrap() {
            let path = entry.unwrap().path();
            let text =
                std::fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            assert!(!text.is_ok_and(|text| text.contains("hunter2")), "{path:?}");
        }
    }
}

/// clap's own advice is to write `--` in front of a misspelt option.
#[test]
fn a_misspelt_option_is_corrected_and_not_escaped() {
    let Some(sandbox) = Sandbox::new() else { return };
    let said = |words: &[&str]| sandbox.weir(words).stderr;
    let near = said(&["perf", "client", "host", "--revers"]);
    assert!(near.contains("'--reverse'"), "{near}");
    let far = said(&["perf", "client", "host", "--nonsense"]);
    assert!(far.contains("'--nonsense'") && !far.contains("tip"), "{far}");
}

#[test]
fn weir_link_up_can_run_in_the_background() {
    let Some(sandbox) = Sandbox::new() else { return };
    let name = format!("detached-{}", std::process::id());
    let ends = ["--a", "tap:left0", "--b", "tap:right0", "--delay", "1ms"];
    let words = [&["link", "up", "--detach", "--name", &name][..], &ends].concat();
    let output = sandbox.weir(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = sandbox.weir(&["link", "show", &name, "--json"]);
    let shown: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(shown["name"], name.as_str());
    assert_eq!(sandbox.weir(&words).status.code(), Some(2), "a second link of that name");
    assert_eq!(sandbox.weir(&["link", "down", &name]).status.code(), Some(0));
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

/// A script under flock(1) keeps its lock as long as an inherited descriptor is open.
#[test]
fn a_program_in_the_background_keeps_no_file_of_its_caller_open() {
    let Some(sandbox) = Sandbox::new() else { return };
    let name = format!("no-files-{}", std::process::id());
    let link = format!("link up --detach --name {name} --a tap:l1 --b tap:r1");
    for verb in [&*link, "perf server -D --bind 127.0.0.1 -p 5399 --pidfile pid"] {
        // cat ends once no process has the writing end of its pipe.
        let weir = env!("CARGO_BIN_EXE_weir");
        let script = format!("{{ flock 7 && {weir} {verb} 9<lock <lock; }} 7>lock 8>&1 | cat");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        let mut shell = sandbox.start_command(shell);
        await_some("the end of the pipe", || shell.has_ended().then_some(()));
        let output = shell.end();
        assert!(output.status.success(), "{verb}: {output:?}");
        let background = sandbox.marked();
        assert_eq!(background.len(), 1, "{verb}: {background:?}");
        let pid = background[0].0;
        let opened = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        for entry in opened.map(|entry| entry.unwrap()) {
            let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
            let target = std::fs::read_link(entry.path()).unwrap();
            assert!(!target.ends_with("lock"), "{verb}: {number} is {target:?}");
            assert!(number > 2 || target.ends_with("dev/null"), "{verb}: {number} is {target:?}");
        }
        let mut lock = Command::new("flock");
        lock.args(["-n", "lock", "true"]);
        assert!(sandbox.start_command(lock).end().status.success(), "{verb} holds the lock");
        if verb == link {
            assert_eq!(sandbox.weir(&["link", "down", &name]).status.code(), Some(0));
        } else {
            let mut kill = Command::new("kill");
            kill.arg(pid.to_string());
            assert!(sandbox.start_command(kill).end().status.success());
        }
        await_some("the end", || sandbox.marked().is_empty().then_some(()));
    }
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn the_version_names_the_commit_and_shells_get_completions() {
    let Some(sandbox) = Sandbox::new() else { return };
    let version = sandbox.weir(&["--version"]).stdout;
    let commit = version.split(['(', ')']).nth(1).unwrap_or_default();
    assert!(commit.len() == 12 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{version}");
    for (shell, word) in
        [("bash", "_weir()"), ("zsh", "#compdef weir"), ("fish", "complete -c weir")]
    {
        let output = sandbox.weir(&["completions", shell]).stdout;
        assert!(output.contains(word) && output.contains("accel"), "{shell}");
    }
    assert_eq!(sandbox.weir(&["man", "man"]).status.code(), Some(0));
    for page in ["weir.1", "weir-lab-run.1", "weir-perf-client.1", "weir-tunnel-server.1"] {
        let text = sandbox.read(&format!("man/{page}"));
        assert!(text.contains(".TH ") && text.contains("SYNOPSIS"), "{page}");
    }
}

/// tc-netem(8) takes 0.5 for half a percent.
#[test]
fn a_share_without_a_percent_sign_is_refused_wherever_a_user_writes_one() {
    let Some(sandbox) = Sandbox::new() else { return };
    for (words, choice) in [
        (&["--loss", "1"][..], "write 1% or 100%"),
        (&["--loss", "0.5"], "write 0.5% or 50%"),
        (&["--loss", "gilbert:p=0.02,r=30%"], "write 0.02% or 2%"),
        (&["--corrupt", "0.25"], "write 0.25% or 25%"),
        (&["--duplicate", "3"], "write 3%"),
        (&["--reorder", "0.1,5ms"], "write 0.1% or 10%"),
        (&["--queue", "caqm:143KB,lambda=0.5"], "write 0.5% or 50%"),
        (&["--queue", "red:limit=100p,weight=0.002"], "write 0.002% or 0.2%"),
        (&["--ab", "loss=.3"], "write 0.3% or 30%"),
    ] {
        let output = sandbox.weir(&[&["link", "run"][..], words, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(output.stderr.contains(choice), "{words:?}: {output:?}");
    }
    let none = ["link", "run", "--loss", "0", "--corrupt", "0", "--", "true"];
    assert_eq!(sandbox.weir(&none).status.code(), Some(0));

    sandbox.write("bare.toml", "a = \"tap:l0\"\nb = \"tap:r0\"\n[ba]\nloss = 0.5\n");
    let output = sandbox.weir(&["link", "up", "--config", "bare.toml"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let problem = "bare.toml:4: loss: `0.5` is a share without a percent sign: write 0.5% or 50%";
    assert!(output.stderr.contains(problem), "{output:?}");

    let lab = sandbox.weir(&["lab", "show", "quic-tun"]).stdout;
    let bare = lab.replacen("\"0.5%\"", "\"0.005\"", 1);
    assert_ne!(bare, lab);
    sandbox.write("bare-lab.toml", bare);
    let output = sandbox.weir(&["lab", "validate", "bare-lab.toml"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = format!("{}{}", output.stdout, output.stderr);
    assert!(said.contains("write 0.005% or 0.5%"), "{said}");
}

#[test]
fn tunnel_keys_with_json_prints_one_document() {
    let Some(sandbox) = Sandbox::new() else { return };
    let words = ["tunnel", "keys", "server", "--directory", "keys", "--name", "hub", "--json"];
    let output = sandbox.weir(&words);
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&document["role"], &document["name"]), (&"server".into(), &"hub".into()));
    assert!(document["pin"].as_str().unwrap().starts_with("sha256/"), "{document}");
    assert!(sandbox.path(document["key"].as_str().unwrap()).exists(), "{document}");
}

/// Time limit of a command that gets a pipe: a command that waits for the pipe's other end would
/// never end.
const WITHOUT_WAITING: Duration = Duration::from_secs(60);
