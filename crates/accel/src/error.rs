use crate::cgroup;
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why connections could not be accelerated. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccelError {
    #[error("{doing} needs root (CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN): run it as root")]
    NotPermitted { doing: &'static str },
    #[error("this kernel has no {feature}, which {doing} needs: {advice}")]
    NotSupported { feature: &'static str, doing: &'static str, advice: &'static str },
    #[error(
        "the kernel refused {what}: {source}; please report it with `uname -r`{}",
        details(log)
    )]
    Refused {
        what: &'static str,
        /// Output of libbpf and the verifier, if any.
        log: String,
        source: libbpf_rs::Error,
    },
    #[error(
        "a congestion control called {name} is registered already, and not by weir accel: remove it first \
         (`bpftool struct_ops list` shows it; a module of that name goes with rmmod)"
    )]
    NameTaken { name: &'static str },
    #[error(
        "no congestion control called {name} is registered: run `weir accel enable {name}` first"
    )]
    NotRegistered { name: &'static str },
    #[error(
        "this kernel has no congestion control `{name}`{hint}, and no module for it: choose from {known}"
    )]
    NoSuchAlgorithm { name: String, known: String, hint: String },
    #[error(
        "the kernel did not load the congestion control {name}: {source}; run `modprobe tcp_{name}` on the \
         host, outside of any container, and then run this command again"
    )]
    NoModule { name: String, source: io::Error },
    #[error(
        "{name} cannot be changed in this network namespace: the initial namespace has it for all; set it there, \
         with `sysctl`, and leave it out here"
    )]
    OfInitialNamespace { name: String },
    #[error("{0}")]
    Usage(String),
    #[error("there is no control group `{}` below {}: name one that exists", name.display(), mount.display())]
    NoSuchCgroup { name: PathBuf, mount: PathBuf },
    #[error("there is no Ethernet interface `{name}` ({known}): name one with --interface")]
    NoSuchInterface { name: String, known: String },
    #[error(
        "this network namespace has no Ethernet interface: name one of another namespace with --interface"
    )]
    NoInterface,
    #[error("the kernel did not list its interfaces: {source}; run the command again")]
    Interfaces { source: io::Error },
    #[error(
        "the kernel refused the programs for tags at {name}: {source}; name other interfaces with --interface"
    )]
    Attach { name: String, source: io::Error },
    #[error("{name} cannot have that value: {advice}")]
    Tunable { name: &'static str, advice: Cow<'static, str> },
    #[error("the policy has {count} rules, and {most} are allowed: join some")]
    TooManyRules { count: usize, most: usize },
    #[error(
        "rule {later} never decides: rule {earlier} before it decides every connection that it matches; \
         move it before that rule or remove it"
    )]
    HiddenRule { earlier: usize, later: usize },
    #[error(
        "there is no BPF file system at {}, which keeps the algorithm after this command ends: \
         mount -t bpf -o mode=0700 bpf {}{}",
        path.display(), path.display(), also_missing()
    )]
    NoBpfFiles { path: PathBuf },
    #[error(
        "another mount of /sys hides {what} here, as in `ip netns exec`, and weir accel {effect}: enter the \
         namespace with nsenter, which keeps the mounts, as in `nsenter --net={} weir accel status`",
        namespace.display()
    )]
    HiddenMount { what: &'static str, effect: &'static str, namespace: PathBuf },
    #[error(
        "{} is not safe to use as root, because {problem}: `chown root:root {} && chmod {mode} {}`",
        path.display(), path.display(), path.display()
    )]
    Exposed { path: PathBuf, problem: String, mode: &'static str },
    #[error(
        "{} is not of weir accel, because {problem}: examine the file, then remove or rename it",
        path.display()
    )]
    NotOurs { path: PathBuf, problem: String },
    #[error("{} has held {} for 10 s: wait for its end, or end it", holder_text(holder), path.display())]
    Busy { path: PathBuf, holder: Option<u32> },
    #[error(
        "another version of weir is installed: `weir accel disable` removes it, and enable or \
         policy install this version; open connections are not disturbed"
    )]
    OtherVersion,
    #[error("cannot read {}: {source}; name another file", path.display())]
    NoPolicy { path: PathBuf, source: io::Error },
    #[error("{}:{line}: {problem}", path.display())]
    Policy { path: PathBuf, line: usize, problem: String },
    #[error(
        "settings of another network namespace are still changed (/run/weir-accel.json names them): \
         `weir accel disable` puts them back"
    )]
    OtherNamespace,
    #[error(
        "{} does not hold the earlier settings as it should ({problem}): remove it; changed settings \
         keep their current values",
        path.display()
    )]
    NoJournal { path: PathBuf, problem: String },
    #[error(
        "this kernel, or this network namespace, has no setting {name}: leave it out of the policy"
    )]
    NoSetting { name: String },
    #[error("{name} was set to `{wanted}` but the kernel keeps `{found}`: choose a value it takes")]
    NotKept { name: String, wanted: String, found: String },
    #[error("the kernel's list of connections ended early ({source}): run the command again")]
    OpenConnections { source: io::Error },
    #[error(
        "{failure}\nnot everything could be put back as it was: {back}; `weir accel status` shows what is in \
         force, `weir accel disable` ends all of it"
    )]
    NotPutBack { failure: Box<Self>, back: Box<Self> },
    #[error(transparent)]
    Host(#[from] host::HostError),
    #[error(transparent)]
    Probe(#[from] probe::ProbeError),
    #[error("{doing} {}: {source}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
}

/// Returns advice about control groups, which a machine without the BPF file system often lacks,
/// too; empty if control groups are mounted.
fn also_missing() -> String {
    match cgroup::mount() {
        Ok(_) => String::new(),
        Err(AccelError::HiddenMount { namespace, .. }) => format!(
            "; another mount of /sys, as in `ip netns exec`, hides the control groups of version 2 too: run both \
             commands in `nsenter --net={}`",
            namespace.display()
        ),
        Err(_) => "; control groups of version 2 are not mounted either: mount -t cgroup2 none \
                   /sys/fs/cgroup"
            .to_owned(),
    }
}

impl AccelError {
    pub(crate) fn file(doing: &'static str, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
                Self::NotPermitted { doing: "weir accel" }
            }
            _ => Self::File { doing, path: path.to_owned(), source },
        }
    }

    /// Adds to this error the failure of an attempt to restore the earlier state.
    pub(crate) fn after(self, put_back: Result<(), Self>) -> Self {
        match put_back {
            Ok(()) => self,
            Err(back) => Self::NotPutBack { failure: Box::new(self), back: Box::new(back) },
        }
    }

    /// Adds the text that the user wrote, if the error has another name for the setting.
    pub(crate) fn about(self, asked: &str, own: &str) -> Self {
        match self {
            Self::Tunable { name, advice } if asked != own => {
                Self::Usage(format!("`{asked}`: {name} cannot have that value: {advice}"))
            }
            other => other,
        }
    }

    /// Whether the request itself is invalid, on any machine.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            Self::Usage(_)
                | Self::NoSuchAlgorithm { .. }
                | Self::NoPolicy { .. }
                | Self::Policy { .. }
                | Self::NoSuchCgroup { .. }
                | Self::NoSuchInterface { .. }
                | Self::NoInterface
                | Self::Tunable { .. }
                | Self::TooManyRules { .. }
                | Self::HiddenRule { .. }
        )
    }
}

fn holder_text(holder: &Option<u32>) -> String {
    holder.map_or_else(|| "another command".to_owned(), |pid| format!("process {pid}"))
}

/// Extracts the end of the verifier's log: the log lists the whole verified path, and ends with the
/// reason for the refusal.
fn details(log: &str) -> String {
    let lines: Vec<_> = log.lines().filter(|line| !line.starts_with("--")).collect();
    let last = &lines[lines.len().saturating_sub(6)..];
    last.iter().map(|line| format!("\n  {line}")).collect()
}
