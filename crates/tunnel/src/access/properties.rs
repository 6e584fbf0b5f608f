//! Properties that hold for all rules, names and answers of the resolver.

use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

proptest! {
    /// An admitted address comes from the resolver's only answer, and a rule of the peer covers
    /// this address.
    #[test]
    fn only_resolved_and_listed_addresses_are_dialled(
        own in rules(), others in rules(), target in target(), answers in answers(),
    ) {
        let access = two(&own, &others);
        let resolver = ChangingResolver::new(&answers);
        let verdict = now(access.admit(&peer("a"), &target, &resolver));
        let asked = resolver.asked();
        prop_assert!(asked <= 1);
        let Ok(admitted) = verdict else { return Ok(()) };
        let literal = match &target {
            Target::Tcp(host) | Target::Udp(host) => host.host().parse::<IpAddr>().ok(),
            Target::Unix(_) | Target::Service(_) => None,
        };
        for address in admitted.addresses() {
            match literal {
                Some(literal) => prop_assert_eq!(address.ip(), literal.to_canonical()),
                None => prop_assert!(answers[0].iter().any(|one| one.to_canonical() == address.ip())),
            }
            prop_assert!(own.iter().any(|rule| allows(rule, &target, address.ip())));
        }
        prop_assert_eq!(admitted.path().is_some(), admitted.addresses().is_empty());
    }

    /// A peer without rules reaches no target and causes no look-up, even if other peers have
    /// rights.
    #[test]
    fn a_peer_has_no_rights_of_other_peers(
        others in rules(), target in target(), answers in answers(),
    ) {
        let resolver = ChangingResolver::new(&answers);
        let none = two(&[], &others);
        prop_assert!(now(none.admit(&peer("a"), &target, &resolver)).is_err());
        prop_assert!(now(none.admit(&peer("c"), &target, &resolver)).is_err());
        prop_assert_eq!(resolver.asked(), 0);
        prop_assert!(none.admit_listen(&peer("a"), &target).is_err());
    }

    /// A rule for all addresses covers no special address, neither by address nor by name.
    #[test]
    fn special_addresses_need_an_explicit_rule(target in target(), answers in answers()) {
        let wide = ["tcp:0.0.0.0/0:*", "tcp:[::/0]:*", "udp:0.0.0.0/0:*", "udp:[::/0]:*"];
        let wide: Vec<Rule> = wide.iter().map(|rule| rule.parse().unwrap()).collect();
        let named = ["tcp:example.org:*", "tcp:*.example.org:*"].map(|rule| rule.parse().unwrap());
        for rules in [&wide[..], &named] {
            let access = two(rules, &[]);
            if let Ok(admitted) = now(access.admit(&peer("a"), &target, &ChangingResolver::new(&answers))) {
                let special = |address: &SocketAddr| special::special(address.ip()).is_some();
                prop_assert!(!admitted.addresses().iter().any(special));
            }
        }
    }

    #[test]
    fn parsing_any_text_as_a_rule_causes_no_panic(text in "((tcp|udp|unix):)?.{0,40}") {
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
        }
    }
}

#[test]
fn a_name_is_dialled_at_the_checked_address() {
    let public = IpAddr::from([203, 0, 113, 7]);
    let answers = [vec![public], vec![IpAddr::from(Ipv4Addr::LOCALHOST)]];
    let resolver = ChangingResolver::new(&answers);
    let access = two(&["tcp:example.org:80".parse().unwrap()], &[]);
    let target = "tcp:example.org:80".parse().unwrap();
    let first = now(access.admit(&peer("a"), &target, &resolver)).unwrap();
    assert_eq!(first.addresses(), [SocketAddr::new(public, 80)]);
    assert_eq!(resolver.asked(), 1);
    let second = now(access.admit(&peer("a"), &target, &resolver)).unwrap_err();
    assert_eq!(second.reason(), "special-address");
    assert!(second.to_string().contains("127.0.0.1"), "{second}");
}

/// A second, independent implementation of [`Rule::covers`].
fn allows(rule: &Rule, target: &Target, address: IpAddr) -> bool {
    let text = rule.to_string();
    let (Target::Tcp(host) | Target::Udp(host)) = target else { return false };
    let kind = if target.is_datagrams() { "udp:" } else { "tcp:" };
    let Some((hosts, ports)) = text.strip_prefix(kind).and_then(|rest| rest.rsplit_once(':'))
    else {
        return false;
    };
    let port = ports == "*"
        || ports.split(',').any(|part| {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            (low.parse::<u16>().unwrap()..=high.parse().unwrap()).contains(&host.port())
        });
    let hosts = hosts.trim_start_matches('[').trim_end_matches(']');
    let prefix = hosts.parse::<ipnet::IpNet>().or_else(|_| hosts.parse().map(IpAddr::into));
    let name = host.host().trim_end_matches('.').to_ascii_lowercase();
    port && match prefix {
        Ok(prefix) => prefix.contains(&address),
        Err(_) => match hosts.strip_prefix('*') {
            Some(end) => name.ends_with(end),
            None => name == hosts,
        },
    }
}

/// A resolver that gives different addresses at each look-up.
#[derive(Debug)]
struct ChangingResolver {
    answers: Vec<Vec<IpAddr>>,
    asked: Mutex<usize>,
}

impl ChangingResolver {
    fn new(answers: &[Vec<IpAddr>]) -> Self {
        Self { answers: answers.to_vec(), asked: Mutex::new(0) }
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }
}

impl Resolve for ChangingResolver {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let mut asked = self.asked.lock().unwrap();
        let answer = self.answers[*asked % self.answers.len()].clone();
        *asked += 1;
        Box::pin(std::future::ready(Ok(answer)))
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(verdict) => verdict,
        Poll::Pending => panic!("the decision waits although its look-up is immediate"),
    }
}

fn two(own: &[Rule], others: &[Rule]) -> Access {
    let rights = |rules: &[Rule]| {
        let (dial, listen) = (rules.to_vec(), rules.to_vec());
        Rights { dial, listen, resolve_names: true, everything: false }
    };
    Access::new([(peer("a"), rights(own)), (peer("b"), rights(others))])
}

fn peer(name: &str) -> PeerName {
    name.parse().unwrap()
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let hosts = prop_oneof![
        Just("example.org".to_owned()),
        Just("*.example.org".to_owned()),
        Just("localhost".to_owned()),
        address().prop_map(|address| match address.to_canonical() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        }),
        (address(), 0..=128u8).prop_map(|(address, length)| {
            let length = if address.is_ipv4() { length.min(32) } else { length };
            match ipnet::IpNet::new(address, length).unwrap().trunc() {
                ipnet::IpNet::V4(prefix) => prefix.to_string(),
                ipnet::IpNet::V6(prefix) => format!("[{prefix}]"),
            }
        }),
    ];
    let ports = prop_oneof![Just("*"), Just("22"), Just("1-1023"), Just("22,80,8000-9000")];
    let network = (prop_oneof![Just("tcp"), Just("udp")], hosts, ports)
        .prop_map(|(kind, hosts, ports)| format!("{kind}:{hosts}:{ports}"));
    let rule = prop_oneof![8 => network, 1 => Just("unix:/run/a".to_owned()), 1 => Just("unix:/run/d/*".to_owned())];
    prop::collection::vec(rule.prop_map(|rule| rule.parse().unwrap()), 0..5)
}

fn target() -> impl Strategy<Value = Target> {
    let host = prop_oneof![
        Just("example.org".to_owned()),
        Just("a.Example.org.".to_owned()),
        Just("localhost".to_owned()),
        Just("evil.test".to_owned()),
        address().prop_map(|address| match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        }),
    ];
    let port = prop_oneof![Just(0u16), Just(22), Just(8080), any::<u16>()];
    let network = (prop_oneof![Just("tcp"), Just("udp")], host, port)
        .prop_map(|(kind, host, port)| format!("{kind}:{host}:{port}"));
    let path = prop_oneof![Just("unix:/run/a"), Just("unix:/run/d/x"), Just("unix:/run/d/../a")]
        .prop_map(str::to_owned);
    prop_oneof![8 => network, 1 => path].prop_map(|text| text.parse().unwrap())
}

fn answers() -> impl Strategy<Value = Vec<Vec<IpAddr>>> {
    prop::collection::vec(prop::collection::vec(address(), 0..4), 1..3)
}

fn address() -> impl Strategy<Value = IpAddr> {
    let odd = ["127.0.0.1", "10.1.2.3", "169.254.169.254", "0.0.0.0", "::1", "::", "fe80::1"];
    let more = ["::ffff:127.0.0.1", "64:ff9b::7f00:1", "2001:db8::1", "203.0.113.7", "224.0.0.1"];
    let odd: Vec<IpAddr> = odd.iter().chain(&more).map(|text| text.parse().unwrap()).collect();
    prop_oneof![
        prop::sample::select(odd),
        any::<[u8; 4]>().prop_map(|octets| Ipv4Addr::from(octets).into()),
        any::<[u8; 16]>().prop_map(|octets| Ipv6Addr::from(octets).into()),
    ]
}
