use crate::LinkError;
use crate::queue::{
    CaqmConfig, CoDelConfig, FqCoDelConfig, Limit, PieConfig, RedConfig, droptail, headdrop,
};
use crate::text::{Term, as_text, hint, name_and_terms, terms};

/// The queueing discipline: which packets wait, for how long, and which are dropped or marked.
///
/// Written as a name, then settings behind a colon. Settings left out have the defaults shown here.
/// A limit counts bytes (`256KiB`) or packets (`100p`) and may be written without `limit=`.
///
/// | form | see |
/// | --- | --- |
/// | `droptail:10000p` | [`DropTail`](crate::DropTail) |
/// | `headdrop:10000p` | [`HeadDrop`](crate::HeadDrop) |
/// | `red:limit=1000p,min=83p,max=250p,p=10%,weight=0.2%`, flags `gentle`, `ecn`, `step` | [`RedConfig`] |
/// | `codel:limit=1000p,target=5ms,interval=100ms`, flag `ecn` | [`CoDelConfig`] |
/// | `fq_codel:limit=10240p,target=5ms,interval=100ms,flows=1024,quantum=1514B`, flag `ecn` | [`FqCoDelConfig`] |
/// | `pie:limit=1000p,target=15ms,update=15ms,burst=150ms`, flag `ecn` | [`PieConfig`] |
/// | `caqm:143KB`, `caqm:target=143KB,limit=10000p,period=120us,lambda=50%,p=10%,beta=512B` | [`CaqmConfig`] |
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueConfig {
    DropTail(Limit),
    HeadDrop(Limit),
    Red(RedConfig),
    CoDel(CoDelConfig),
    FqCoDel(FqCoDelConfig),
    Pie(PieConfig),
    Caqm(CaqmConfig),
}

impl QueueConfig {
    pub fn validate(&self) -> Result<(), LinkError> {
        match self {
            Self::DropTail(limit) | Self::HeadDrop(limit) => limit.validate("the queue's limit"),
            Self::Red(config) => config.validate(),
            Self::CoDel(config) => config.validate(),
            Self::FqCoDel(config) => config.validate(),
            Self::Pie(config) => config.validate(),
            Self::Caqm(config) => config.validate(),
        }
    }

    pub fn limit(&self) -> Limit {
        match self {
            Self::DropTail(limit) | Self::HeadDrop(limit) => *limit,
            Self::Red(config) => config.limit,
            Self::CoDel(config) => config.limit,
            Self::FqCoDel(config) => config.limit,
            Self::Pie(config) => config.limit,
            Self::Caqm(config) => config.limit,
        }
    }
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self::DropTail(droptail::DEFAULT)
    }
}

impl std::str::FromStr for QueueConfig {
    type Err = LinkError;
    fn from_str(text: &str) -> Result<Self, LinkError> {
        let (name, rest) = name_and_terms(text);
        let config = match name {
            "droptail" => Self::DropTail(droptail::parse(rest)?),
            "headdrop" => Self::HeadDrop(headdrop::parse(rest)?),
            "red" => Self::Red(RedConfig::parse(rest)?),
            "codel" => Self::CoDel(CoDelConfig::parse(rest)?),
            "fq_codel" => Self::FqCoDel(FqCoDelConfig::parse(rest)?),
            "pie" => Self::Pie(PieConfig::parse(rest)?),
            "caqm" => Self::Caqm(CaqmConfig::parse(rest)?),
            other => {
                return Err(LinkError::UnknownForm {
                    what: "queue",
                    found: text.to_owned(),
                    hint: hint(other, &NAMES),
                    known: KNOWN,
                });
            }
        };
        config.validate()?;
        Ok(config)
    }
}

impl std::fmt::Display for QueueConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DropTail(limit) => f.pad(&format!("droptail:{limit}")),
            Self::HeadDrop(limit) => f.pad(&format!("headdrop:{limit}")),
            Self::Red(config) => f.pad(&format!("red:{config}")),
            Self::CoDel(config) => f.pad(&format!("codel:{config}")),
            Self::FqCoDel(config) => f.pad(&format!("fq_codel:{config}")),
            Self::Pie(config) => f.pad(&format!("pie:{config}")),
            Self::Caqm(config) => f.pad(&format!("caqm:{config}")),
        }
    }
}

as_text!(QueueConfig, "a queue such as \"droptail:256KiB\"");

/// A limit may be written without `limit=`: a term that begins like a number is a limit.
pub(crate) fn bare_limit<'a>(term: Term<'a>) -> Option<&'a str> {
    match term {
        Term::Pair("limit", limit) => Some(limit),
        Term::Word(word) if word.starts_with(|c: char| c.is_ascii_digit() || "-+.".contains(c)) => {
            Some(word)
        }
        _ => None,
    }
}

pub(crate) fn limit_only(
    name: &'static str,
    text: &str,
    default: Limit,
) -> Result<Limit, LinkError> {
    let mut limit = default;
    for term in terms(text) {
        limit = bare_limit(term).ok_or_else(|| term.unknown(name, &["limit="]))?.parse()?;
    }
    Ok(limit)
}

const NAMES: [&str; 7] = ["droptail", "headdrop", "red", "codel", "fq_codel", "pie", "caqm"];
const KNOWN: &str = "`droptail:256KiB`, `droptail:100p`, `headdrop:256KiB`, `red:limit=256KiB,min=20KB,max=60KB,p=10%,ecn`, `codel:limit=1000p,target=5ms,interval=100ms,ecn`, `fq_codel:limit=10240p,ecn`, `pie:limit=1000p,target=15ms,ecn` or `caqm:143KB`";
