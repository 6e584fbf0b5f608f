//! A new network namespace with `lo` up, on a separate thread.

use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};

/// Runs `test` in a new namespace, or prints why this machine allows no new namespace. The
/// namespace ends with the thread and the sockets opened on it.
pub(crate) fn run(test: impl FnOnce() + Send + 'static) {
    let ran = std::thread::spawn(move || {
        match unshare(CloneFlags::CLONE_NEWNET) {
            Err(errno @ (Errno::EPERM | Errno::EINVAL)) => {
                return testing::skip_because(testing::Need::NetworkNamespaces, errno);
            }
            made => made.unwrap(),
        }
        match Command::new("ip").args(["link", "set", "lo", "up"]).status() {
            Err(_) => return testing::skip(testing::Need::Program("ip")),
            Ok(status) => assert!(status.success(), "ip link set lo up: {status}"),
        }
        test();
    });
    if let Err(panic) = ran.join() {
        std::panic::resume_unwind(panic);
    }
}
