//! The interfaces with CAQM. The programs add, remove and offer tags only at these interfaces.

use super::kernel_calls::{self, Side};
use crate::AccelError;
use crate::namespaces::run_in_each;
use host::Namespace;
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

/// An interface as users name it: `eth0`, `left:eth0` of `ip netns`, `pid:123:eth0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceName {
    /// The namespace in the form of [`Namespace::named`]; `None` is this namespace.
    pub namespace: Option<String>,
    pub interface: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundInterface {
    pub(crate) name: InterfaceName,
    pub(crate) cookie: u64,
    pub(crate) index: u32,
}

impl FromStr for InterfaceName {
    type Err = AccelError;

    fn from_str(text: &str) -> Result<Self, AccelError> {
        let (namespace, interface) = match text.rsplit_once(':') {
            Some((namespace, interface)) => (Some(namespace.to_owned()), interface),
            None => (None, text),
        };
        if interface.is_empty() || namespace.as_deref() == Some("") {
            let problem = format!("`{text}` is not an interface: write eth0 or NAMESPACE:eth0");
            return Err(AccelError::Usage(problem));
        }
        Ok(Self { namespace, interface: interface.to_owned() })
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}:")?;
        }
        f.write_str(&self.interface)
    }
}

impl InterfaceName {
    fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, AccelError> + Send,
    ) -> Result<T, AccelError> {
        match &self.namespace {
            None => work(),
            Some(name) => Namespace::named(name)?.run(|| Ok(work()))?,
        }
    }

    /// Finds the Ethernet interfaces of this namespace whose numbers are set in the bitmap, as in
    /// the reference's `filter_nics`.
    pub(crate) fn of_bitmap(bitmap: u64) -> Result<Vec<Self>, AccelError> {
        let all = kernel_calls::ethernet_interfaces().map_err(failed)?;
        let numbers = (0..u64::BITS).filter(|number| bitmap >> number & 1 == 1);
        let named = numbers.map(|number| {
            let found = all.iter().find(|(index, _)| *index == number);
            let interface = found.map(|(_, name)| name.clone());
            interface.map(|interface| Self { namespace: None, interface }).ok_or_else(|| {
                AccelError::NoSuchInterface {
                    name: format!("{number} of filter_nics"),
                    known: listed(all.iter().map(|(index, name)| format!("{index} ({name})"))),
                }
            })
        });
        named.collect()
    }

    pub(crate) fn find(&self) -> Result<FoundInterface, AccelError> {
        self.inside(|| {
            let interfaces = kernel_calls::ethernet_interfaces().map_err(failed)?;
            let index = interfaces.iter().find(|(_, name)| *name == self.interface);
            let Some((index, _)) = index else {
                return Err(AccelError::NoSuchInterface {
                    name: self.to_string(),
                    known: listed(interfaces.into_iter().map(|(_, name)| name)),
                });
            };
            let cookie = kernel_calls::namespace_cookie().map_err(failed)?;
            Ok(FoundInterface { name: self.clone(), cookie, index: *index })
        })
    }
}

impl FoundInterface {
    pub(crate) fn all_here() -> Result<Vec<Self>, AccelError> {
        let cookie = kernel_calls::namespace_cookie().map_err(failed)?;
        let interfaces = kernel_calls::ethernet_interfaces().map_err(failed)?;
        if interfaces.is_empty() {
            return Err(AccelError::NoInterface);
        }
        let here = |interface| InterfaceName { namespace: None, interface };
        let found = |(index, name)| Self { name: here(name), cookie, index };
        Ok(interfaces.into_iter().map(found).collect())
    }

    /// Finds all Ethernet interfaces of all namespaces in use, with a name for each namespace.
    pub(crate) fn everywhere() -> Result<Vec<Self>, AccelError> {
        let found = run_in_each(|inside| {
            let namespace = inside.map(|inside| match inside {
                crate::namespaces::NamespaceId::Process(pid) => format!("pid:{pid}"),
                crate::namespaces::NamespaceId::Named(name) => name.clone(),
            });
            let cookie = kernel_calls::namespace_cookie().map_err(failed)?;
            let interfaces = kernel_calls::ethernet_interfaces().map_err(failed)?;
            let found = interfaces.into_iter().map(|(index, interface)| Self {
                name: InterfaceName { namespace: namespace.clone(), interface },
                cookie,
                index,
            });
            Ok(found.collect::<Vec<_>>())
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Encodes the interface as `struct caqm_place` of bpf/caqm_flow.h.
    pub(crate) fn key(&self) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&self.cookie.to_ne_bytes());
        key[8..12].copy_from_slice(&self.index.to_ne_bytes());
        key
    }

    pub(crate) fn of_key(key: &[u8]) -> Option<(u64, u32)> {
        let cookie = u64::from_ne_bytes(*key.first_chunk()?);
        let index = u32::from_ne_bytes(*key.get(8..)?.first_chunk()?);
        Some((cookie, index))
    }

    pub(crate) fn links(&self) -> [String; 2] {
        links(self.cookie, self.index)
    }

    /// Attaches both programs until the pins are removed.
    pub(crate) fn attach(
        &self,
        inward: std::os::fd::BorrowedFd<'_>,
        outward: std::os::fd::BorrowedFd<'_>,
    ) -> Result<[std::os::fd::OwnedFd; 2], AccelError> {
        let refused = |source: io::Error| match source.raw_os_error() {
            Some(libc::ENODEV) => AccelError::NoSuchInterface {
                name: self.name.to_string(),
                known: "it has just gone".to_owned(),
            },
            _ => AccelError::Attach { name: self.name.to_string(), source },
        };
        self.name.inside(|| {
            Ok([
                kernel_calls::attach(inward, self.index, Side::In).map_err(refused)?,
                kernel_calls::attach(outward, self.index, Side::Out).map_err(refused)?,
            ])
        })
    }
}

pub(crate) fn links(cookie: u64, index: u32) -> [String; 2] {
    ["in", "out"].map(|side| format!("{side}-{cookie}-{index}"))
}

pub(crate) fn pin(link: std::os::fd::BorrowedFd<'_>, path: &Path) -> Result<(), AccelError> {
    kernel_calls::pin(link, path).map_err(|source| AccelError::file("pinning", path, source))
}

fn failed(source: io::Error) -> AccelError {
    AccelError::Interfaces { source }
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        "there is none".to_owned()
    } else {
        format!("there are {}", names.join(", "))
    }
}

const KEY_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_name_prints_as_it_is_parsed() {
        for text in ["eth0", "left:eth0", "pid:7:eth0", "/proc/7/ns/net:eth0.5"] {
            assert_eq!(text.parse::<InterfaceName>().unwrap().to_string(), text);
        }
        assert!("left:".parse::<InterfaceName>().is_err());
        assert!(":eth0".parse::<InterfaceName>().is_err());
    }

    #[test]
    fn a_bitmap_without_an_ethernet_interface_is_refused() {
        assert_eq!(InterfaceName::of_bitmap(0).unwrap(), []);
        let all = kernel_calls::ethernet_interfaces().unwrap();
        let number = (0..64).find(|number| all.iter().all(|(index, _)| index != number)).unwrap();
        let error = InterfaceName::of_bitmap(1 << number).unwrap_err().to_string();
        assert!(error.contains(&format!("`{number} of filter_nics`")), "{error}");
        for (index, name) in all.into_iter().filter(|(index, _)| *index < 64) {
            let found = InterfaceName::of_bitmap(1 << index).unwrap();
            assert_eq!(found, [name.parse().unwrap()]);
        }
    }

    #[test]
    fn the_map_key_of_an_interface_has_its_namespace_and_index() {
        let name = "eth0".parse().unwrap();
        let found = FoundInterface { name, cookie: 7 << 40, index: 9 };
        assert_eq!(FoundInterface::of_key(&found.key()), Some((7 << 40, 9)));
    }
}
