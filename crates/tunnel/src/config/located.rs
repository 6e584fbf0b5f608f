use super::ListenOn;
use super::source::Origin;
use crate::access::Rule;
use crate::account::Volume;
use crate::identity::{PeerName, Pin};
use crate::target::{HostPort, Target};
use crate::transport::Carrier;
use serde::de::Error;
use settings::{Mistakes, Node, Setting, What};

/// A configured value and its origin, for error messages.
#[derive(Debug, Clone)]
pub struct Located<T> {
    pub value: T,
    pub(super) origin: Origin,
}

impl<T> Located<T> {
    /// Marks a value as given by the command-line flag `flag`, for example `--listen-on`.
    pub fn by_flag(flag: &'static str, value: T) -> Self {
        Self { value, origin: Origin::Flag(flag) }
    }
}

impl<T: Setting> Setting for Located<T> {
    fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        let value = T::read(node, mistakes)?;
        Some(Self { value, origin: Origin::Byte(node.span().start) })
    }
}

/// Implements [`Setting`] for types that are parsed from a text.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            fn read(node: Node<'_>, mistakes: &mut Mistakes) -> Option<Self> {
                let text = String::read(node, mistakes)?;
                let read = text.parse().map_err(|error| What::custom(error));
                read.map_err(|what| mistakes.add(node.span(), what)).ok()
            }
        }
    )*};
}
as_text!(Carrier, HostPort, ListenOn, PeerName, Pin, Rule, Target, Volume);
