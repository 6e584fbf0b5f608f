use std::io;
use std::path::PathBuf;

/// Why connections could not be accelerated. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccelError {
    #[error("{doing} needs root (CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN): run it as root")]
    NotPermitted { doing: &'static str },
    #[error("this kernel has no {feature}, which {doing} needs: {advice}")]
    NotSupported { feature: &'static str, doing: &'static str, advice: &'static str },
    #[error("the kernel did not take {what}: {source}{}", details(log))]
    Refused {
        what: &'static str,
        /// What libbpf and the verifier said, if anything.
        log: String,
        source: libbpf_rs::Error,
    },
    #[error("{doing} {}: {source}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
}

fn details(log: &str) -> String {
    match log {
        "" => String::new(),
        log => format!("\n{}", log.trim_end()),
    }
}
