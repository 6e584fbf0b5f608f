//! Labs between machines over ssh. The machines are namespaces, each with an sshd and keys made for
//! the test.

mod doctor;
mod faults;
mod hostile;
mod logins;
mod middle;
mod states;

use crate::support::{CommandOutput, Sandbox, await_some};
use host::{Address, Namespace};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Hosts that the sandbox reaches by ssh, and a path between the first two.
struct Hosts {
    sandbox: Sandbox,
    hosts: Vec<Machine>,
    /// The default congestion control of the hosts before any lab.
    congestion: String,
}

struct Machine {
    name: &'static str,
    number: u8,
    inside: Namespace,
    sshd: Option<Child>,
    /// The user of the logins.
    user: &'static str,
    /// A script that runs in sshd's own mount namespace before sshd starts.
    prepare: String,
    /// The folder for copies of weir, as the logins see it.
    cache: PathBuf,
}

impl Hosts {
    /// Starts a client and a server; `None`, with a note, if this machine has no sshd or the tests
    /// do not run as root.
    fn new() -> Option<Self> {
        Self::start_all(&[(1, "client"), (2, "server")])
    }

    /// Starts a third host, too, which has an interface to each end of the path: `left` to the
    /// client and `right` to the server.
    fn with_middle() -> Option<Self> {
        Self::start_all(&[(1, "client"), (2, "server"), (4, "middle")])
    }

    fn start_all(names: &[(u8, &'static str)]) -> Option<Self> {
        let sandbox = Sandbox::new()?;
        if !rustix::process::geteuid().is_root() {
            testing::skip(testing::Need::Root);
            return None;
        }
        for program in ["/usr/sbin/sshd", "ssh", "ssh-keygen", "unshare"] {
            if !testing::is_installed(program) {
                testing::skip(testing::Need::Program(program));
                return None;
            }
        }
        let _ = fs::create_dir("/run/sshd");
        for key in ["host", "other", "user"] {
            keygen(&sandbox.path(key));
        }
        fs::copy(sandbox.path("user.pub"), sandbox.path("authorized")).unwrap();
        let mut hosts = Vec::new();
        for &(number, name) in names {
            // The kernel's own IPv6 packets would pass an emulated link that nothing else uses.
            let inside = match names.len() {
                2 => Namespace::create(name),
                _ => host::silent_namespace(name),
            };
            let inside = inside.unwrap();
            let outer = sandbox.inside(Namespace::current).unwrap();
            let control = format!("control{number}");
            host::connect((&outer, &control), (&inside, "control"), 1500).unwrap();
            add(&outer, &control, [10, 9, number, 1]);
            add(&inside, "control", [10, 9, number, 2]);
            let (user, prepare, cache) = ("root", String::new(), sandbox.path("cache"));
            hosts.push(Machine { name, number, inside, sshd: None, user, prepare, cache });
        }
        match hosts.get(2) {
            None => {
                let ends = [0, 1].map(|end: usize| (&hosts[end].inside, "path"));
                host::connect(ends[0], ends[1], 1500).unwrap();
            }
            Some(middle) => {
                for (end, inner) in [(0, "left"), (1, "right")] {
                    let end = (&hosts[end].inside, "path");
                    host::connect(end, (&middle.inside, inner), 1500).unwrap();
                }
            }
        }
        for (number, machine) in hosts.iter().take(2).enumerate() {
            add(&machine.inside, "path", [10, 9, 3, number as u8 + 1]);
        }
        let congestion = hosts[0].inside.run(|| Ok(host::read_sysctl(CONGESTION))).unwrap();
        let mut all = Self { sandbox, hosts, congestion: congestion.unwrap() };
        all.write_client_configuration("host", "user");
        (0..names.len()).for_each(|number| all.start(number));
        // Links to weir's program: most tests need no copy of the program.
        all.place(|weir, at| std::os::unix::fs::symlink(weir, at).unwrap());
        Some(all)
    }

    fn write_client_configuration(&self, host_key: &str, user_key: &str) {
        let key = fs::read_to_string(self.sandbox.path(&format!("{host_key}.pub"))).unwrap();
        let (mut known, mut config) = (String::new(), String::new());
        for machine in &self.hosts {
            let number = machine.number;
            known += &format!("10.9.{number}.2 {key}");
            config += &format!(
                "Host {}\n HostName 10.9.{number}.2\n User {}\n IdentityFile {}\n IdentitiesOnly yes\n \
                 UserKnownHostsFile {}\n StrictHostKeyChecking yes\n",
                machine.name,
                machine.user,
                self.sandbox.path(user_key).display(),
                self.sandbox.path("known").display(),
            );
        }
        self.sandbox.write("known", known);
        self.sandbox.write("config", config);
    }

    fn start(&mut self, number: usize) {
        let machine = &self.hosts[number];
        let at = |name: &str| self.sandbox.path(name).display().to_string();
        let text = format!(
            "HostKey {}\nAuthorizedKeysFile {} /mnt/authorized\nListenAddress 10.9.{}.2\nPidFile none\nUsePAM no\nStrictModes no\n\
             PermitRootLogin yes\nPasswordAuthentication yes\nSetEnv XDG_CACHE_HOME={}\nPrintMotd no\n",
            at("host"),
            at("authorized"),
            machine.number,
            machine.cache.display(),
        );
        let config = self.sandbox.path(&format!("sshd-{}", machine.name));
        fs::write(&config, text).unwrap();
        let log = fs::File::create(self.sandbox.path(&format!("log-{}", machine.name))).unwrap();
        let run = format!("{}\nexec /usr/sbin/sshd -D -e -f {}", machine.prepare, config.display());
        let mut sshd = Command::new("unshare");
        sshd.args(["--mount", "sh", "-euc", &run]).stdin(Stdio::null()).stdout(Stdio::null());
        sshd.stderr(log);
        let sshd = machine.inside.run(|| Ok(sshd.spawn())).unwrap().unwrap();
        let filter = probe::tcp::Filter::listening().local_port(22);
        await_some("sshd", || {
            let found = machine.inside.run(|| Ok(probe::tcp::sockets(&filter))).unwrap().unwrap();
            (!found.is_empty()).then_some(())
        });
        self.hosts[number].sshd = Some(sshd);
    }

    /// Ends sshd and all its sessions.
    fn stop(&mut self, number: usize) {
        let mut sshd = self.hosts[number].sshd.take().unwrap();
        kill_tree(sshd.id());
        sshd.wait().unwrap();
    }

    fn cache(&self) -> PathBuf {
        self.sandbox.path("cache")
    }

    fn agents(&self) -> PathBuf {
        self.cache().join("weir/agents")
    }

    /// Gives a host a small disk at /mnt, which has the program of the agent, and restarts its
    /// sshd.
    fn give_disk(&mut self, number: usize, user: &'static str) {
        self.stop(number);
        let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
        let machine = &mut self.hosts[number];
        machine.user = user;
        machine.cache = "/mnt/cache".into();
        machine.prepare = format!(
            "mount -t tmpfs -o size=4m,mode=755 none /mnt\n\
             {{ cat /etc/passwd; echo \"tester:*:4711:4711::/mnt:/bin/sh\"; }} > /mnt/passwd\n\
             mount --bind /mnt/passwd /etc/passwd\n\
             at=/mnt/cache/weir/agents/{}\nmkdir -p $at\ntouch $at/weir\nmount --bind {} $at/weir\n\
             cp {} /mnt/authorized\n\
             chown {user} /mnt /mnt/cache /mnt/cache/weir /mnt/cache/weir/agents $at /mnt/authorized",
            sha256(weir),
            weir.display(),
            self.sandbox.path("authorized").display(),
        );
        self.write_client_configuration("host", "user");
        self.start(number);
    }

    /// Returns the folder of a host's agents, as this process sees it.
    fn agents_of(&self, machine: &Machine) -> Option<PathBuf> {
        let root = format!("/proc/{}/root", machine.sshd.as_ref()?.id());
        Some(PathBuf::from(root + machine.cache.to_str()?).join("weir/agents"))
    }

    /// Replaces the file of the agent's program.
    fn place(&self, put: impl Fn(&Path, &Path)) -> PathBuf {
        let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
        let folder = self.agents().join(sha256(weir));
        fs::create_dir_all(&folder).unwrap();
        let at = folder.join("weir");
        let _ = fs::remove_file(&at);
        put(weir, &at);
        at
    }

    fn run(&self, more: &[&str]) -> CommandOutput {
        self.sandbox.weir(&[&["lab", "run", "lab.toml", "--trust"], more].concat())
    }

    fn setting(&self, number: usize, name: &str) -> String {
        self.hosts[number].inside.run(|| Ok(host::read_sysctl(name))).unwrap().unwrap()
    }

    /// Lists the agents and the programs of labs that run on the hosts, by their command lines.
    fn programs(&self) -> Vec<(u32, String)> {
        self.programs_of(&self.hosts)
    }

    fn programs_of(&self, hosts: &[Machine]) -> Vec<(u32, String)> {
        let space = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let of_host = |machine: &Machine| machine.inside.run(|| Ok(space("thread-self"))).unwrap();
        let spaces: Vec<Option<PathBuf>> = hosts.iter().map(of_host).collect();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let is_agent = line.contains("/weir agent --") && !line.starts_with("sh ");
            if (is_agent || line.starts_with("sleep 4242"))
                && spaces.contains(&space(&pid.to_string()))
            {
                found.push((pid, line));
            }
        }
        found
    }

    /// Waits until no program, session, setting or connection of a lab is left.
    fn assert_nothing_is_left(&self) {
        let sessions = || {
            let own = self.hosts.iter().filter_map(|machine| self.agents_of(machine));
            let agents = own.chain([self.agents()]);
            let builds =
                agents.flat_map(|agents| fs::read_dir(agents).into_iter().flatten().flatten());
            let entries = builds.flat_map(|build| fs::read_dir(build.path()).into_iter().flatten());
            let names =
                entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.filter(|name| name != "weir").collect::<Vec<_>>()
        };
        let settings = || {
            let usual = |(name, value): (&'static str, &str)| {
                let values = (0..2).map(move |number| self.setting(number, name));
                values.filter(|found| found != value).collect::<Vec<_>>()
            };
            [(SACK, "1"), (CONGESTION, self.congestion.as_str())].into_iter().flat_map(usual)
        };
        let mut left = String::new();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            left = format!(
                "{:?} {:?} {:?} {:?}",
                self.programs(),
                sessions(),
                settings().collect::<Vec<_>>(),
                self.sandbox.marked()
            );
            if left == "[] [] [] []" {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("left on the hosts: {left}");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for (pid, _) in self.programs() {
            kill(pid);
        }
        for machine in &mut self.hosts {
            if let Some(mut sshd) = machine.sshd.take() {
                kill_tree(sshd.id());
                let _ = sshd.wait();
            }
        }
    }
}

#[test]
fn a_lab_has_the_same_plan_between_machines_and_in_namespaces() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.sandbox.write("lab.toml", lab(QUICK, 2));
    let output = hosts.run(&["--out", "real"]);
    let results = hosts.sandbox.results("real");
    output.assert_measured(&results);
    // Each system's setting must hold while the system is measured, and be restored afterwards.
    for (system, sack) in [("with", 1.0), ("without", 0.0)] {
        let cells = results["cells"].as_array().unwrap();
        let cell = cells.iter().find(|cell| cell["system"] == system).unwrap();
        assert_eq!(cell["metrics"]["own.sack"]["median"], sack, "{cell}");
        assert!(cell["metrics"]["cpu_seconds.server"]["median"].is_number(), "{cell}");
    }
    let environment = &results["environment"];
    assert_eq!(environment["world"], "real machines");
    assert_eq!(environment["hosts"]["server"]["place"], "ssh server");
    assert_eq!(environment["hosts"]["server"]["address"], "10.9.3.2");
    assert!(output.stderr.contains("kernel ") && output.stderr.contains("clock "), "{output:?}");
    hosts.assert_nothing_is_left();
    let output = hosts.run(&["--out", "namespaces", "--namespaces"]);
    output.assert_measured(&hosts.sandbox.results("namespaces"));
    let steps = |run: &str| -> Vec<String> {
        let step = |line: &String| {
            let one: serde_json::Value = serde_json::from_str(line).unwrap();
            format!("{} {} {}", one["system"], one["axes"], one["block"])
        };
        hosts.sandbox.journal(run).iter().map(step).collect()
    };
    assert_eq!(steps("real").len(), 4);
    assert_eq!(steps("real"), steps("namespaces"));
    let lab_of = |run: &str| hosts.sandbox.results(run)["environment"]["lab_sha256"].clone();
    assert_eq!(lab_of("real"), lab_of("namespaces"));
}

#[test]
fn weir_is_copied_once_and_removed_by_clean() {
    let Some(mut hosts) = Hosts::new() else { return };
    hosts.take_copy_from_server();
    hosts.sandbox.write("lab.toml", lab(QUICK, 1));
    let check = || hosts.sandbox.weir(&["lab", "hosts", "check", "lab.toml"]);
    let output = check();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for row in ["place", "kernel", "algorithms", "clock", "ssh server"] {
        assert!(output.stdout.contains(row), "{output:?}");
    }
    let build = fs::read_dir(hosts.agents()).unwrap().next().unwrap().unwrap().path();
    let copied = fs::metadata(build.join("weir")).unwrap().modified().unwrap();
    assert_eq!(check().status.code(), Some(0));
    assert_eq!(fs::metadata(build.join("weir")).unwrap().modified().unwrap(), copied);
    hosts.assert_nothing_is_left();
    let output = hosts.sandbox.weir(&["lab", "hosts", "clean", "lab.toml"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, "client: removed\nserver: removed\n", "{output:?}");
    assert!(!hosts.agents().exists());
}

#[test]
fn clean_removes_weir_from_machines_that_the_command_line_names() {
    let Some(mut hosts) = Hosts::new() else { return };
    hosts.sandbox.write("hosts.ini", "[grid]\nclient\nserver\n");
    let clean = |hosts: &Hosts, words: &[&str]| {
        // The two hosts share the folder for copies of weir.
        hosts.place(|weir, at| std::os::unix::fs::symlink(weir, at).unwrap());
        let words = [&["lab", "hosts", "clean", "--ssh-config", "config"][..], words].concat();
        let output = hosts.sandbox.weir(&words);
        assert!(!hosts.agents().exists(), "{output:?}");
        output
    };
    for words in [&["client", "server"][..], &["--inventory", "hosts.ini", "grid"]] {
        let output = clean(&hosts, words);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(output.stdout, "client: removed\nserver: nothing to remove\n", "{output:?}");
        hosts.assert_nothing_is_left();
    }
    hosts.stop(1);
    let output = clean(&hosts, &["client", "server"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for part in ["not removed from every host", "client: removed", "server: it cannot be reached"] {
        assert!(output.stderr.contains(part), "{part}: {output:?}");
    }
    let refused = [
        (&["lab.toml", "client"][..], "lab.toml is a lab file: name one lab file, or machines"),
        (&["lab.toml"][..], "lab.toml is a lab file: --ssh-config is for machines"),
        (&["--inventory", "hosts.ini", "gird"][..], "did you mean `grid`?"),
        (&["--", "-oProxyCommand=x"][..], "is no destination of ssh"),
    ];
    for (words, reason) in refused {
        let words = [&["lab", "hosts", "clean", "--ssh-config", "config"][..], words].concat();
        let output = hosts.sandbox.weir(&words);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains(reason), "{output:?}");
    }
}

#[test]
fn a_bulk_transfer_runs_between_two_machines() {
    let Some(hosts) = Hosts::new() else { return };
    let text = lab("", 1).replace("kind = \"command\"", "kind = \"bulk\"");
    hosts.sandbox.write(
        "lab.toml",
        text.replace("kind = \"tcp\"", "kind = \"tcp\"\ncongestion = \"cubic\""),
    );
    let metrics = ["goodput_mbit_s", "cpu_percent.server"];
    let (output, results) = hosts.sandbox.measure(&["lab.toml", "--trust"], &metrics);
    output.assert_measured(&results);
    for cell in results["cells"].as_array().unwrap() {
        assert!(cell["metrics"]["goodput_mbit_s"]["median"].as_f64().unwrap() > 1.0, "{cell}");
        assert!(cell["metrics"]["cpu_percent.server"]["median"].as_f64().unwrap() > 0.0, "{cell}");
    }
    assert_eq!(results["environment"]["congestion_control_read_back"]["with"], "cubic");
    hosts.assert_nothing_is_left();
}

#[test]
fn benchmarks_and_downloads_run_between_two_machines() {
    let Some(hosts) = Hosts::new() else { return };
    // Uses Reno, an algorithm that every namespace may choose.
    let short = |text: String| {
        let text = text.replace("kind = \"tcp\"", "kind = \"tcp\"\ncongestion = \"reno\"");
        // On a busy machine the first handshakes of https alone may take 100 ms.
        text.replace("duration = \"1s\"", "duration = \"300ms\"")
    };
    let benchmark = short(lab("test = \"{test}\"", 1)).replace("\"command\"", "\"benchmark\"");
    let tests = ["UDP_STREAM", "TCP_CRR", "lat_pipe", "http_long", "https_short"];
    let benchmark = format!("{benchmark}[axes]\ntest = {tests:?}\n");
    let download = short(lab("size = \"64KiB\"", 1)).replace("\"command\"", "\"download\"");
    let nginx = "scheme = \"https\"\nserver = \"nginx\"\nconnection = \"short\"";
    let nginx = short(lab(nginx, 1)).replace("\"command\"", "\"web\"");
    let mut labs = vec![(benchmark, tests.len() * 2), (download, 2)];
    match ["/usr/sbin/nginx", "/usr/bin/nginx"].iter().any(|place| Path::new(place).exists()) {
        true => labs.push((nginx, 2)),
        false => testing::skip_part(testing::Need::Program("/usr/sbin/nginx")),
    }
    for (text, cells) in labs {
        hosts.sandbox.write("lab.toml", text);
        let (output, results) = hosts.sandbox.measure(&["lab.toml", "--trust"], &[]);
        output.assert_measured(&results);
        assert_eq!(results["cells"].as_array().unwrap().len(), cells);
        for cell in results["cells"].as_array().unwrap() {
            let names = ["goodput_mbit_s", "requests_s", "latency_us.p50", "kbyte_s"];
            let figures = names.map(|name| cell["metrics"][name]["median"].as_f64());
            assert!(figures.iter().flatten().any(|figure| *figure > 0.0), "{cell}");
        }
        // The client and the server are namespaces of this machine, and have the machine's clock.
        let clock = &results["environment"]["clocks_of_turns"]["server"];
        let of = |name: &str| clock[name].as_f64().unwrap();
        assert!(of("ahead_ms_most").abs() <= of("error_ms_most") + 1.0, "{clock}");
        hosts.assert_nothing_is_left();
    }
}

#[test]
fn hosts_that_cannot_be_used_are_named_together_before_anything_is_measured() {
    let Some(mut hosts) = Hosts::new() else { return };
    hosts.sandbox.write("lab.toml", lab(QUICK, 1));
    let refused = |hosts: &Hosts, reason: &str| {
        let output = hosts.run(&["--out", "run"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        for name in ["client: ", "server: "] {
            let line = output.stderr.lines().find(|line| line.starts_with(name));
            assert!(line.is_some_and(|line| line.contains(reason)), "{reason}: {output:?}");
        }
        assert!(!hosts.sandbox.path("run").exists());
        hosts.assert_nothing_is_left();
    };
    // Without BatchMode, ssh would ask for a password.
    hosts.write_client_configuration("host", "other");
    refused(&hosts, "nobody is asked for a password");
    hosts.write_client_configuration("other", "user");
    refused(&hosts, "its host key has changed");
    hosts.write_client_configuration("host", "user");
    hosts.sandbox.write("known", "");
    refused(&hosts, "its host key is not known");
    hosts.write_client_configuration("host", "user");
    let script = |text: &'static str| {
        move |_: &Path, at: &Path| {
            use std::os::unix::fs::PermissionsExt;
            fs::write(at, text).unwrap();
            fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
        }
    };
    hosts.place(script(OTHER_VERSION));
    refused(&hosts, "another weir is there (9.9.9)");
    hosts.place(script("#!/bin/sh\nprintf 'Welcome\\033[2J\\n'\n"));
    refused(&hosts, r"no agent, but `Welcome\x1b[2J`");
    (0..2).for_each(|number| hosts.stop(number));
    refused(&hosts, "it cannot be reached");
}

#[test]
fn a_cut_connection_fails_a_single_turn() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.sandbox.write("lab.toml", changing(lab(&slow(&hosts), 1)));
    for agent_is_killed in [false, true] {
        let _ = fs::remove_file(hosts.sandbox.path("gate"));
        let _ = fs::remove_dir_all(hosts.sandbox.path("run"));
        let running = hosts.sandbox.start(&["lab", "run", "lab.toml", "--trust", "--out", "run"]);
        await_some("a turn", || {
            hosts.programs().iter().any(|(_, line)| line.starts_with("sleep")).then_some(())
        });
        hosts.sandbox.write("gate", "");
        // A child of an agent has the agent's command line until it executes another program.
        let agents = await_some("the two agents alone", || {
            let programs = hosts.programs().into_iter();
            let agents = programs.filter(|(_, line)| line.contains("agent --stdio"));
            let agents: Vec<u32> = agents.map(|(pid, _)| pid).collect();
            (agents.len() == 2).then_some(agents)
        });
        for agent in agents {
            kill(if agent_is_killed { agent } else { parent(agent) });
        }
        let output = running.end();
        let results = hosts.sandbox.results("run");
        output.assert_measured(&results);
        assert_undisturbed(&results, 1);
        let notes = results["notes"].to_string();
        assert!(notes.contains("the connection to a host was lost"), "{notes}");
        hosts.assert_nothing_is_left();
    }
}

#[test]
fn a_run_whose_host_is_gone_is_resumed_when_the_host_is_back() {
    let Some(mut hosts) = Hosts::new() else { return };
    hosts.sandbox.write("lab.toml", changing(lab(&(slow(&hosts) + "\ntimeout = \"2s\""), 3)));
    hosts.sandbox.write("gate", "");
    let running = hosts.sandbox.start(&["lab", "run", "lab.toml", "--trust", "--out", "run"]);
    await_some("a turn", || (!hosts.sandbox.journal("run").is_empty()).then_some(()));
    fs::remove_file(hosts.sandbox.path("gate")).unwrap();
    await_some("a second turn", || {
        hosts.programs().iter().any(|(_, line)| line.starts_with("sleep")).then_some(())
    });
    hosts.stop(1);
    let output = running.end();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        output.stderr.contains("server: ") && output.stderr.contains("--resume run"),
        "{output:?}"
    );
    hosts.sandbox.write("gate", "");
    hosts.start(1);
    hosts.assert_nothing_is_left();
    let output = hosts.sandbox.weir(&["lab", "run", "--resume", "run", "--trust"]);
    output.assert_measured(&hosts.sandbox.results("run"));
    assert_undisturbed(&hosts.sandbox.results("run"), 3);
    assert_eq!(hosts.sandbox.journal("run").len(), 6);
    hosts.assert_nothing_is_left();
}

#[test]
fn a_controller_that_is_killed_leaves_nothing_on_the_hosts_and_its_run_is_resumed() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.sandbox.write("lab.toml", changing(lab(&slow(&hosts), 1)));
    for signal in ["KILL", "INT"] {
        let _ = fs::remove_file(hosts.sandbox.path("gate"));
        let running = hosts.sandbox.start(&["lab", "run", "lab.toml", "--trust", "--out", signal]);
        await_some("a turn", || {
            let sleeps = hosts.programs().iter().any(|(_, line)| line.starts_with("sleep"));
            sleeps.then_some(())
        });
        running.signal(signal);
        let output = running.end();
        assert!(!output.status.success(), "{output:?}");
        hosts.assert_nothing_is_left();
        hosts.sandbox.write("gate", "");
        let output = hosts.sandbox.weir(&["lab", "run", "--resume", signal, "--trust"]);
        let results = hosts.sandbox.results(signal);
        output.assert_measured(&results);
        assert_undisturbed(&results, 1);
    }
    hosts.assert_nothing_is_left();
}

#[test]
fn a_lab_in_virtual_time_runs_on_many_machines_and_survives_the_loss_of_one() {
    let Some(mut hosts) = Hosts::new() else { return };
    let grid = "name = \"grid\"\nhosts = [\"a\", \"b\"]\n[axes]\nloss = [\"0%\", \"1%\"]\n\
                [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"10mbit\"\nrtt = \"5ms\"\nloss = \"{loss}\"\n\
                [workload]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n\
                [[system]]\nname = \"cubic\"\nkind = \"tcp\"\ncongestion = \"cubic\"\n\
                [form.full]\nrepeats = 2\nduration = \"2s\"\n";
    hosts.sandbox.write("grid.toml", grid);
    let words = ["sim", "run", "./grid.toml", "--out"];
    let whole = hosts.sandbox.weir(&[&words[..], &["whole"]].concat());
    assert!(whole.status.success(), "{whole:?}");
    let spread = ["--ssh-config", "config", "--hosts", "client,server"];
    let hash = |run: &str| hosts.sandbox.results(run)["environment"]["result_hash"].clone();
    let output = hosts.sandbox.weir(&[&words[..], &["spread"], &spread].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(hash("spread"), hash("whole"));
    assert!(!hosts.sandbox.path("spread-parts").exists());
    hosts.assert_nothing_is_left();
    hosts.stop(1);
    let output = hosts.sandbox.weir(&[&words[..], &["one"], &spread].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.contains("server: it cannot be reached"), "{output:?}");
    let hash = |run: &str| hosts.sandbox.results(run)["environment"]["result_hash"].clone();
    assert_eq!(hash("one"), hash("whole"));
    hosts.stop(0);
    let output = hosts.sandbox.weir(&[&words[..], &["none"], &spread].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!hosts.sandbox.path("none-parts").exists());
    hosts.assert_nothing_is_left();
}

#[test]
fn an_interrupted_check_of_hosts_leaves_nothing() {
    let Some(sandbox) = Sandbox::new() else { return };
    if !testing::is_installed("ssh") {
        testing::skip(testing::Need::Program("ssh"));
        return;
    }
    sandbox.write("config", "Host *\n ProxyCommand sleep 4242\n");
    sandbox.write("lab.toml", lab(QUICK, 1));
    for words in
        [&["lab", "hosts", "check"][..], &["lab", "hosts", "clean"], &["lab", "run", "--trust"]]
    {
        let running = sandbox.start(&[words, &["lab.toml"]].concat());
        await_some("a proxy", || (!sandbox.running(&["sleep", "4242"]).is_empty()).then_some(()));
        running.signal("INT");
        let output = running.end();
        assert!(!output.status.success(), "{output:?}");
        assert!(output.stderr.contains("interrupted"), "{output:?}");
        assert_eq!(sandbox.leftovers(), [""; 0], "{words:?}");
    }
}

#[test]
fn this_machine_may_be_a_host_without_ssh() {
    let Some(sandbox) = Sandbox::new() else { return };
    let here = |text: String, name: &str, number: u8| {
        let ssh = format!("ssh = \"{name}\"\nconfig = \"config\"\naddress = \"10.9.3.{number}\"");
        text.replace(&ssh, "here = true\naddress = \"127.0.0.1\"")
    };
    let text = here(here(lab(QUICK, 1), "client", 1), "server", 2);
    sandbox.write("lab.toml", text);
    let output = sandbox.weir(&["lab", "run", "lab.toml", "--trust", "--out", "run"]);
    let results = sandbox.results("run");
    output.assert_measured(&results);
    assert_eq!(results["environment"]["hosts"]["client"]["place"], "this machine");
    assert!(results["notes"].to_string().contains("client and server are one machine"));
    let check = sandbox.weir(&["lab", "hosts", "check", "lab.toml"]);
    assert!(check.stdout.contains("note: client and server are one machine"), "{check:?}");
    let sack = sandbox.inside(|| host::read_sysctl(SACK));
    assert_eq!(sack.as_deref(), Some("1"));
    assert_eq!(sandbox.leftovers(), [""; 0]);
}

#[test]
fn a_disturbance_is_refused_between_machines() {
    let Some(sandbox) = Sandbox::new() else { return };
    let table = "[disturbance]\nstolen = \"5ms every 100ms\"\n[workload]";
    sandbox.write("lab.toml", lab(QUICK, 1).replace("[workload]", table));
    let reason = "`[disturbance]` delays the emulator and takes CPU time away on this machine only";
    let commands =
        [(&["validate"][..], 0), (&["hosts", "check"][..], 2), (&["run", "--trust"][..], 2)];
    for (words, status) in commands {
        let output = sandbox.weir(&[&["lab"][..], words, &["lab.toml"]].concat());
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let line = output.stderr.lines().find(|line| line.contains(reason));
        assert!(line.is_some_and(|line| line.contains("add --namespaces")), "{output:?}");
    }
}

#[test]
fn an_emulated_link_is_refused_between_machines() {
    let Some(sandbox) = Sandbox::new() else { return };
    let text = lab(QUICK, 1).replace("direct = true", "rate = \"10mbit\"");
    sandbox.write("lab.toml", &text);
    let validated = sandbox.weir(&["lab", "validate", "lab.toml"]);
    assert_eq!(validated.status.code(), Some(0), "{validated:?}");
    assert!(validated.stderr.contains("`rate` emulates a link"), "{validated:?}");
    let output = sandbox.weir(&["lab", "run", "lab.toml", "--trust"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("`rate` emulates a link"), "{output:?}");
    assert!(output.stderr.contains("--namespaces"), "{output:?}");
    let output = sandbox.weir(&["lab", "run", "lab.toml"]);
    assert!(output.stderr.contains("host (client): ssh client"), "{output:?}");
    assert!(output.stderr.contains("net.ipv4.tcp_sack = 0"), "{output:?}");
    let half = text.replace("[host.server]\nssh = \"server\"", "[host.server]\n#");
    sandbox.write("lab.toml", half.replace("config = \"config\"\naddress = \"10.9.3.2\"", ""));
    let output = sandbox.weir(&["lab", "validate", "lab.toml"]);
    assert!(output.stderr.contains("`server` is a namespace"), "{output:?}");
}

/// Checks that the run has the table of an undisturbed run: each system's setting was in force in
/// all its repeats, and no other setting was.
fn assert_undisturbed(results: &serde_json::Value, repeats: u32) {
    for (system, sack) in [("with", 1.0), ("without", 0.0)] {
        let cells = results["cells"].as_array().unwrap();
        let cell = cells.iter().find(|cell| cell["system"] == system).unwrap();
        let figure = &cell["metrics"]["own.sack"];
        assert_eq!(figure["median"], sack, "{cell}");
        for spread in [&figure["ci95"], &figure["range"]] {
            assert!(spread.is_null() || *spread == serde_json::json!([sack, sack]), "{cell}");
        }
        assert_eq!(figure["n"], repeats, "{cell}");
    }
}

/// Returns the line of a lab file with a client that sleeps unless the file `gate` exists.
fn slow(hosts: &Hosts) -> String {
    let gate = hosts.sandbox.path("gate");
    let sack = "metrics.sack = { pattern = \"(number)\" }";
    let show = "cat /proc/sys/net/ipv4/tcp_sack";
    format!("client = \"sh -c 'test -e {} || sleep 4242; {show}'\"\n{sack}", gate.display())
}

/// Lets the second system change the congestion control of both hosts, too. Every namespace may
/// choose Reno.
fn changing(lab: String) -> String {
    lab.replace("sysctl = {", "congestion = \"reno\"\nsysctl = {")
}

fn sha256(path: &Path) -> String {
    let sum = Command::new("sha256sum").arg(path).output().unwrap().stdout;
    String::from_utf8(sum).unwrap().split(' ').next().unwrap().to_owned()
}

fn keygen(path: &Path) {
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
    assert!(keygen.status().unwrap().success());
}

fn add(namespace: &Namespace, interface: &str, ip: [u8; 4]) {
    let address = Address { ip: Ipv4Addr::from(ip).into(), prefix: 24 };
    host::add_address(namespace, interface, address).unwrap();
}

fn kill(pid: u32) {
    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Kills sshd and its sessions, but not the programs that run in the sessions.
fn kill_tree(pid: u32) {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if !name.starts_with("sshd") {
        return;
    }
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    for child in children.unwrap_or_default().split_whitespace() {
        kill_tree(child.parse().unwrap());
    }
    kill(pid);
}

/// Returns the parent of a process: for an agent, the sshd process of its session.
fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit_once(')').unwrap().1;
    rest.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Time limit for the end of a lab's programs and connections. A shared connection of ssh ends ten
/// seconds after its controller was killed.
const PATIENCE: Duration = Duration::from_secs(60);
const SACK: &str = "net.ipv4.tcp_sack";
const CONGESTION: &str = "net.ipv4.tcp_congestion_control";
const QUICK: &str = "client = \"cat /proc/sys/net/ipv4/tcp_sack\"\nserver = \"sh -c 'echo up; exec sleep 4242'\"\n\
                     ready = \"log up\"\nmetrics.sack = { pattern = \"(number)\" }";
const OTHER_VERSION: &str = r#"#!/usr/bin/env python3
import json, struct, sys
answer = json.dumps({"hello": {"protocol": 4, "version": "9.9.9", "sha256": "0", "weir": "/weir"}}).encode()
sys.stdout.buffer.write(b"weir-agent\n" + struct.pack(">I", len(answer)) + answer)
sys.stdout.buffer.flush()
sys.stdin.read()
"#;

fn lab(workload: &str, repeats: u32) -> String {
    format!(
        "name = \"real\"\nhosts = [\"client\", \"server\"]\n\
         [host.client]\nssh = \"client\"\nconfig = \"config\"\naddress = \"10.9.3.1\"\n\
         [host.server]\nssh = \"server\"\nconfig = \"config\"\naddress = \"10.9.3.2\"\n\
         [[link]]\nbetween = [\"client\", \"server\"]\ndirect = true\n\
         [workload]\nkind = \"command\"\nfrom = \"client\"\nto = \"server\"\n{workload}\n\
         [[system]]\nname = \"with\"\nkind = \"tcp\"\n\
         [[system]]\nname = \"without\"\nkind = \"tcp\"\nsysctl = {{ \"{SACK}\" = \"0\" }}\n\
         [form.full]\nrepeats = {repeats}\nduration = \"1s\"\n"
    )
}
