use crate::LinkError;
use crate::text::{Term, terms};
use units::Bytes;

/// The capacity of a queue. Written `256KiB`, or `100p` for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Maximum number of bytes of all queued packets together.
    Bytes(Bytes),
    /// Maximum number of queued packets.
    Packets(u64),
}

impl Limit {
    /// Whether a frame of `size` fits behind the queued packets.
    #[inline]
    pub fn has_room(self, packets: usize, bytes: Bytes, size: Bytes) -> bool {
        match self {
            Self::Bytes(limit) => bytes + size <= limit,
            Self::Packets(limit) => (packets as u64) < limit,
        }
    }

    pub(crate) fn validate(self, setting: &'static str) -> Result<(), LinkError> {
        match self {
            Self::Bytes(Bytes::ZERO) | Self::Packets(0) => Err(LinkError::invalid(
                setting,
                "is 0, and such a queue takes nothing: give a size such as `256KiB` or `100p`",
            )),
            _ => Ok(()),
        }
    }
}

/// Bytes of an Ethernet frame with 1500 bytes of IP.
const FULL_FRAME: u64 = 1514;

impl std::str::FromStr for Limit {
    type Err = LinkError;
    fn from_str(text: &str) -> Result<Self, LinkError> {
        let trimmed = text.trim();
        match trimmed.strip_suffix('p') {
            Some(packets) => {
                packets.trim_end().parse().map(Self::Packets).map_err(|_| LinkError::UnknownForm {
                    what: "queue limit",
                    found: text.to_owned(),
                    hint: String::new(),
                    known: "bytes such as `256KiB`, or packets such as `100p`",
                })
            }
            // Refuse a small number without a unit: in tc, `limit 100` of a pfifo means packets.
            None if trimmed.parse().is_ok_and(|count: u64| (1..FULL_FRAME).contains(&count)) => {
                Err(LinkError::invalid(
                    "the queue's limit",
                    format!(
                        "`{trimmed}` is less than a full packet if it means bytes: write \
                         `{trimmed}p` for packets, or bytes with a unit such as `{trimmed}KiB`"
                    ),
                ))
            }
            None => Ok(Self::Bytes(trimmed.parse()?)),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Packets(packets) => f.pad(&format!("{packets}p")),
        }
    }
}

units::as_text!(Limit, "a queue limit such as \"256KiB\" or \"100p\"");

pub(crate) fn limit_only(
    name: &'static str,
    text: &str,
    default: Limit,
) -> Result<Limit, LinkError> {
    let mut limit = default;
    for term in terms(text) {
        limit = limit_of(term, name, &["limit="])?;
    }
    Ok(limit)
}

/// Returns the limit that a term holds. The term may omit `limit=`, because every term that begins
/// like a number is a limit. The error for another term lists the `settings` of the queue `name`.
pub(crate) fn limit_of(
    term: Term<'_>,
    name: &'static str,
    settings: &[&'static str],
) -> Result<Limit, LinkError> {
    match term {
        Term::Pair("limit", limit) => limit.parse(),
        Term::Word(word) if word.starts_with(|c: char| c.is_ascii_digit() || "-+.".contains(c)) => {
            word.parse()
        }
        _ => Err(term.unknown(name, settings)),
    }
}
