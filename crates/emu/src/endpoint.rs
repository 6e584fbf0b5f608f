use crate::UsageError;
use serde::{Deserialize, Serialize};

/// An endpoint of a link in the user's notation.
///
/// | notation | meaning |
/// | --- | --- |
/// | `eth0` | an interface of this namespace |
/// | `left:eth0` | an interface of the namespace `left` of `ip netns` |
/// | `/proc/123/ns/net:eth0` | an interface of the namespace at a path |
/// | `pid:123:eth0` | an interface of the namespace of a process |
/// | `tap:tap0`, `left:tap:tap0` | a TAP device, which is created |
///
/// The emulator attaches to an existing interface, and creates a missing interface as the outer end
/// of a veth pair.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The namespace, as for [`host::Namespace::named`]; this namespace if `None`.
    pub namespace: Option<String>,
    pub kind: EndpointKind,
    pub interface: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndpointKind {
    Interface,
    Tap,
}

impl std::str::FromStr for Endpoint {
    type Err = UsageError;
    fn from_str(text: &str) -> Result<Self, UsageError> {
        let refuse = |problem: String| UsageError::Endpoint { text: text.to_owned(), problem };
        let (before, interface) = match text.rsplit_once(':') {
            Some((before, interface)) => (Some(before), interface),
            None => (None, text),
        };
        check_interface(interface).map_err(refuse)?;
        let (namespace, kind) = match before {
            None => (None, EndpointKind::Interface),
            Some("tap") => (None, EndpointKind::Tap),
            Some(before) => match before.strip_suffix(":tap") {
                Some(namespace) => (Some(namespace), EndpointKind::Tap),
                None => (Some(before), EndpointKind::Interface),
            },
        };
        if let Some(namespace) = namespace {
            check_namespace(namespace).map_err(refuse)?;
        }
        Ok(Self { namespace: namespace.map(str::to_owned), kind, interface: interface.to_owned() })
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}:")?;
        }
        if self.kind == EndpointKind::Tap {
            f.write_str("tap:")?;
        }
        f.write_str(&self.interface)
    }
}

impl Serialize for Endpoint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Checks a name as `dev_valid_name` in net/core/dev.c does.
fn check_interface(name: &str) -> Result<(), String> {
    let problem = match name {
        "" => "has no interface: write NAMESPACE:INTERFACE, for example left:eth0".to_owned(),
        "." | ".." => "does not name an interface: `ip link` lists them".to_owned(),
        _ if name.len() > LONGEST_INTERFACE => {
            format!(
                "names an interface of more than {LONGEST_INTERFACE} characters, which Linux does not take: \
                 shorten it"
            )
        }
        _ if name
            .contains(|c: char| c == '/' || c == '%' || c.is_whitespace() || c.is_control()) =>
        {
            format!("names the interface {name:?}; Linux takes no such character in it: rename it")
        }
        _ => return Ok(()),
    };
    Err(problem)
}

fn check_namespace(name: &str) -> Result<(), String> {
    if let Some(pid) = name.strip_prefix("pid:") {
        return match pid.parse::<u32>() {
            Ok(1..) => Ok(()),
            _ => Err(format!("has {pid:?} where a process number belongs: write pid:123:eth0")),
        };
    }
    if name.contains('/') {
        return Ok(());
    }
    match name {
        "" => Err("has nothing before the `:`: write NAMESPACE:INTERFACE, or the interface alone"
            .to_owned()),
        "." | ".." => Err("does not name a namespace: `ip netns list` lists them".to_owned()),
        "pid" => Err("names no process: write pid:123:eth0".to_owned()),
        _ if name.contains(|c: char| c == ':' || c.is_whitespace() || c.is_control()) => {
            Err(format!(
                "names the namespace {name:?}, which cannot exist: write NAMESPACE:INTERFACE, pid:123:INTERFACE or tap:NAME"
            ))
        }
        _ => Ok(()),
    }
}

/// IFNAMSIZ, without the terminating zero.
const LONGEST_INTERFACE: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> (Option<String>, EndpointKind, String) {
        let Endpoint { namespace, kind, interface } = text.parse().unwrap();
        (namespace, kind, interface)
    }

    #[test]
    fn every_endpoint_notation_is_parsed() {
        let (interface, tap) = (EndpointKind::Interface, EndpointKind::Tap);
        for (text, namespace, kind, name) in [
            ("eth0", None, interface, "eth0"),
            ("left:eth0", Some("left"), interface, "eth0"),
            ("pid:12:eth0", Some("pid:12"), interface, "eth0"),
            ("/proc/1/ns/net:eth0", Some("/proc/1/ns/net"), interface, "eth0"),
            ("tap:t0", None, tap, "t0"),
            ("left:tap:t0", Some("left"), tap, "t0"),
            ("pid:12:tap:t0", Some("pid:12"), tap, "t0"),
        ] {
            assert_eq!(
                parsed(text),
                (namespace.map(str::to_owned), kind, name.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn the_error_of_an_invalid_endpoint_shows_a_valid_notation() {
        for (text, says) in [
            ("", "has no interface"),
            ("left:", "has no interface"),
            (":eth0", "nothing before"),
            ("pid:x:eth0", "process number"),
            ("pid:0:eth0", "process number"),
            ("pid:eth0", "names no process"),
            ("a:b:eth0", "cannot exist"),
            ("an-interface-too-long", "more than 15"),
            ("left:et h0", "no such character"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn the_endpoint_parser_never_panics_and_parsed_endpoints_print_as_written(text in "[a-z:/.%0-9 ]{0,24}") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string(), text);
            }
        }
    }
}
