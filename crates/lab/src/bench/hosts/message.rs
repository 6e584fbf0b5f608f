//! The requests of a controller to the agent on a host, and the replies. Each message is one JSON
//! document with its length in front, and each request has exactly one reply.

use super::seam::{Change, End, Order, Stream};
use crate::bench::machine::Emulation;
use indexmap::IndexMap;
use link::LinkConfig;
use perf::control::Message;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use units::Span;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Ask {
    Hello {
        protocol: u32,
    },
    Facts(Wanted),
    Clock,
    /// Announces that the next request comes within `seconds`.
    Lease {
        seconds: u64,
    },
    Start(Order),
    /// Waits for the end of a program.
    Wait {
        task: u32,
        millis: u64,
    },
    Cpu {
        task: u32,
    },
    /// Reads a part of a program's output, from byte `from` of the kept output on.
    Output {
        task: u32,
        stream: Stream,
        from: u64,
    },
    Stop {
        task: u32,
    },
    Listens {
        port: u16,
    },
    Set {
        name: String,
        value: String,
    },
    Change(Change),
    Undo,
    /// Emulates links between interfaces of the host, until `EndEmulation` or `Undo`.
    Emulate {
        cables: Vec<CableOrder>,
    },
    EndEmulation,
    /// Appends to a file in the folder of the agent's session, or replaces the file.
    Put {
        name: String,
        text: String,
        append: bool,
    },
    /// Reads a file in the folder of the agent's session from byte `from` on.
    Read {
        name: String,
        from: u64,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Answer {
    Hello(Hello),
    Facts(Box<Facts>),
    /// The host's clock: nanoseconds since 1970.
    Clock {
        nanos: i64,
    },
    Started {
        task: u32,
    },
    Ended {
        end: Option<End>,
    },
    Cpu {
        nanos: Option<u64>,
    },
    Output {
        text: String,
        total: u64,
    },
    Listens {
        yes: bool,
    },
    Placed {
        path: String,
    },
    Read {
        text: String,
    },
    Emulated(Box<Emulation>),
    Done,
    Failed {
        reason: String,
    },
}

/// A link to emulate between two interfaces of the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CableOrder {
    pub(crate) name: String,
    pub(crate) interfaces: [String; 2],
    pub(crate) forward: LinkConfig,
    pub(crate) backward: LinkConfig,
    pub(crate) interrupts: Span,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    pub(crate) version: String,
    /// The checksum of the agent's program.
    pub(crate) sha256: String,
    /// The path of the agent's program.
    pub(crate) weir: String,
}

/// The programs, algorithms, settings, port and interfaces that a lab needs on a host.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    pub(crate) programs: Vec<String>,
    pub(crate) algorithms: Vec<String>,
    pub(crate) settings: Vec<String>,
    /// The TCP port that must be free.
    pub(crate) port: Option<u16>,
    /// The interfaces of emulated links, with the MTUs of the links.
    pub(crate) interfaces: Vec<(String, Option<u32>)>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Facts {
    pub(crate) kernel: String,
    pub(crate) architecture: String,
    /// The boot ID of the machine and its network namespace, by which the controller sees that two
    /// hosts are one machine.
    #[serde(default)]
    pub(crate) machine: String,
    pub(crate) cpus: u32,
    pub(crate) root: bool,
    /// The reason why programs cannot be confined, so that they might outlive the agent.
    pub(crate) unconfined: Option<String>,
    /// The loaded congestion controls.
    pub(crate) algorithms: Vec<String>,
    pub(crate) missing_algorithms: Vec<String>,
    pub(crate) missing_programs: Vec<String>,
    /// The agents of other labs that run there.
    pub(crate) others: Vec<u32>,
    /// Whether another program listens at the workload's port.
    pub(crate) port_taken: bool,
    pub(crate) free_mib: u64,
    /// The reasons why interfaces cannot be the ends of emulated links.
    pub(crate) unfit_interfaces: Vec<String>,
    pub(crate) sysctls: IndexMap<String, String>,
}

impl Hello {
    /// Refuses a reply with a text that is too long.
    pub(super) fn checked(self) -> Result<Self, String> {
        let texts = [&self.version, &self.sha256, &self.weir];
        match texts.iter().all(|text| text.len() <= LONGEST_TEXT) {
            true => Ok(self),
            false => Err("its first answer has a text that is too long".to_owned()),
        }
    }
}

impl Facts {
    /// Shortens lists and texts, and escapes control characters: a host may send anything.
    pub(super) fn bounded(mut self) -> Self {
        let shown = |text: &str| units::foreign(text).to_string();
        for text in [&mut self.kernel, &mut self.architecture, &mut self.machine] {
            *text = shown(text);
        }
        let lists = [
            &mut self.algorithms,
            &mut self.missing_algorithms,
            &mut self.missing_programs,
            &mut self.unfit_interfaces,
        ];
        for list in lists {
            list.truncate(LONGEST_LIST);
            list.iter_mut().for_each(|text| *text = shown(text));
        }
        self.others.truncate(LONGEST_LIST);
        self.unconfined = self.unconfined.map(|reason| shown(&reason));
        self.sysctls.truncate(LONGEST_LIST);
        let each = std::mem::take(&mut self.sysctls).into_iter();
        self.sysctls = each.map(|(name, value)| (shown(&name), shown(&value))).collect();
        self
    }
}

/// Reads one message. `None` at the end of the stream.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut message = Message::new(LONGEST);
    let mut begun = false;
    let mut piece = vec![0; 64 << 10];
    loop {
        let wants = message.wants().map_err(invalid)?;
        if wants == 0 {
            return message.parse().map(Some).map_err(invalid);
        }
        let room = wants.min(piece.len());
        match from.read(&mut piece[..room]) {
            Ok(0) if begun => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(0) => return Ok(None),
            Ok(count) => {
                begun = true;
                message.take(&piece[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let bytes = Message::encode(value).map_err(invalid)?;
    match bytes.len() <= LONGEST {
        true => Ok(bytes),
        false => Err(invalid("a message is too long")),
    }
}

/// Reads a host's bytes as the controller does, up to the first invalid frame, and counts the
/// frames. For the fuzz target.
pub fn read_answers(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Ok(Some(answer)) = read::<Answer>(&mut bytes) {
        count += 1;
        match answer {
            Answer::Facts(facts) => {
                let facts = facts.bounded();
                assert!(facts.sysctls.len() <= LONGEST_LIST);
                assert!(facts.kernel.chars().all(|c| !c.is_control()));
            }
            Answer::Hello(hello) => drop(hello.checked()),
            answer => drop(encode(&answer)),
        }
    }
    count
}

/// Reads a controller's bytes as the agent does, and counts the frames. For the fuzz target.
pub fn read_asks(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Ok(Some(ask)) = read::<Ask>(&mut bytes) {
        count += 1;
        drop(encode(&ask));
    }
    count
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The version of the protocol. The controller and the agent must be the same build of weir, and
/// another version is another build.
pub(crate) const PROTOCOL: u32 = 4;
/// The line before the first frame. The line marks the agent's start, because a login shell may
/// print text earlier.
pub(crate) const MAGIC: &[u8] = b"weir-agent\n";
pub(crate) const LONGEST: usize = 2 << 20;
const LONGEST_TEXT: usize = 4096;
const LONGEST_LIST: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_until_the_stream_ends() {
        let bytes = [encode(&Ask::Clock).unwrap(), encode(&Ask::Undo).unwrap()].concat();
        assert_eq!(read_asks(&bytes), 2);
        let mut cut = &bytes[..bytes.len() - 1];
        assert!(matches!(read::<Ask>(&mut cut), Ok(Some(Ask::Clock))));
        let error = read::<Ask>(&mut cut).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_frame_longer_than_the_limit_is_refused_unread() {
        let mut bytes: &[u8] = &[0x7f, 0xff, 0xff, 0xff, b'{'];
        assert_eq!(read::<Answer>(&mut bytes).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let unknown = encode(&serde_json::json!({"started": {"task": 1, "more": 2}})).unwrap();
        assert!(read::<Answer>(&mut &unknown[..]).is_err());
    }

    #[test]
    fn facts_from_a_hostile_host_are_escaped_and_truncated() {
        let text = "\x1b[2J".repeat(10_000);
        let facts = Facts {
            kernel: text.clone(),
            algorithms: vec![text.clone(); 1000],
            sysctls: (0..1000).map(|n| (format!("{n}{text}"), text.clone())).collect(),
            ..Facts::default()
        };
        let facts = facts.bounded();
        assert!(facts.kernel.starts_with(r"\x1b[2J") && facts.kernel.chars().count() <= 257);
        assert_eq!((facts.algorithms.len(), facts.sysctls.len()), (LONGEST_LIST, LONGEST_LIST));
    }
}
