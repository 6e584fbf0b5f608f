use crate::HostError;
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A network namespace, which exists while this handle, a process in the namespace or a socket of
/// the namespace exists.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    descriptor: OwnedFd,
}

impl Namespace {
    /// Creates an empty namespace with its loopback up. Only messages use `name`.
    pub fn create(name: &str) -> Result<Self, HostError> {
        let doing = || format!("creating network namespace {name}");
        let descriptor = on_thread(name, || {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| HostError::io(doing(), e))?;
            let descriptor = open_own()?;
            crate::wiring::bring_up_here("lo")?;
            Ok(descriptor)
        })?;
        Ok(Self { name: name.to_owned(), descriptor })
    }

    /// Returns the namespace of the calling thread.
    pub fn current() -> Result<Self, HostError> {
        Ok(Self { name: "(this one)".to_owned(), descriptor: open_own()? })
    }

    /// Opens a namespace of `ip netns`, a path such as `/proc/123/ns/net`, or `pid:123`.
    pub fn named(name: &str) -> Result<Self, HostError> {
        let path = match name.strip_prefix("pid:") {
            Some(pid) => Path::new("/proc").join(pid).join("ns/net"),
            None if name.contains('/') => Path::new(name).to_owned(),
            None => Path::new("/run/netns").join(name),
        };
        let file = File::open(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => HostError::NoSuchNamespace { name: name.to_owned() },
            _ => HostError::io(format!("opening {}", path.display()), source),
        })?;
        Ok(Self { name: name.to_owned(), descriptor: file.into() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread into this namespace until the thread ends.
    pub fn enter(&self) -> Result<(), HostError> {
        setns(&self.descriptor, CloneFlags::CLONE_NEWNET)
            .map_err(|e| HostError::io(format!("entering network namespace {}", self.name), e))
    }

    /// Runs `work` on a thread inside this namespace and waits until it ends.
    pub fn run<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, HostError> + Send,
    ) -> Result<T, HostError> {
        on_thread(&self.name, || {
            self.enter()?;
            work()
        })
    }

    /// Returns a second handle of the same namespace.
    pub fn share(&self) -> Result<Self, HostError> {
        let descriptor = self
            .descriptor
            .try_clone()
            .map_err(|e| HostError::io(format!("sharing network namespace {}", self.name), e))?;
        Ok(Self { name: self.name.clone(), descriptor })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Opens the calling thread's namespace; `/proc/self` would be the main thread's.
fn open_own() -> Result<OwnedFd, HostError> {
    File::open("/proc/thread-self/ns/net")
        .map(OwnedFd::from)
        .map_err(|e| HostError::io("opening the thread's network namespace", e))
}

fn on_thread<T: Send>(
    name: &str,
    work: impl FnOnce() -> Result<T, HostError> + Send,
) -> Result<T, HostError> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new()
            .name(format!("in {}", name.replace('\0', "")))
            .spawn_scoped(scope, work)
            .map_err(|e| HostError::io("starting a thread", e))?;
        match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
