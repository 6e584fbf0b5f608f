//! Compiled programs into the kernel.

use crate::AccelError;
use libbpf_rs::{ErrorKind, MapCore, Object, ObjectBuilder, OpenObject, PrintLevel, set_print};
use std::sync::Mutex;

/// A compiled object before it is loaded: what it may still be told.
#[derive(Debug)]
pub struct Spec {
    what: &'static str,
    open: OpenObject,
}

/// An object in the kernel. What is not pinned or attached leaves the kernel with it.
#[derive(Debug)]
pub struct Loaded {
    what: &'static str,
    object: Object,
}

impl Spec {
    /// `what` is for messages.
    pub fn open(what: &'static str, elf: &[u8]) -> Result<Self, AccelError> {
        let open = told(what, || ObjectBuilder::default().open_memory(elf))?;
        Ok(Self { what, open })
    }

    pub fn load(self) -> Result<Loaded, AccelError> {
        let Self { what, open } = self;
        Ok(Loaded { what, object: told(what, || open.load())? })
    }
}

impl Loaded {
    pub fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, AccelError> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.ok_or_else(|| self.lacks())
    }

    pub fn program(&self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>, AccelError> {
        let found = self.object.progs_mut().find(|program| program.name() == name);
        found.ok_or_else(|| self.lacks())
    }

    /// With what libbpf says of it, should it fail.
    pub fn doing<T>(
        &self,
        work: impl FnOnce(&Self) -> libbpf_rs::Result<T>,
    ) -> Result<T, AccelError> {
        told(self.what, || work(self))
    }

    fn lacks(&self) -> AccelError {
        AccelError::Refused {
            what: self.what,
            log: String::new(),
            source: libbpf_rs::Error::from_raw_os_error(libc::ENOENT),
        }
    }
}

/// Keeps what libbpf and the verifier say, for the error. One at a time: it is told to one place.
pub(crate) fn told<T>(
    what: &'static str,
    work: impl FnOnce() -> libbpf_rs::Result<T>,
) -> Result<T, AccelError> {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    if let Ok(mut said) = SAID.lock() {
        said.clear();
    }
    let before = set_print(Some((PrintLevel::Warn, |_, text| {
        if let Ok(mut said) = SAID.lock() {
            said.push_str(&text);
        }
    })));
    let outcome = work();
    set_print(before);
    let log = SAID.lock().map(|mut said| std::mem::take(&mut *said)).unwrap_or_default();
    outcome.map_err(|source| match source.kind() {
        ErrorKind::PermissionDenied => AccelError::NotPermitted { doing: what },
        _ => AccelError::Refused { what, log, source },
    })
}

static SAID: Mutex<String> = Mutex::new(String::new());
