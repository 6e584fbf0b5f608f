use crate::caqm::Caqm;
use crate::{Bbr, Bbr3, CongestionControl, Cubic, Dctcp, Path, Reno, Tcpa};
use std::fmt;
use std::str::FromStr;

/// Declares [`Algorithm`] with each algorithm's name, its hosts and its constructor.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $variant:ident $name:literal $hosts:ident $make:expr;)*) => {
        /// The algorithms by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Algorithm { $($(#[$doc])* $variant,)* }

        impl Algorithm {
            /// Every algorithm, in the order of the variants.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the name that users write, for example `cubic`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Whether tunnels offer the algorithm. Tunnels offer algorithms that work on any path
            /// and that the tunnel's tests cover. The simulator offers all algorithms.
            pub fn is_for_tunnels(self) -> bool {
                match self { $(Self::$variant => Hosts::$hosts == Hosts::All,)* }
            }

            /// Starts the algorithm for a new connection on `path`.
            pub fn start(self, path: &Path) -> Box<dyn CongestionControl> {
                match self { $(Self::$variant => Box::new($make(path)),)* }
            }
        }
    };
}

algorithms! {
    /// CUBIC as Linux ships it.
    Cubic "cubic" All Cubic::new;
    /// Reno as in RFC 5681 and RFC 6582.
    Reno "reno" Simulator Reno::new;
    /// BBR version 1, as Linux ships it.
    Bbr "bbr" All Bbr::new;
    /// BBR version 3, after draft-ietf-ccwg-bbr.
    Bbr3 "bbr3" Simulator Bbr3::new;
    /// Weir's own algorithm, whose C core also runs in the kernel.
    Tcpa "tcpa" All Tcpa::new;
    /// DCTCP (RFC 8257); needs a bottleneck that sets ECN marks.
    Dctcp "dctcp" Simulator Dctcp::new;
    /// Sends requests to the ports on the path; Reno if host, peer or path do not support CAQM.
    Caqm "caqm" Simulator Caqm::new;
    /// Linux's CUBIC on a host that paces, as with the queueing discipline `fq`.
    CubicPaced "cubic-paced" Simulator Cubic::paced;
    /// CUBIC exactly as in RFC 9438, with HyStart++.
    CubicRfc9438 "cubic-rfc9438" Simulator Cubic::rfc9438;
}

impl Algorithm {
    /// The tunnel's congestion control if the user names none.
    pub const TUNNEL_DEFAULT: Self = Self::Tcpa;

    /// Whether an end offers CAQM in its handshake: the algorithm sends requests if the peer and a
    /// port on the path accept; [`Path::caqm`] then has the settings.
    pub fn offers_caqm(self) -> bool {
        self == Self::Caqm
    }

    /// Returns the congestion controls of the kernel that behave most like this algorithm, best
    /// first.
    pub fn in_kernel(self) -> &'static [&'static str] {
        match self {
            Self::Tcpa => &["tcpa", "bbr"],
            Self::Cubic => &["cubic"],
            Self::Bbr => &["bbr"],
            _ => &[],
        }
    }

    /// Starts CUBIC with the reduction factor `beta` instead of 0.7, and any other algorithm
    /// unchanged. The simulator's validation must detect a wrong factor.
    #[doc(hidden)]
    pub fn start_with_beta(self, path: &Path, beta: f64) -> Box<dyn CongestionControl> {
        match self {
            Self::Cubic => Box::new(Cubic::new(path).with_beta(beta)),
            Self::CubicRfc9438 => Box::new(Cubic::rfc9438(path).with_beta(beta)),
            _ => self.start(path),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hosts {
    All,
    Simulator,
}

/// The error for an unknown algorithm; the value is the name that the user wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAlgorithm(pub String);

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.iter().find(|algorithm| algorithm.name() == name);
        known.copied().ok_or_else(|| UnknownAlgorithm(name.to_owned()))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
        write!(f, "no algorithm is called '{}': there are {}", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownAlgorithm {}
