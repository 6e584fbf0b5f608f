//! Hosts made of network namespaces: what an experiment builds its machines from.
//!
//! A [`Namespace`] is held by a file descriptor alone and bears no name in the file system; a
//! [`Confined`] process lives in its own process namespace and dies with the thread that keeps it.
//! So whatever ends the program that made them, `kill -9` included, the kernel takes all of it back:
//! processes, namespaces, and the interfaces and queues inside.
//!
//! Programs of one user find one another by sockets in the file system: a [`PrivateDirectory`] is that user's alone,
//! a [`SocketFile`] removes nothing but dead sockets, and [`ListeningProcess`] is the kernel's word for who answers.

mod confined;
mod error;
mod interfaces;
mod listening_process;
mod namespace;
mod private_directory;
mod privilege;
mod scheduling;
mod socket_file;
mod steering;
mod sysctl;
mod wiring;

pub use confined::{Confined, Program};
pub use error::HostError;
pub use interfaces::{addresses, has_interface, remove_interface, silent_namespace};
pub use listening_process::ListeningProcess;
pub use namespace::Namespace;
pub use private_directory::PrivateDirectory;
pub use privilege::{Privilege, acquire};
pub use scheduling::{online_cpus, pin_to, precise_timers, real_time};
pub use socket_file::{BoundFile, SocketFile};
pub use steering::steer_receiving;
pub use sysctl::{Sysctl, read_sysctl, write_sysctl};
pub use wiring::{Address, Route, add_address, add_neighbour, add_route, bring_up, connect};
