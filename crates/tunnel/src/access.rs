//! Decides which targets an identity may reach, and on which addresses this end may listen for the
//! identity. Refuses every target and address that no rule covers.
//!
//! This end looks up a name once, checks the resolved address, and dials exactly that address. A
//! name that resolves differently the second time therefore gives an attacker no access. Some
//! addresses refer to this machine or its provider: its own addresses, loopback, link-local and a
//! cloud's metadata (see [`special`]). Only a rule that lists such an address covers the address; a
//! rule for a name or a wide prefix does not.

mod lookups;
mod own;
mod resolve;
mod rule;
pub mod special;

#[cfg(test)]
mod properties;

pub use lookups::{Bounded, LOOKUPS, LOOKUPS_EACH, Lookups};
pub(crate) use resolve::look_up;
pub use resolve::{BoxFuture, Resolve, SystemResolver};
pub use rule::{Ports, Reach, Rule, RuleError};

use crate::identity::PeerName;
use crate::target::Target;
use rule::MayCover;
use special::Special;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The rights of every identity. Without any rights, every request is refused. Clones share their
/// refusal counters.
#[derive(Debug, Clone, Default)]
pub struct Access {
    rights: HashMap<PeerName, Rights>,
    refused: Arc<[AtomicU64; Refusal::REASONS.len()]>,
}

/// The rights of one identity.
#[derive(Debug, Clone, Default)]
pub struct Rights {
    /// Targets that this end may dial for the identity.
    pub dial: Vec<Rule>,
    /// Whether this end looks up names that no rule lists, if a prefix rule covers the port. This
    /// end then checks the resolved addresses.
    pub resolve_names: bool,
    /// Whether this end dials every target except clouds' metadata services. Only
    /// [`crate::quic_tun`] sets this field, when its user gives the flag
    /// [`crate::quic_tun::settings::INSECURE`].
    pub everything: bool,
    /// Addresses on which this end may listen for the identity.
    pub listen: Vec<Rule>,
}

/// An approved destination or listening address. Only this module creates values of this type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted(Destination);

/// The approved addresses, at least one. This end tries the addresses in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    Tcp(Vec<SocketAddr>),
    Udp(Vec<SocketAddr>),
    Unix(PathBuf),
    /// A service that a client offers by this name.
    Service(String),
}

#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("{peer} is not a configured peer")]
    UnknownPeer { peer: PeerName },
    #[error(
        "no rule of {peer} allows {target}: add the target at the server (--allow, or `allow` of {peer})"
    )]
    NotListed { peer: PeerName, target: Target },
    #[error(
        "no rule of {peer} lists the name in {target}, and prefixes cover addresses alone: ask for an address, \
         or have the server list the name or set `resolve-names`"
    )]
    NameNotListed { peer: PeerName, target: Target },
    #[error("{target} is {address}, {special}: a rule of {peer} must list that address itself")]
    Special { peer: PeerName, target: Target, address: IpAddr, special: Special },
    #[error(
        "no rule of {peer} lets it listen on {target}: add the listener at the server (--allow-reverse, or \
         `reverse` of {peer})"
    )]
    ListenNotListed { peer: PeerName, target: Target },
    #[error("{target} cannot be listened on: name an address instead of a host name")]
    ListenByName { target: Target },
    #[error("the name in {target} cannot be looked up: {source}")]
    Lookup { target: Target, source: io::Error },
    #[error("the name in {target} has no address")]
    NoAddress { target: Target },
}

impl Access {
    pub fn new(rights: impl IntoIterator<Item = (PeerName, Rights)>) -> Self {
        Self { rights: rights.into_iter().collect(), refused: Arc::default() }
    }

    /// Returns these rights with the refusal counters of `others`, which these rights replace.
    pub fn in_place_of(mut self, others: &Self) -> Self {
        self.refused = Arc::clone(&others.refused);
        self
    }

    /// Returns the number of refusals by [`Refusal::reason`].
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.refused.iter().map(|count| count.load(Ordering::Relaxed));
        Refusal::REASONS.into_iter().zip(counts)
    }

    pub fn rights(&self, peer: &PeerName) -> Option<&Rights> {
        self.rights.get(peer)
    }

    /// Checks whether this identity may reach the target, and at which addresses. Calls the
    /// resolver at most once, and never for a target that no rule could allow.
    pub async fn admit(
        &self,
        peer: &PeerName,
        target: &Target,
        resolver: &dyn Resolve,
    ) -> Result<Admitted, Refusal> {
        self.counted(self.looked_up(peer, target, resolver).await)
    }

    /// Checks a target whose name the caller has already resolved. Neither looks up a name nor
    /// waits.
    pub fn admit_resolved(
        &self,
        peer: &PeerName,
        target: &Target,
        resolved: &[IpAddr],
    ) -> Result<Admitted, Refusal> {
        self.counted(self.check(peer, target, resolved))
    }

    fn check(
        &self,
        peer: &PeerName,
        target: &Target,
        resolved: &[IpAddr],
    ) -> Result<Admitted, Refusal> {
        let rights = self.of(peer)?;
        let not_listed = || Refusal::NotListed { peer: peer.clone(), target: target.clone() };
        let (host, destination): (_, fn(_) -> _) = match target {
            Target::Tcp(host) => (host, Destination::Tcp),
            Target::Udp(host) => (host, Destination::Udp),
            Target::Unix(path) => {
                let listed = rights.dial.iter().any(|rule| rule.covers_path(path));
                return (listed || rights.everything)
                    .then(|| Admitted(Destination::Unix(path.clone())))
                    .ok_or_else(not_listed);
            }
            Target::Service(name) => {
                let listed = rights.dial.iter().any(|rule| rule.covers_service(name));
                return listed
                    .then(|| Admitted(Destination::Service(name.clone())))
                    .ok_or_else(not_listed);
            }
        };
        if host.port() == 0 {
            return Err(not_listed());
        }
        let mut refusal = None;
        let mut admitted = Vec::new();
        for address in resolved.iter().map(IpAddr::to_canonical) {
            // Query the kernel at most once, and only if some rule could match.
            let judged = OnceCell::new();
            let special = || *judged.get_or_init(|| special::of_target(address));
            let verdict = rights.dial.iter().map(|rule| rule.covers(target, address, &special));
            let verdict = verdict.max().unwrap_or_default();
            let verdict = match verdict {
                Reach::Covered => verdict,
                _ if rights.everything => everything(address),
                _ => verdict,
            };
            match verdict {
                Reach::Covered => admitted.push(SocketAddr::new(address, host.port())),
                Reach::NotExplicitly(special) => {
                    refusal = Some(Refusal::Special {
                        peer: peer.clone(),
                        target: target.clone(),
                        address,
                        special,
                    });
                }
                Reach::Elsewhere => {}
            }
        }
        if admitted.is_empty() {
            return Err(refusal.unwrap_or_else(not_listed));
        }
        Ok(Admitted(destination(admitted)))
    }

    /// Checks whether this end may listen on the target for this identity. Port 0, which means any
    /// free port, requires a rule for all ports.
    pub fn admit_listen(&self, peer: &PeerName, target: &Target) -> Result<Admitted, Refusal> {
        self.counted(self.listening(peer, target))
    }

    async fn looked_up(
        &self,
        peer: &PeerName,
        target: &Target,
        resolver: &dyn Resolve,
    ) -> Result<Admitted, Refusal> {
        let rights = self.of(peer)?;
        let may_cover = rights.dial.iter().map(|rule| rule.may_cover(target)).max();
        match may_cover.unwrap_or_default() {
            MayCover::Yes => {}
            _ if rights.everything => {}
            MayCover::ByAddress if rights.resolve_names => {}
            MayCover::ByAddress => {
                let (peer, target) = (peer.clone(), target.clone());
                return Err(Refusal::NameNotListed { peer, target });
            }
            MayCover::No => {
                let (peer, target) = (peer.clone(), target.clone());
                return Err(Refusal::NotListed { peer, target });
            }
        }
        let resolved = resolved(target, resolver).await?;
        self.check(peer, target, &resolved)
    }

    fn listening(&self, peer: &PeerName, target: &Target) -> Result<Admitted, Refusal> {
        let rights = self.of(peer)?;
        let refused = || Refusal::ListenNotListed { peer: peer.clone(), target: target.clone() };
        let (host, destination): (_, fn(_) -> _) = match target {
            Target::Tcp(host) => (host, Destination::Tcp),
            Target::Udp(host) => (host, Destination::Udp),
            Target::Unix(path) => {
                let listed = rights.listen.iter().any(|rule| rule.covers_path(path));
                return listed
                    .then(|| Admitted(Destination::Unix(path.clone())))
                    .ok_or_else(refused);
            }
            Target::Service(name) => {
                let listed = rights.listen.iter().any(|rule| rule.covers_service(name));
                return listed
                    .then(|| Admitted(Destination::Service(name.clone())))
                    .ok_or_else(refused);
            }
        };
        let address: IpAddr =
            host.host().parse().map_err(|_| Refusal::ListenByName { target: target.clone() })?;
        let address = address.to_canonical();
        // For listening, the machine's own addresses need no explicit rule: this end can listen on
        // no other addresses.
        let special = || special::special(address);
        match rights.listen.iter().map(|rule| rule.covers(target, address, &special)).max() {
            Some(Reach::Covered) => {
                Ok(Admitted(destination(vec![SocketAddr::new(address, host.port())])))
            }
            _ => Err(refused()),
        }
    }

    fn counted(&self, verdict: Result<Admitted, Refusal>) -> Result<Admitted, Refusal> {
        if let Err(refusal) = &verdict {
            let reason = refusal.reason();
            let at = Refusal::REASONS.into_iter().position(|one| one == reason);
            if let Some(count) = at.and_then(|at| self.refused.get(at)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        verdict
    }

    fn of(&self, peer: &PeerName) -> Result<&Rights, Refusal> {
        self.rights.get(peer).ok_or_else(|| Refusal::UnknownPeer { peer: peer.clone() })
    }
}

impl Admitted {
    /// Approves a target that this end's own file names: a client's target of a reverse tunnel. The
    /// other end cannot choose this target.
    pub async fn by_own_file(target: &Target, resolver: &dyn Resolve) -> Result<Self, Refusal> {
        let addresses = resolved(target, resolver).await?;
        let at =
            |port: u16| addresses.iter().map(|address| SocketAddr::new(*address, port)).collect();
        Ok(Self(match target {
            Target::Tcp(host) => Destination::Tcp(at(host.port())),
            Target::Udp(host) => Destination::Udp(at(host.port())),
            Target::Unix(path) => Destination::Unix(path.clone()),
            Target::Service(name) => Destination::Service(name.clone()),
        }))
    }

    pub fn destination(&self) -> &Destination {
        &self.0
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        match &self.0 {
            Destination::Tcp(addresses) | Destination::Udp(addresses) => addresses,
            Destination::Unix(_) | Destination::Service(_) => &[],
        }
    }

    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Destination::Unix(path) => Some(path),
            _ => None,
        }
    }
}

impl Refusal {
    /// Returns the reason as a label value for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownPeer { .. } => "unknown-peer",
            Self::NotListed { .. } => "not-listed",
            Self::NameNotListed { .. } => "name-not-listed",
            Self::Special { .. } => "special-address",
            Self::ListenNotListed { .. } => "listen-not-listed",
            Self::ListenByName { .. } => "listen-by-name",
            Self::Lookup { source, .. } => match source.kind() {
                io::ErrorKind::QuotaExceeded => "lookup-over-quota",
                io::ErrorKind::TimedOut => "lookup-timed-out",
                _ => "lookup-failed",
            },
            Self::NoAddress { .. } => "no-address",
        }
    }

    pub const REASONS: [&str; 10] = [
        "unknown-peer",
        "not-listed",
        "name-not-listed",
        "special-address",
        "listen-not-listed",
        "listen-by-name",
        "lookup-over-quota",
        "lookup-timed-out",
        "lookup-failed",
        "no-address",
    ];
}

/// Whether a server with [`Rights::everything`] dials the address. Even such a server does not dial
/// a metadata service, which gives secrets to any client. Such a server does not dial a translated
/// address either, because the address could lead to a metadata service.
fn everything(address: IpAddr) -> Reach {
    match special::special(address) {
        Some(special @ (Special::Metadata | Special::Translated)) => Reach::NotExplicitly(special),
        _ => Reach::Covered,
    }
}

/// Resolves a target's name. Returns no address for a path.
async fn resolved(target: &Target, resolver: &dyn Resolve) -> Result<Vec<IpAddr>, Refusal> {
    let (Target::Tcp(host) | Target::Udp(host)) = target else { return Ok(Vec::new()) };
    if let Ok(address) = host.host().parse::<IpAddr>() {
        return Ok(vec![address.to_canonical()]);
    }
    let found = resolver.resolve(host.host()).await;
    let found = found.map_err(|source| Refusal::Lookup { target: target.clone(), source })?;
    if found.is_empty() {
        return Err(Refusal::NoAddress { target: target.clone() });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_their_reason() {
        let access = Access::default();
        let (peer, target): (PeerName, Target) = ("a".parse().unwrap(), "tcp:b:1".parse().unwrap());
        access.admit_listen(&peer, &target).unwrap_err();
        access.clone().admit_resolved(&peer, &target, &[]).unwrap_err();
        assert!(access.refused().any(|counted| counted == ("unknown-peer", 2)));
        let lookup = |error: io::ErrorKind| Refusal::Lookup {
            target: "tcp:b:1".parse().unwrap(),
            source: error.into(),
        };
        for refusal in [
            Refusal::UnknownPeer { peer: peer.clone() },
            Refusal::NotListed { peer: peer.clone(), target: target.clone() },
            Refusal::Special {
                peer: peer.clone(),
                target: target.clone(),
                address: [127, 0, 0, 1].into(),
                special: Special::Loopback,
            },
            Refusal::ListenNotListed { peer, target: target.clone() },
            Refusal::ListenByName { target: target.clone() },
            Refusal::NameNotListed { peer: "a".parse().unwrap(), target: target.clone() },
            lookup(io::ErrorKind::NotFound),
            lookup(io::ErrorKind::TimedOut),
            lookup(io::ErrorKind::QuotaExceeded),
            Refusal::NoAddress { target },
        ] {
            assert!(Refusal::REASONS.contains(&refusal.reason()), "{refusal}");
        }
    }

    #[test]
    fn even_an_open_server_refuses_metadata_services() {
        let peer: PeerName = "a".parse().unwrap();
        let open = Rights { everything: true, ..Rights::default() };
        let access = Access::new([(peer.clone(), open)]);
        for (target, address, good) in [
            ("tcp:127.0.0.1:5201", "127.0.0.1", true),
            ("tcp:db.internal:5432", "10.0.0.1", true),
            ("tcp:rebound.example:80", "169.254.169.254", false),
            ("tcp:rebound.example:80", "::ffff:169.254.169.254", false),
            ("tcp:rebound.example:80", "64:ff9b::a9fe:a9fe", false),
            ("udp:10.0.0.1:53", "10.0.0.1", true),
            ("tcp:10.0.0.1:0", "10.0.0.1", false),
        ] {
            let target = target.parse().unwrap();
            let verdict = access.admit_resolved(&peer, &target, &[address.parse().unwrap()]);
            assert_eq!(verdict.is_ok(), good, "{target} {address} {verdict:?}");
        }
        access.admit_resolved(&peer, &"unix:/run/a".parse().unwrap(), &[]).unwrap();
        access.admit_listen(&peer, &"tcp:127.0.0.1:80".parse().unwrap()).unwrap_err();
    }

    #[tokio::test]
    async fn only_listed_names_are_looked_up_unless_the_rights_permit_all_names() {
        let rules = ["tcp:10.0.0.0/8:22", "tcp:[2001:db8::/32]:*", "tcp:*.example.org:80"];
        let dial: Vec<Rule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let (careful, open): (PeerName, PeerName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let rights =
            |resolve_names| Rights { dial: dial.clone(), resolve_names, ..Rights::default() };
        let access = Access::new([(careful.clone(), rights(false)), (open.clone(), rights(true))]);
        for (target, of_careful, of_open) in [
            ("tcp:a.example.org:80", "lookup-failed", "lookup-failed"),
            ("tcp:a.example.com:22", "name-not-listed", "lookup-failed"),
            ("tcp:a.example.com:80", "name-not-listed", "lookup-failed"),
            ("udp:a.example.com:22", "not-listed", "not-listed"),
            ("tcp:192.0.2.1:22", "not-listed", "not-listed"),
        ] {
            let target = target.parse().unwrap();
            for (peer, expected) in [(&careful, of_careful), (&open, of_open)] {
                let verdict = access.admit(peer, &target, &FailingResolver).await;
                assert_eq!(verdict.unwrap_err().reason(), expected, "{target} of {peer}");
            }
        }
    }

    #[derive(Debug)]
    struct FailingResolver;

    impl Resolve for FailingResolver {
        fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            Box::pin(async { Err(io::ErrorKind::NotFound.into()) })
        }
    }

    #[test]
    fn a_service_needs_a_rule_of_its_name_to_be_offered_and_to_be_reached() {
        let peer: PeerName = "laptop".parse().unwrap();
        let rules = |all: &[&str]| all.iter().map(|rule| rule.parse().unwrap()).collect();
        let rights = Rights {
            dial: rules(&["service:wiki", "tcp:0.0.0.0/0:*"]),
            listen: rules(&["service:office-*"]),
            ..Rights::default()
        };
        let access = Access::new([(peer.clone(), rights)]);
        let dials =
            |target: &str| access.admit_resolved(&peer, &target.parse().unwrap(), &[]).is_ok();
        assert!(dials("service:wiki") && !dials("service:wiki2") && !dials("service:office-a"));
        let offers = |target: &str| access.admit_listen(&peer, &target.parse().unwrap()).is_ok();
        assert!(offers("service:office-a") && offers("service:office-"));
        assert!(!offers("service:wiki") && !offers("service:offic"));
        for wrong in ["service:", "service:a b", "service:a*b", "service:a/b"] {
            assert!(wrong.parse::<Rule>().is_err() && wrong.parse::<Target>().is_err(), "{wrong}");
        }
        for text in ["service:a", "service:office-*", "service:*"] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_peer_may_listen_only_on_a_listed_address() {
        let rules = ["tcp:127.0.0.1:8000-8010", "udp:[::]:53", "tcp:10.0.0.0/8:*", "unix:/run/w/*"];
        let listen = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let peer: PeerName = "a".parse().unwrap();
        let access = Access::new([(peer.clone(), Rights { listen, ..Rights::default() })]);
        for (target, good) in [
            ("tcp:127.0.0.1:8000", true),
            ("tcp:127.0.0.1:8011", false),
            ("udp:127.0.0.1:8000", false),
            ("tcp:0.0.0.0:8000", false),
            ("tcp:[::ffff:127.0.0.1]:8000", true),
            ("udp:[::]:53", true),
            ("udp:0.0.0.0:53", false),
            ("tcp:10.1.2.3:0", true),
            ("tcp:127.0.0.1:0", false),
            ("tcp:localhost:8000", false),
            ("unix:/run/w/a", true),
            ("unix:/run/w/a/b", false),
            ("unix:/run/w/..", false),
        ] {
            let verdict = access.admit_listen(&peer, &target.parse().unwrap());
            assert_eq!(verdict.is_ok(), good, "{target} {verdict:?}");
        }
    }
}
