//! OpenSSH's own program, with the user's configuration, keys and known hosts.
//!
//! `BatchMode` keeps ssh from asking anything. All sessions of a host share a connection
//! (`ControlMaster`).

use super::capture::Capture;
use super::session::controller_of;
use crate::model::file::HostSpec;
use crate::model::{Cancel, Failure};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The ssh destination of one host, and its connection.
#[derive(Debug, Clone)]
pub(super) struct Ssh {
    name: String,
    destination: String,
    config: Option<String>,
    key: Option<String>,
    /// The jump host of an inventory.
    jump: Option<String>,
    /// Whether the agent becomes root by sudo.
    sudo: bool,
    /// The socket of the connection that all sessions share.
    control: PathBuf,
    cancel: Cancel,
}

impl Ssh {
    /// Builds the ssh access of a host. `folder` holds the socket. `None` for a host without ssh.
    pub(super) fn of(
        name: &str,
        spec: &HostSpec,
        number: usize,
        folder: &Path,
        cancel: &Cancel,
    ) -> Option<Self> {
        let destination = spec.ssh.as_ref()?.get_ref().clone();
        let config = spec.config.as_ref().map(|config| config.get_ref().clone());
        let control = folder.join(number.to_string());
        let (name, key, cancel) = (name.to_owned(), spec.key.clone(), cancel.clone());
        let (jump, sudo) = (spec.jump.clone(), spec.uses_sudo());
        Some(Self { name, destination, config, key, jump, sudo, control, cancel })
    }

    /// Copies the agent's program to the host, unless the host has a copy.
    pub(super) fn install(&self, weir: &Path, sha256: &str) -> Result<(), Failure> {
        let found = self.run(&script(sha256, PROBE), None, PROBE_WITHIN)?;
        let mut lines = found.lines().rev().map(str::trim);
        let state = lines.next().unwrap_or_default();
        let machine = lines.next().unwrap_or_default();
        let own = format!("Linux {}", std::env::consts::ARCH);
        if !["present", "absent"].contains(&state) {
            return Err(self.failure(&format!(
                "it did not run the command that looks for weir there, and answered `{}`: a lab needs a login with a \
                 shell",
                units::foreign(state)
            )));
        }
        if machine != own {
            return Err(self.failure(&format!(
                "it is `{}`, and this weir is built for `{own}`: run the lab from a machine of the host's kind",
                units::foreign(machine)
            )));
        }
        if state == "present" {
            return Ok(());
        }
        let wrong = |error: std::io::Error| Failure::io("reading this program itself", &error);
        let file = File::open(weir).map_err(wrong)?;
        let size = file.metadata().map_err(wrong)?.len();
        let copied = self.run(&script(sha256, &copy(size)), Some(file), COPY_WITHIN)?;
        let last = copied.trim_end().lines().last().unwrap_or_default();
        if last.ends_with("copied") {
            return Ok(());
        }
        let full = last.strip_prefix("full ").and_then(|rest| rest.split_once(' '));
        Err(self.failure(&match full {
            Some((free, folder)) => no_room(size, free, folder),
            None => "weir could not be copied there: is its disk full?".to_owned(),
        }))
    }

    /// Builds the command that starts the agent and has the agent's standard streams.
    pub(super) fn agent(&self, sha256: &str) -> Command {
        let run = RUN.replace("CONTROLLER", &controller_of(&self.control));
        self.command(&script(sha256, &self.by_sudo(&run)))
    }

    /// Removes every agent's program from the host.
    pub(super) fn clean(&self) -> Result<String, Failure> {
        self.run(&script("", &self.by_sudo(CLEAN)), None, PROBE_WITHIN)
    }

    /// Whether the agent becomes root by sudo.
    pub(super) fn uses_sudo(&self) -> bool {
        self.sudo
    }

    /// Replaces the word `SUDO` before the agent's program.
    fn by_sudo(&self, script: &str) -> String {
        script.replace("SUDO ", if self.sudo { "sudo -n " } else { "" })
    }

    /// Returns the address that the configuration of ssh names for this host.
    pub(super) fn host_name(&self) -> Option<String> {
        let mut command = Command::new(SSH);
        command.arg("-G").args(self.config.iter().flat_map(|config| ["-F", config.as_str()]));
        let output = command.arg("--").arg(&self.destination).stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find_map(|line| line.strip_prefix("hostname ").map(str::to_owned))
    }

    /// Ends the shared connection.
    pub(super) fn close(&self) {
        let mut command = self.base();
        command.args(["-O", "exit", "--"]).arg(&self.destination);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return };
        let deadline = Instant::now() + CLOSE_WITHIN;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn base(&self) -> Command {
        let mut command = Command::new(SSH);
        command.args(["-T", "-x", "-a"]);
        for option in OPTIONS {
            command.args(["-o", option]);
        }
        command.arg("-o").arg(format!("ControlPath={}", self.control.display()));
        // BatchMode does not reach the ssh to a jump host, which would ask at the terminal.
        command.env("SSH_ASKPASS", "/bin/false").env("SSH_ASKPASS_REQUIRE", "force");
        command.args(self.key.iter().flat_map(|key| ["-i", key.as_str()]));
        if let Some(jump) = &self.jump {
            command.arg("-o").arg(format!("ProxyJump={jump}"));
        }
        command.args(self.config.iter().flat_map(|config| ["-F", config.as_str()]));
        command
    }

    fn command(&self, script: &str) -> Command {
        let mut command = self.base();
        // Any login shell takes a word in single quotes.
        command.arg("--").arg(&self.destination).arg(format!("exec sh -c '{script}'"));
        command
    }

    /// Runs a short command on the host and returns its output.
    fn run(
        &self,
        script: &str,
        stdin: Option<File>,
        patience: Duration,
    ) -> Result<String, Failure> {
        let wrong = |error: std::io::Error| Failure::io("starting ssh", &error);
        let (out, stdout) = Capture::new().map_err(wrong)?;
        let (err, stderr) = Capture::new().map_err(wrong)?;
        let mut command = self.command(script);
        command.stdin(stdin.map_or_else(Stdio::null, Stdio::from)).stdout(stdout).stderr(stderr);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let spawned = command.spawn();
        drop(command);
        let mut child = spawned.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                self.failure("`ssh` is not installed here: install it (openssh-client)")
            }
            _ => wrong(error),
        })?;
        let deadline = Instant::now() + patience;
        let status = loop {
            match child.try_wait().map_err(wrong)? {
                Some(status) => break status,
                None if self.cancel.is_cancelled() => {
                    end_group(&mut child);
                    return Err(Failure::Interrupted);
                }
                None if Instant::now() > deadline => {
                    end_group(&mut child);
                    let text = format!("it did not answer within {} s", patience.as_secs());
                    return Err(self.failure(&text));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        // A shared connection that stays open also keeps the error output open, so wait for the
        // error output only after a failure.
        out.await_end(LAST_LOOKS);
        if status.success() {
            return Ok(out.so_far().text);
        }
        err.await_end(LAST_LOOKS);
        let words = err.so_far();
        Err(self.failure(&advice(&words.text).unwrap_or_else(|| match words.last_lines(3) {
            lines if !lines.is_empty() => lines,
            // A login without a shell prints the reason to its standard output.
            _ => match out.so_far().last_lines(3) {
                said if said.is_empty() => format!("ssh ended with {status}"),
                said => format!("ssh ended with {status}: {said}"),
            },
        })))
    }

    fn failure(&self, reason: &str) -> Failure {
        Failure::HostLost { host: self.name.clone(), reason: reason.to_owned() }
    }
}

/// Ends a program that has a process group of its own, and the group: a `ProxyCommand` of ssh
/// survives ssh.
pub(super) fn end_group(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
    let _ = child.kill();
    let _ = child.wait();
}

/// Returns the cause in ssh's last line of errors, with a remedy.
pub(super) fn advice(words: &str) -> Option<String> {
    let last = words.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    let last = units::foreign(last).to_string();
    let advice = if words.contains("IDENTIFICATION HAS CHANGED") {
        "its host key has changed: somebody may be in between; if the host was set up anew, remove the old key with \
         ssh-keygen -R and connect once by hand"
    } else if words.contains("Host key verification failed") {
        "its host key is not known: connect once by hand with ssh, and compare the key"
    } else if words.contains("Too many authentication failures") {
        "its sshd refused the keys that ssh offered before the right key: name the right key in ssh's configuration, with \
         IdentityFile and IdentitiesOnly"
    } else if words.contains("kex_exchange_identification") {
        "its sshd closed the connection before the login: look into the log of sshd there, for example for MaxStartups or a \
         ban of this machine's address"
    } else if words.contains("sudo") && SUDO_REFUSED.iter().any(|sign| words.contains(sign)) {
        "sudo there lets the login become root only with a password or not at all, and Weir gives no password: add \
         `LOGIN ALL=(root) NOPASSWD: ALL` to a file of /etc/sudoers.d there with visudo, log in as root, or remove `sudo`"
    } else if words.contains("sudo: not found") || words.contains("sudo: command not found") {
        "sudo is not installed there: install sudo, log in as root, or remove `sudo`"
    } else if words.contains("Permission denied (") {
        "ssh was refused, and nobody is asked for a password (BatchMode): give the host your key with ssh-copy-id, or \
         add the key to ssh-agent"
    } else if words.contains("Cannot execute command-line and remote command") {
        "ssh's configuration has a RemoteCommand for it: give the host another entry without RemoteCommand"
    } else if words.contains("error while loading shared libraries") || lacks_a_library(words) {
        "weir needs a library that the host lacks: install the library there, or run the lab with the static build of weir"
    } else if words.contains("/weir: ") && words.contains("Permission denied") {
        "weir may not be executed there, perhaps because the file system of ~/.cache is mounted with noexec: set \
         XDG_CACHE_HOME for its logins to a folder of another file system"
    } else if words.contains("No space left on device") || words.contains("Disk quota exceeded") {
        "its disk, or the quota of the login, is full: make room there, remove copies of weir with weir lab hosts clean, or \
         set XDG_CACHE_HOME for its logins to a folder of another file system"
    } else if words.contains("too long for Unix domain socket")
        || words.contains("ControlPath too long")
    {
        "the path of ssh's socket is too long: set TMPDIR on this machine to a folder with a shorter path"
    } else if UNREACHABLE.iter().any(|sign| words.contains(sign)) {
        "it cannot be reached: check the host's name, its address and that sshd runs there"
    } else {
        return None;
    };
    Some(format!("{advice} ({last})"))
}

/// Whether the host's loader, or its C library, is not the one that weir needs.
fn lacks_a_library(words: &str) -> bool {
    let absent = ["not found", "No such file or directory"];
    words.contains("/weir: ") && absent.iter().any(|sign| words.contains(sign))
}

/// Builds the body of the script that copies a program of `size` bytes.
fn copy(size: u64) -> String {
    COPY.replace("SIZE", &size.to_string()).replace("KIB", &(size / 1024 + 1).to_string())
}

/// Says how much room the copy of weir needs. `free`: the free KiB of the host's file system.
fn no_room(size: u64, free: &str, folder: &str) -> String {
    let free = free.parse::<u64>().unwrap_or_default().saturating_mul(1024);
    format!(
        "weir needs {} MB in {} there, and {} MB are free: make room there, remove copies of other builds with weir lab \
         hosts clean, or set XDG_CACHE_HOME for its logins to a folder of another file system",
        size.div_ceil(1_000_000),
        units::foreign(folder),
        free / 1_000_000
    )
}

/// Builds a script for `sh -c` in single quotes, on one line: csh changes a text in any other
/// quotes. `$d` is the folder of this build.
fn script(sha256: &str, body: &str) -> String {
    let cache = "${XDG_CACHE_HOME:-$HOME/.cache}/weir/agents";
    let script = format!("umask 077; all=\"{cache}\"; d=\"$all/{sha256}\"; {body}");
    debug_assert!(!script.contains(['\'', '\n', '!']), "{script}");
    script
}

const SSH: &str = "ssh";
const OPTIONS: [&str; 6] = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ControlMaster=auto",
    // The shared connection ends soon after the controller was killed.
    "ControlPersist=10",
    "ClearAllForwardings=yes",
    "LogLevel=ERROR",
];
const PROBE: &str =
    "echo; uname -sm; if [ -x \"$d/weir\" ]; then echo present; else echo absent; fi";
/// Copies the program. If the disk has too little room, first removes copies of other builds that
/// no agent uses. The last line of the output is `copied`, or `full` with the free KiB and the
/// folder.
const COPY: &str = "free() { set -- $(df -Pk \"$d\" 2>/dev/null | tail -n 1); echo \"${4:-unknown}\"; }; \
                    mkdir -p \"$d\" || exit 1; p=\"$d/part-$$\"; \
                    if [ \"$(free)\" -lt KIB ] 2>/dev/null; then for o in \"$all\"/*/; do [ \"$o\" = \"$d/\" ] || \
                    ls -d \"$o\"session-* >/dev/null 2>&1 || rm -rf \"$o\"; done; fi; \
                    if cat > \"$p\" && [ $(wc -c < \"$p\") -eq SIZE ] && chmod 700 \"$p\" && mv -f \"$p\" \"$d/weir\"; \
                    then echo copied; else rm -f \"$p\"; \
                    if [ \"$(free)\" -lt KIB ] 2>/dev/null; then echo \"full $(free) $d\"; else exit 1; fi; fi";
const RUN: &str = "exec SUDO \"$d/weir\" agent --stdio --folder \"$d\" --controller CONTROLLER";
const CLEAN: &str = "for w in \"$all\"/*/weir; do [ -x \"$w\" ] && SUDO \"$w\" agent --tidy --folder \"${w%/weir}\"; done; \
                     if ls -d \"$all\"/*/session-* >/dev/null 2>&1; then echo busy; \
                     elif [ -d \"$all\" ]; then rm -rf \"$all\" || exit 1; rmdir \"${all%/agents}\" 2>/dev/null; echo removed; \
                     else echo nothing; fi";
const UNREACHABLE: [&str; 6] = [
    "Connection refused",
    "Connection timed out",
    "timed out",
    "No route to host",
    "Could not resolve",
    "Network is unreachable",
];
/// Parts of sudo's errors.
const SUDO_REFUSED: [&str; 6] = [
    "a password is required",
    "a terminal is required",
    "must have a tty",
    "is not in the sudoers file",
    "may not run sudo",
    "is not allowed to execute",
];
const PROBE_WITHIN: Duration = Duration::from_secs(30);
const COPY_WITHIN: Duration = Duration::from_secs(900);
const LAST_LOOKS: u32 = 2_000;
/// The timeout for closing a shared connection, whose process may hang.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ssh_errors_give_advice() {
        let of = |words: &str| advice(words).unwrap_or_default();
        assert!(of("root@h: Permission denied (publickey,password).").contains("ssh-copy-id"));
        assert!(of("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nx\nHost key verification failed.")
            .contains("ssh-keygen -R"));
        assert!(
            of("No ED25519 host key is known for h.\nHost key verification failed.")
                .contains("not known")
        );
        assert!(
            of("ssh: connect to host h port 22: Connection refused").contains("sshd runs there")
        );
        assert!(
            of("Received disconnect from h port 22:2: Too many authentication failures")
                .contains("IdentitiesOnly")
        );
        assert!(
            of("kex_exchange_identification: Connection closed by remote host")
                .contains("before the login")
        );
        let noexec = "sh: 1: exec: /home/u/.cache/weir/agents/ab/weir: Permission denied";
        assert!(of(noexec).contains("XDG_CACHE_HOME"));
        for lacking in [
            "/c/agents/ab/weir: error while loading shared libraries: libz.so.1: cannot open",
            "/c/agents/ab/weir: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /c/agents/ab/weir)",
            "sh: 1: exec: /c/agents/ab/weir: not found",
        ] {
            assert!(of(lacking).contains("the static build of weir"), "{lacking}");
        }
        assert!(
            of("Cannot execute command-line and remote command.")
                .contains("another entry without RemoteCommand")
        );
        let long = "unix_listener: path \"/tmp/x\" too long for Unix domain socket";
        assert!(of(long).contains("TMPDIR"));
        for refused in [
            "sudo: a password is required",
            "tester is not in the sudoers file.\nThis incident has been reported to the sudo administrator.",
        ] {
            assert!(of(refused).contains("NOPASSWD"), "{refused}");
        }
        assert!(of("sh: 1: exec: sudo: not found").contains("install sudo"));
        assert_eq!(advice("cat: (x): Permission denied"), None);
        assert_eq!(advice("something \x1b[2J else"), None);
        assert!(of("ssh: Could not resolve hostname \x1b[2J").contains(r"\x1b[2J"));
    }

    #[test]
    fn a_truncated_agent_copy_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(&program, "0123456789").unwrap();
        let run = |size: u64, cache: &Path| {
            let script = script("abc", &copy(size));
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).env("XDG_CACHE_HOME", cache);
            shell.stdin(File::open(&program).unwrap()).stderr(Stdio::null());
            shell.output().unwrap()
        };
        let full = folder.path().join("full");
        let at = full.join("weir/agents/abc");
        assert!(!run(11, &full).status.success());
        assert_eq!(std::fs::read_dir(&at).unwrap().count(), 0);
        assert!(run(10, &full).status.success());
        assert_eq!(std::fs::read_to_string(at.join("weir")).unwrap(), "0123456789");
        // A file cannot contain a folder, so the copy must fail.
        assert!(!run(10, &program).status.success());
    }

    #[test]
    fn a_copy_to_a_full_disk_removes_unused_builds_and_tells_the_free_space() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let programs = folder.path().join("programs");
        std::fs::create_dir(&programs).unwrap();
        let full = "#!/bin/sh\necho head\necho /dev/x 100 100 0 100% /\n";
        for (name, text) in [("df", full), ("cat", "#!/bin/sh\nexit 1\n")] {
            let at = programs.join(name);
            std::fs::write(&at, text).unwrap();
            std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let all = folder.path().join("weir/agents");
        for inner in ["old", "used/session-1"] {
            std::fs::create_dir_all(all.join(inner)).unwrap();
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell.args(["-c", &script("abc", &copy(10))]).env("XDG_CACHE_HOME", folder.path());
        shell.env("PATH", format!("{}:{path}", programs.display())).stdin(Stdio::null());
        let output = shell.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said, format!("full 0 {}\n", all.join("abc").display()));
        assert!(!all.join("old").exists() && all.join("used/session-1").exists());
        assert_eq!(std::fs::read_dir(all.join("abc")).unwrap().count(), 0);
        let text = no_room(40_000_001, "2048", "/c/\x1b");
        assert!(
            text.starts_with(r"weir needs 41 MB in /c/\x1b there, and 2 MB are free"),
            "{text}"
        );
    }

    #[test]
    fn ssh_scripts_avoid_characters_that_login_shells_change() {
        let copy = copy(1);
        for body in [PROBE, &copy, RUN, CLEAN] {
            let script = script("abc", &body.replace("SUDO ", "sudo -n "));
            assert!(!script.contains(['\'', '\n', '!']), "{script}");
            let check = Command::new("sh").args(["-n", "-c", &script]).status().unwrap();
            assert!(check.success(), "{script}");
        }
    }
}
