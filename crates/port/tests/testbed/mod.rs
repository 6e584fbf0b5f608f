//! Network namespaces for tests: two hosts, and a middle namespace for the ports.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, setns, unshare};
use port::{Frame, Port, PortCounters};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use testing::Attempt;

/// A namespace, which is removed when this value is dropped.
pub struct Namespace(File);

impl Namespace {
    /// Creates a namespace. Returns `None` and prints a note if the test lacks the permission.
    pub fn new() -> Option<Self> {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            ip("link set lo up");
            Ok::<_, nix::Error>(File::open("/proc/thread-self/ns/net").unwrap())
        });
        match made.join().unwrap() {
            Ok(file) => Some(Self(file)),
            Err(error) => {
                testing::skip_because(testing::Need::NetworkNamespaces, error);
                None
            }
        }
    }

    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs a closure on a new thread inside the namespace.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let file = self.0.try_clone().unwrap();
        std::thread::spawn(move || {
            setns(file, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        })
    }

    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.spawn(work).join().unwrap()
    }

    pub fn ip(&self, arguments: &str) {
        let arguments = arguments.to_owned();
        self.run(move || ip(&arguments));
    }
}

pub fn ip(arguments: &str) {
    assert!(try_command("ip", arguments), "ip {arguments}");
}

pub fn try_command(program: &str, arguments: &str) -> bool {
    Command::new(program).args(arguments.split_whitespace()).status().unwrap().success()
}

/// Returns the value for IPv4, and the value for IPv6 if this machine supports IPv6.
pub fn each_family<T>(ipv4: T, ipv6: T) -> Vec<T> {
    if testing::Need::Ipv6.is_met() {
        return vec![ipv4, ipv6];
    }
    testing::skip_part(testing::Need::Ipv6);
    vec![ipv4]
}

/// Two hosts, 10.9.0.1 and .2, fd09::1 and ::2. The peers of their `eth0` are `left` and `right` in
/// the middle namespace.
pub struct Testbed {
    pub left: Namespace,
    pub middle: Namespace,
    pub right: Namespace,
}

impl Testbed {
    pub fn new() -> Option<Self> {
        let (left, middle, right) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        for (number, name, host) in [(1, "left", &left), (2, "right", &right)] {
            let path = host.path();
            middle.ip(&format!("link add {name} type veth peer name eth0 netns {path}"));
            middle.ip(&format!("link set {name} up"));
            host.ip(&format!("address add 10.9.0.{number}/24 dev eth0"));
            if testing::Need::Ipv6.is_met() {
                host.ip(&format!("address add fd09::{number}/64 dev eth0 nodad"));
            }
            host.ip("link set eth0 up");
        }
        Some(Self { left, middle, right })
    }
}

pub struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<[PortCounters; 2]>,
}

impl Forwarder {
    pub fn start(mut ports: [Box<dyn Port>; 2]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || {
                while !stop.load(Ordering::Relaxed) {
                    if forward(&mut ports) == 0 {
                        wait(&ports);
                    }
                }
                ports.map(|mut port| port.counters())
            }
        });
        Self { stop, thread }
    }

    pub fn stop(self) -> [PortCounters; 2] {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Forwards frames while `work` runs. Returns the counters of the ports, which must have lost no
/// frame. Repeats `work` if the machine delays the forwarder, because the ports may then have too
/// little space for all frames.
pub fn forwarded(ports: impl Fn() -> [Box<dyn Port>; 2], work: impl Fn()) -> [PortCounters; 2] {
    let counters = testing::undisturbed("forwarded frames", |_| {
        let forwarder = Forwarder::start(ports());
        work();
        let counters = forwarder.stop();
        match counters.iter().all(|counters| counters.drops() == 0) {
            true => Attempt::Right(counters),
            false => Attempt::Wrong(format!("{counters:?}")),
        }
    });
    counters.unwrap()
}

fn forward(ports: &mut [Box<dyn Port>; 2]) -> usize {
    let mut batch = Vec::new();
    let mut moved = 0;
    for from in 0..2 {
        moved += ports[from].receive(&mut batch, 64).unwrap();
        assert!(batch.is_sorted_by_key(Frame::arrival));
        ports[1 - from].send(&batch).unwrap();
        batch.clear();
    }
    moved
}

fn wait(ports: &[Box<dyn Port>; 2]) {
    let mut fds: Vec<_> = ports
        .iter()
        .filter_map(|port| port.fd())
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
}
