//! Hosts made of network namespaces: the machines of an experiment.
//!
//! A [`Namespace`] has no name in the file system: only a file descriptor keeps it. A [`Confined`]
//! process runs in a new process namespace and ends with the thread that keeps it. So the kernel
//! removes all processes, namespaces, interfaces and queues of a program however the program ends,
//! even by `kill -9`.
//!
//! Programs of one user find one another by sockets in the file system. A [`PrivateDirectory`]
//! belongs to that user alone, a [`SocketFile`] removes only dead sockets, and [`ListeningProcess`]
//! is the process that listens at a socket, as the kernel reports it. Files that the user names are
//! read and written by [`open_regular_file`] and [`open_output_file`]: another user cannot make a
//! command wait, or write to another file.
//!
//! A program that listens to the network gives up the rights that it no longer needs: [`confine`].

mod background;
mod confined;
mod confinement;
mod cycles;
mod error;
mod freed_memory;
mod interfaces;
mod listening_process;
mod metrics_address;
mod metrics_http;
mod metrics_listener;
mod namespace;
mod output_file;
mod path_above;
mod private_directory;
mod privilege;
mod program;
mod regular_file;
mod scheduling;
mod socket_file;
mod steering;
mod sysctl;
mod wiring;

pub use background::prepare_background;
pub use confined::{Confined, Ended, Program};
pub use confinement::{
    Calls, ConfinedPaths, Confinement, LIBRARIES, OtherThreads, Policy, User, UserError,
    become_user, confine, confine_calls,
};
pub use cycles::cycles;
pub use error::HostError;
pub use freed_memory::FreedMemory;
pub use interfaces::{
    addresses, hardware_address, has_interface, remove_interface, silent_namespace,
};
pub use listening_process::ListeningProcess;
pub use metrics_address::MetricsAddress;
pub use metrics_http::{HttpResponse, LONGEST_HTTP_REQUEST, http_response, is_whole_http_request};
pub use metrics_listener::MetricsListener;
pub use namespace::Namespace;
pub use output_file::{Earlier, open_output_file, open_regular_output};
pub use private_directory::{PrivateDirectory, RemovedWhenEmpty};
pub use privilege::{Privilege, acquire, confine_as_user};
pub use program::is_installed;
pub use regular_file::{open_regular_file, read_regular_bytes, read_regular_file};
pub use scheduling::{online_cpus, pin_to, precise_timers, real_time, usual_scheduling};
pub use socket_file::{BoundFile, SocketFile};
pub use steering::steer_receiving;
pub use sysctl::{Sysctl, read_sysctl, write_sysctl};
pub use wiring::{
    Address, Route, add_address, add_first_window, add_neighbour, add_route, bring_up, connect,
};
