//! Tables, groups, meters, MAC learning, and the translation of packets.
//!
//! The crate implements the pipeline of a bridge: controllers change [`Tables`], and a datapath
//! asks a [`Translator`] for the steps of each flow's first packet. [`Tables`] and [`Translator`]
//! are the entry points. The crate does no I/O and reads no clock: each call takes the time as an
//! argument.
//!
//! ```
//! use flow::Key;
//! use flow::step::{Step, Translate};
//! use pipeline::{Tables, Translator};
//! use text::{PortNames, parse_flow_line};
//!
//! let mut tables = Tables::new();
//! let rule = parse_flow_line("actions=drop", &PortNames::none()).unwrap();
//! tables.change_all(vec![rule], 0).unwrap();
//!
//! let translation = Translator::new(&tables).translate(&Key::ZERO, &[0; 60], 0);
//! let no_steps: &[Step] = &[];
//! assert_eq!(&*translation.steps, no_steps);
//! ```
//!
//! | file | for |
//! | --- | --- |
//! | `tables.rs` | [`Tables`]: the state of a bridge from which packets are translated |
//! | `table.rs` | a table: its rules, its limit and its vacancy |
//! | `change.rs`, `bundle.rs` | changes of rules; bundles, which make all of their changes or none |
//! | `rule.rs`, `classifier.rs` | a rule, and the search for the rule that a packet matches |
//! | `expiry.rs` | the timeouts of rules |
//! | `event.rs` | changes of rules, for monitors |
//! | `learned_cookies.rs` | learned rules that are removed together with their learn actions |
//! | `group.rs`, `meter.rs`, `ports.rs` | groups, meters and ports |
//! | `slots.rs` | select groups: the bucket for each packet hash |
//! | `references.rs` | the number of rules that name each group and each meter |
//! | `bond.rs` | bonds: ports that NORMAL uses as one port |
//! | `mac.rs`, `vlans.rs` | MAC learning of NORMAL; the VLANs of ports |
//! | `mirror.rs` | mirrors: copies of the packets of ports |
//! | `patch.rs` | the peers of patch ports |
//! | `recirculation.rs` | the saved states of packets that recirculate or wait for a controller |
//! | `translate.rs` | the translation of a packet |
//! | `trace.rs` | a translation as text, for `ofproto/trace` |

mod bond;
mod bundle;
mod change;
mod classifier;
mod event;
mod expiry;
mod group;
mod learned_cookies;
mod mac;
mod meter;
mod mirror;
mod patch;
mod ports;
mod recirculation;
mod references;
mod rule;
mod slots;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod trace;
mod translate;
mod vlans;

pub use bond::{Balance, Bond, LacpState, slb_hash};
pub use classifier::Classifier;
pub use event::{RecordedEvent, RuleEvent};
pub use expiry::{Removal, RemovalReason};
pub use group::Group;
pub use mac::{FormerMac, MacCounts, MacEntry, MacTable, MacTableFull};
pub use meter::Meter;
pub use mirror::{Mirror, MirrorOutput, MirroredPorts};
pub use patch::{Neighbor, Patch};
pub use ports::{BridgePort, Ports, config};
pub use recirculation::{Frozen, Recirculations, Rest};
pub use rule::{Mask, Rule};
pub use tables::Tables;
pub use trace::{Print, Trace};
pub use translate::{Failure, Observe, Translator};
pub use vlans::{PortVlans, ServiceTag, VlanMode};
