//! The syntax of ovs-ofctl and ovs-appctl: rules, groups, packets and megaflows as text.
//!
//! The crate is for programs that read rules from users or files, or show rules. Begin with
//! [`parse_flow_line`] and [`print_dump`].
//!
//! ```
//! use text::{PortNames, parse_actions, print_actions};
//!
//! let names = PortNames::none();
//! let actions = parse_actions("mod_vlan_vid:7,output:2", &names).unwrap();
//! assert_eq!(print_actions(&actions), "mod_vlan_vid:7,output:2");
//! assert!(parse_actions("outptu:2", &names).is_err());
//! ```
//!
//! Normal forms and error texts are the same as in Open vSwitch 3.1. A parsed rule prints to a text
//! that parses to the same value.
//!
//! | module | for |
//! | --- | --- |
//! | `flow`, `dump` | rules: `table=0,ip,nw_dst=10.0.0.0/8 actions=normal` |
//! | `group` | groups |
//! | `matching`, `value`, `normal` | matches |
//! | `action` | actions |
//! | `datapath`, `steps`, `packet` | megaflows and packets in the syntax of `ovs-appctl` |
//! | `compose` | frames from keys |
//! | `connection` | tracked connections |

mod action;
mod address;
mod compose;
mod connection;
mod datapath;
mod dump;
mod error;
mod flags;
mod flow;
mod group;
mod matching;
mod normal;
mod number;
mod packet;
mod port;
mod steps;
mod subfield;
mod token;
mod value;

pub use self::flow::{parse_filter, parse_flow, parse_flow_line};
pub use action::{parse_actions, print_actions, print_actions_with};
pub use compose::compose;
pub use connection::print_connection;
pub use datapath::{print_datapath_flow, print_datapath_key};
pub use dump::print_dump;
pub use error::TextError;
pub use flags::{parse_connection_state, print_connection_state};
pub use group::{parse_bucket, parse_group};
pub use matching::{parse_match, print_match, print_match_with, print_megaflow_match};
pub use normal::normalize;
pub use packet::{parse_datapath_key, parse_datapath_key_with, parse_hex_frame, parse_packet};
pub use port::PortNames;
pub use steps::print_steps;
