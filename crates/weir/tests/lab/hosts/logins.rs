//! Logins of hosts that print texts of their own, that run no command, or that lead to a machine of
//! another kind, and ports of hosts that another program uses.

use super::*;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

/// A login shell that prints before it runs the command.
const CHATTY: &str = "#!/bin/sh\necho 'Welcome: 3 updates are due'\n\
                      echo 'the mail timed out' >&2\nexec /bin/sh \"$@\"\n";

impl Hosts {
    /// Gives the logins of a host a shell, and restarts the sshd of the host.
    fn give_shell(&mut self, number: usize, text: &str) {
        let shell = self.sandbox.path("shell");
        fs::write(&shell, text).unwrap();
        fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
        let (shell, passwd) = (shell.display(), self.sandbox.path("passwd"));
        let passwd = passwd.display();
        let prepare = format!(
            "sed 's,^\\(root:.*:\\)[^:]*$,\\1{shell},' /etc/passwd > {passwd}\n\
             mount --bind {passwd} /etc/passwd"
        );
        self.stop(number);
        self.hosts[number].prepare = prepare;
        self.start(number);
    }

    /// Leaves a single host without a copy of weir, so that a small disk has room for the copy: the
    /// client gets a folder of its own with a link to the program, and the server an empty folder.
    pub(super) fn take_copy_from_server(&mut self) {
        self.stop(0);
        let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
        let cache = self.sandbox.path("cache-client");
        let folder = cache.join("weir/agents").join(sha256(weir));
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(weir, folder.join("weir")).unwrap();
        self.hosts[0].cache = cache;
        self.start(0);
        fs::remove_dir_all(self.cache()).unwrap();
    }
}

#[test]
fn a_lab_runs_over_a_login_that_prints() {
    let Some(mut hosts) = Hosts::new() else { return };
    hosts.give_shell(1, CHATTY);
    // The login prints its text before the output of the machine's check, of the copy and of the
    // agent.
    hosts.take_copy_from_server();
    hosts.sandbox.write("lab.toml", lab(QUICK, 1));
    let output = hosts.run(&["--out", "run"]);
    output.assert_measured(&hosts.sandbox.results("run"));
    hosts.assert_nothing_is_left();
    let output = hosts.sandbox.weir(&["lab", "hosts", "clean", "lab.toml"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!hosts.agents().exists());
}

#[test]
fn a_login_that_runs_no_agent_is_refused_with_its_text() {
    let Some(mut hosts) = Hosts::new() else { return };
    hosts.sandbox.write("lab.toml", lab(QUICK, 1));
    let folder = hosts.sandbox.path("kinds");
    fs::create_dir(&folder).unwrap();
    let uname = folder.join("uname");
    fs::write(&uname, "#!/bin/sh\necho Linux sparc64\n").unwrap();
    fs::set_permissions(&uname, fs::Permissions::from_mode(0o755)).unwrap();
    let other =
        format!("#!/bin/sh\nexport PATH=\"{}:$PATH\"\nexec /bin/sh \"$@\"\n", folder.display());
    for (shell, reason) in [
        (
            "#!/bin/sh\necho 'This account is not available.'\nexit 1\n",
            "This account is not available.",
        ),
        ("#!/bin/sh\necho 'Only transfers of files.'\n", "answered `Only transfers of files.`"),
        (other.as_str(), "it is `Linux sparc64`, and this weir is built for `Linux "),
    ] {
        hosts.give_shell(1, shell);
        let output = hosts.run(&["--out", "run"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let line = output.stderr.lines().find(|line| line.starts_with("server: "));
        assert!(line.is_some_and(|line| line.contains(reason)), "{reason}: {output:?}");
        assert!(!hosts.sandbox.path("run").exists());
        hosts.assert_nothing_is_left();
    }
}

#[test]
fn an_agent_becomes_root_by_sudo_without_a_password_or_the_host_is_refused() {
    let Some(mut hosts) = Hosts::new() else { return };
    let text = lab(QUICK, 1).replace("ssh = \"server\"", "ssh = \"server\"\nsudo = true");
    hosts.sandbox.write("lab.toml", text);
    let folder = hosts.sandbox.path("programs");
    fs::create_dir(&folder).unwrap();
    let sudo = folder.join("sudo");
    let shell =
        format!("#!/bin/sh\nexport PATH=\"{}:$PATH\"\nexec /bin/sh \"$@\"\n", folder.display());
    let set_sudo = |text: &str| {
        fs::write(&sudo, text).unwrap();
        fs::set_permissions(&sudo, fs::Permissions::from_mode(0o755)).unwrap();
    };
    set_sudo("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n");
    hosts.give_shell(1, &shell);
    let output = hosts.run(&["--out", "refused"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let line = output.stderr.lines().find(|line| line.starts_with("server: "));
    assert!(line.is_some_and(|line| line.contains("NOPASSWD: ALL")), "{output:?}");
    assert!(!hosts.sandbox.path("refused").exists());
    hosts.assert_nothing_is_left();

    set_sudo("#!/bin/sh\n[ \"$1\" = -n ] || exit 9\nshift\nexec \"$@\"\n");
    let output = hosts.run(&["--out", "run"]);
    output.assert_measured(&hosts.sandbox.results("run"));
    assert!(output.stderr.contains("root by sudo"), "{output:?}");
    hosts.assert_nothing_is_left();
}

#[test]
fn a_lab_runs_through_a_jump_host_that_ssh_or_an_inventory_names() {
    let Some(hosts) = Hosts::with_middle() else { return };
    // The middle reaches the server's sshd over the cable between them.
    let middle = &hosts.hosts[2].inside;
    add(middle, "right", [10, 9, 3, 9]);
    let to = Address { ip: Ipv4Addr::new(10, 9, 2, 2).into(), prefix: 32 };
    let gateway = Ipv4Addr::new(10, 9, 3, 2).into();
    host::add_route(middle, host::Route { to, gateway }).unwrap();
    let config = |jump: &str| {
        format!(
            "Host client\n HostName 10.9.1.2\nHost server\n HostName 10.9.2.2\n{jump}\
             Host middle\n HostName 10.9.4.2\n\
             Host *\n User root\n IdentityFile {}\n IdentitiesOnly yes\n UserKnownHostsFile {}\n \
             StrictHostKeyChecking yes\n",
            hosts.sandbox.path("user").display(),
            hosts.sandbox.path("known").display(),
        )
    };
    let logins_over_middle = || {
        let log = fs::read_to_string(hosts.sandbox.path("log-server")).unwrap();
        log.lines().filter(|line| line.contains(" from 10.9.3.9 port ")).count()
    };
    hosts.sandbox.write("config", config(" ProxyJump middle\n"));
    hosts.sandbox.write("lab.toml", lab(QUICK, 1));
    let output = hosts.run(&["--out", "configured"]);
    output.assert_measured(&hosts.sandbox.results("configured"));
    let configured = logins_over_middle();
    assert!(configured > 0, "{output:?}");
    hosts.assert_nothing_is_left();

    hosts.sandbox.write("config", config(""));
    hosts.sandbox.write("hosts.ini", "server ansible_ssh_common_args='-J middle'\n");
    let clean = ["lab", "hosts", "clean", "--ssh-config", "config", "--inventory", "hosts.ini"];
    let output = hosts.sandbox.weir(&[&clean[..], &["server"]].concat());
    assert_eq!(output.stdout, "server: removed\n", "{output:?}");
    assert!(logins_over_middle() > configured, "{output:?}");
    hosts.assert_nothing_is_left();
}

#[test]
fn a_port_that_another_program_uses_is_refused_only_if_the_server_needs_the_port() {
    let Some(hosts) = Hosts::new() else { return };
    let listen = |number: usize, port: u16| {
        let listen = || Ok(TcpListener::bind(("0.0.0.0", port)));
        hosts.hosts[number].inside.run(listen).unwrap().unwrap()
    };
    let workload = "client = \"cat /proc/sys/net/ipv4/tcp_sack\"\n\
                    server = \"{weir} perf server --port 8000\"\nready = \"port 8000\"\n\
                    metrics.sack = { pattern = \"(number)\" }";
    hosts.sandbox.write("lab.toml", lab(workload, 1));
    let _others = [listen(0, 8000), listen(1, 5201)];
    let output = hosts.run(&["--out", "run"]);
    output.assert_measured(&hosts.sandbox.results("run"));
    hosts.assert_nothing_is_left();

    let _other = listen(1, 8000);
    let output = hosts.run(&["--out", "taken"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let reason = "server: another program listens on port 8000 there: end that program";
    assert!(output.stderr.contains(reason), "{output:?}");
    assert!(!hosts.sandbox.path("taken").exists());

    // The lab learns the port of a cell only in the cell's turn.
    let text = lab(&workload.replace("\"port 8000\"", "\"port {at}\""), 1);
    hosts.sandbox.write("lab.toml", text + "[axes]\nat = [\"8000\"]\n");
    let output = hosts.run(&["--out", "cell"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let failed = hosts.sandbox.results("cell")["cells"].to_string();
    assert!(failed.contains("server: another program listens on port 8000"), "{failed}");
    hosts.assert_nothing_is_left();
}
