//! The kernel's own congestion controls.

use crate::algorithm::NAME;
use crate::system::read_sysctl;
use crate::{AccelError, caqm};
use rustix::net::{AddressFamily, SocketType, ipproto, socket, sockopt};
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// A congestion control of the running kernel, or of one of its modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelAlgorithm(String);

impl KernelAlgorithm {
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Loads the module, unless the kernel has the algorithm already.
    pub fn load(&self) -> Result<(), AccelError> {
        if is_available(&self.0) {
            return Ok(());
        }
        // The kernel loads tcp_NAME for a socket of root (tcp_ca_find_autoload() of
        // net/ipv4/tcp_cong.c). A BPF program cannot make the kernel load a module.
        let chosen = socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP))
            .and_then(|socket| sockopt::set_tcp_congestion(&socket, &self.0));
        match chosen {
            Ok(()) => Ok(()),
            Err(_) if !rustix::process::geteuid().is_root() => {
                Err(AccelError::NotPermitted { doing: "loading a congestion control" })
            }
            Err(source) => {
                Err(AccelError::NoModule { name: self.0.clone(), source: source.into() })
            }
        }
    }

    /// Returns the algorithm that a rule in the kernel names. The algorithm may have been unloaded
    /// since then.
    pub(crate) fn in_force(name: &str) -> Option<Self> {
        (!name.is_empty() && name != NAME).then(|| Self(name.to_owned()))
    }
}

impl FromStr for KernelAlgorithm {
    type Err = AccelError;

    /// Accepts the name of an algorithm that the kernel or one of its modules provides.
    fn from_str(name: &str) -> Result<Self, AccelError> {
        if name == NOT_FOR_PROGRAMS {
            return Err(AccelError::Usage(format!(
                "the kernel lets no rule choose {NOT_FOR_PROGRAMS}: set it for the network namespace, with \
                 sysctl net.ipv4.tcp_congestion_control={NOT_FOR_PROGRAMS}"
            )));
        }
        let is_own = [NAME, caqm::NAME].contains(&name);
        if !is_own && is_well_formed(name) && (is_available(name) || has_module(name)) {
            return Ok(Self(name.to_owned()));
        }
        let mut known = available();
        known.retain(|other| ![NAME, caqm::NAME].contains(&other.as_str()));
        known.extend([NAME, caqm::NAME].map(str::to_owned));
        Err(AccelError::NoSuchAlgorithm {
            name: name.to_owned(),
            known: known.join(", "),
            hint: units::did_you_mean(name, known.iter().map(String::as_str)),
        })
    }
}

impl fmt::Display for KernelAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The bytes of an algorithm's name with its final zero: TCP_CA_NAME_MAX of include/net/tcp.h.
pub(crate) const NAME_ROOM: usize = 16;

fn is_well_formed(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (1..NAME_ROOM).contains(&name.len()) && name.chars().all(plain)
}

fn available() -> Vec<String> {
    let names = read_sysctl("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    names.split(' ').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn is_available(name: &str) -> bool {
    available().iter().any(|other| other == name)
}

fn has_module(name: &str) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let list = Path::new("/lib/modules").join(release).join("modules.dep");
    let file = format!("/tcp_{name}.ko");
    let has = |line: &str| line.split(':').next().is_some_and(|path| path.contains(&file));
    fs::read_to_string(list).is_ok_and(|list| list.lines().any(has))
}

/// The algorithm that bpf_setsockopt() refuses (net/core/filter.c), because CDG keeps a pointer in
/// its state.
const NOT_FOR_PROGRAMS: &str = "cdg";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_algorithm_is_refused_with_the_known_algorithms() {
        assert_eq!("reno".parse::<KernelAlgorithm>().unwrap().name(), "reno");
        assert!("reno".parse::<KernelAlgorithm>().unwrap().load().is_ok());
        for name in ["", "no-such-one", "../../etc", "a_name_that_is_too_long", "tcpa", "caqm"] {
            let error = name.parse::<KernelAlgorithm>().unwrap_err().to_string();
            assert!(error.contains("reno") && error.contains("tcpa, caqm"), "{name}: {error}");
        }
        let error = "rneo".parse::<KernelAlgorithm>().unwrap_err().to_string();
        assert!(error.contains("(did you mean `reno`?)"), "{error}");
    }
}
