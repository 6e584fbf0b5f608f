use std::io;

#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error(
        "no permission for {what}: run as root, give the program CAP_NET_RAW and CAP_NET_ADMIN, or \
         use namespaces of an own user namespace"
    )]
    PermissionDenied { what: String },
    #[error("there is no interface {name:?}{}", nearest.as_ref().map_or_else(String::new, units::suggestion))]
    NoSuchInterface { name: String, nearest: Option<String> },
    #[error(
        "interface {name:?} is down or gone: bring it up with `ip link set {name} up`, and if {name} has no carrier, bring up its peer too"
    )]
    InterfaceDown { name: String },
    #[error("this kernel has no {feature}: load its module, or boot a kernel that has it")]
    NotSupported { feature: &'static str },
    /// `place`: the name of an interface, or the path of a socket.
    #[error("{place}: {problem}")]
    Refused { place: String, problem: String },
    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },
}

impl PortError {
    /// Maps a system call's error to the variants that a caller can handle.
    pub(crate) fn from_io(doing: impl Into<String>, source: io::Error) -> Self {
        let doing = doing.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::PermissionDenied { what: doing },
            _ => Self::Io { doing, source },
        }
    }
}
