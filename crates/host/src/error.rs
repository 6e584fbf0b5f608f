use std::io;
use std::path::PathBuf;

/// The reason why a host could not be built. Each message also gives advice.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(
        "{doing} needs privileges that are missing here: run as root, or allow unprivileged user \
         namespaces (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, \
         user.max_user_namespaces)"
    )]
    NotPermitted { doing: String },
    #[error("no network namespace is called `{name}`: `ip netns list` lists the existing ones")]
    NoSuchNamespace { name: String },
    #[error(
        "no interface is called `{name}` in namespace {namespace}: `ip link` there lists the existing ones"
    )]
    NoSuchInterface { name: String, namespace: String },
    #[error("`{program}` is not installed, or not in PATH: install it, or name it with its path")]
    NoSuchProgram { program: String },
    #[error("this kernel has no {feature}, which {doing} needs: {advice}")]
    NotSupported { feature: &'static str, doing: String, advice: &'static str },
    #[error(
        "sysctl {name} cannot be set to `{value}` in this namespace: {source}; check its name and value"
    )]
    Sysctl { name: String, value: String, source: io::Error },
    #[error(
        "sysctl {name} was set to `{wanted}` but the kernel keeps `{found}`: use a value that the kernel accepts"
    )]
    SysctlIgnored { name: String, wanted: String, found: String },
    #[error("{path} {found}: {advice}")]
    NotPrivate { path: PathBuf, found: String, advice: String },
    #[error(
        "process {pid}, which listens there, belongs to user {uid}: only processes of this user and of root are \
         asked. Run the command as that user"
    )]
    ForeignProcess { pid: i32, uid: u32 },
    #[error(
        "process {pid}, which listened there, has ended, and another process holds its socket: stop \
         that process (ss -xlp names it), or remove the socket's file"
    )]
    ProcessGone { pid: i32 },
    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },
}

impl HostError {
    pub(crate) fn io(doing: impl Into<String>, source: impl Into<io::Error>) -> Self {
        let (doing, source) = (doing.into(), source.into());
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted { doing },
            _ => Self::Io { doing, source },
        }
    }
}
