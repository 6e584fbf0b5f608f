//! Takes from a running program the rights that it no longer needs.
//!
//! [`confine`] drops capabilities, denies files outside the program's directories (Landlock) and
//! refuses system calls that the program never makes (seccomp). Rights belong to threads: a thread
//! passes its rights to the threads that it starts. [`OtherThreads`] runs single tasks under rights
//! that the other threads do not have.

mod calls;
mod other_threads;
mod paths;
mod rights;

pub use calls::Calls;
pub use other_threads::OtherThreads;
pub use paths::ConfinedPaths;
pub use rights::{User, UserError, become_user};

use rustix::thread::CapabilitySet;
use std::fmt::{Display, Formatter};

/// The rights that a program keeps.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Capabilities that later work needs; the process loses all others for good.
    pub capabilities: CapabilitySet,
    /// Files and directories of the system that the program reads, such as [`LIBRARIES`].
    pub system: &'static [&'static [&'static str]],
    /// System calls beyond those of every program.
    pub calls: &'static [Calls],
}

/// Directories of the system's libraries.
pub const LIBRARIES: &[&str] = &["/lib", "/lib64", "/usr/lib", "/usr/lib64"];

/// The parts of the confinement that are in force on this kernel.
#[derive(Debug)]
pub struct Confinement {
    files: bool,
    calls: bool,
    /// A sentence for each part that is not in force.
    warnings: Vec<String>,
}

/// Confines this thread, and threads that it starts later, permanently. A thread that runs already
/// keeps its rights. If the kernel lacks a part, the program runs without the part.
pub fn confine(policy: &Policy, paths: &ConfinedPaths) -> Confinement {
    confine_parts(policy, Some(paths))
}

/// Confines as [`confine`] does, but leaves the files to the user's rights: under Landlock a thread
/// cannot inspect other processes.
pub fn confine_calls(policy: &Policy) -> Confinement {
    confine_parts(policy, None)
}

fn confine_parts(policy: &Policy, paths: Option<&ConfinedPaths>) -> Confinement {
    let mut warnings = Vec::new();
    if let Err(error) = rights::keep_only(policy.capabilities) {
        warnings.push(format!("this process keeps all its capabilities: {error}"));
    }
    let files = paths.map_or(Ok(false), |paths| paths.enforce(policy.system));
    let files = files.unwrap_or_else(|error| {
        warnings
            .push(format!("this process can still open files outside its directories: {error}"));
        false
    });
    let calls = calls::allow_only(policy.calls).map(|()| true).unwrap_or_else(|error| {
        warnings.push(format!("this process can still make every system call: {error}"));
        false
    });
    Confinement { files, calls, warnings }
}

impl Confinement {
    /// Whether the kernel enforces the confinement of files and of system calls.
    pub fn is_whole(&self) -> bool {
        self.files && self.calls && self.warnings.is_empty()
    }

    /// Whether the kernel refuses system calls that the policy does not name.
    pub fn has_calls(&self) -> bool {
        self.calls
    }

    /// Whether the kernel denies files outside the program's directories.
    pub fn has_files(&self) -> bool {
        self.files
    }

    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl Display for Confinement {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.files, self.calls) {
            (true, true) => "confined by Landlock and seccomp",
            (true, false) => "confined by Landlock; the kernel took no seccomp filter",
            (false, true) => "confined by seccomp, without Landlock",
            (false, false) => "not confined: the kernel has neither Landlock nor seccomp",
        })
    }
}
