//! The grammar of a lab file: an experiment in TOML.
//!
//! [`Document`] is the file as written. Its methods check and fill in the parts that do not depend
//! on the workload: names, axes, forms, links, systems. [`LabFile`](crate::bench::LabFile) adds the
//! workload. Every error names the file, the line and, where a similar word exists, the right
//! spelling.

pub(crate) mod ansible;
mod answer;
pub(crate) mod axes;
mod change;
mod check;
mod command_line;
mod conditions;
mod disturbance;
mod draw;
mod ends;
mod figure;
mod host_table;
mod link;
mod locate;
mod middle;
mod part;
mod placeholders;
mod population;
mod primary;
mod schema;
mod settings;
mod state;
mod system;
mod tcp;
mod topology;
mod words;
mod workload_table;

pub use change::ChangeSpec;
pub(crate) use check::{COMMAND_WORDS, baselines};
pub(crate) use command_line::{WORDS as WORDS_OF_COMMANDS, command_words};
pub(crate) use disturbance::Disturbance;
pub use disturbance::DisturbanceSpec;
pub use draw::{DrawSpec, EitherSpec};
pub use ends::Ends;
pub(crate) use ends::{Loopback, SHARED_KEYS, STREAMS, TO, VIA};
pub use host_table::HostSpec;
pub(crate) use host_table::with_port;
pub(crate) use link::text_of_trace;
pub use link::{DirectionSettings, Directions, LinkSettings, Medium, Senders};
pub use locate::FileError;
pub use part::Part;
pub(crate) use placeholders::fill;
pub use population::PopulationSpec;
pub use primary::PrimarySpec;
pub use schema::{
    CellFilter, CompareSpec, Document, FormSpec, HeatSpec, Pinning, ReferenceSpec, SpreadSpec,
    SystemKind, SystemSpec, TraceSpec, Traffic, ViewSpec,
};
pub(crate) use state::{AFTER, BEFORE, ChangedEnd};
pub use state::{SideSpec, StateSpec};
pub use system::SystemSettings;
pub use tcp::TcpSpec;
pub use topology::{Rtts, Shape, TopologySettings, TopologySpec};
pub(crate) use words::{open_quote, words};
pub use workload_table::{Better, FigureSpec, OneWay, WorkloadTable};
pub(crate) use workload_table::{Key, bounded};
