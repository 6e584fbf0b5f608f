//! Loads compiled programs into the kernel.

use crate::AccelError;
use libbpf_rs::{
    ErrorKind, MapCore, MapMut, Object, ObjectBuilder, OpenObject, PrintLevel, set_print,
};
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Mutex;

/// A compiled object before it is loaded, while it can still be configured.
#[derive(Debug)]
pub struct Spec {
    what: &'static str,
    open: OpenObject,
}

/// A loaded object. Dropping the object unloads the parts that are neither pinned nor attached.
#[derive(Debug)]
pub struct Loaded {
    what: &'static str,
    object: Object,
}

impl Spec {
    /// Opens a compiled object. `what` is the name of the object in messages.
    pub fn open(what: &'static str, elf: &[u8]) -> Result<Self, AccelError> {
        let open = with_libbpf_log(what, || ObjectBuilder::default().open_memory(elf))?;
        Ok(Self { what, open })
    }

    /// Makes the load create the variant `wanted` of a map, and no other variant in `forms`.
    /// libbpf's `?` of a section applies only to the first map of the section.
    pub(crate) fn create_only(&mut self, wanted: &str, forms: &[&str]) -> Result<(), AccelError> {
        let what = self.what;
        let of_these = |name: &OsStr| forms.iter().any(|form| name == *form);
        for mut map in self.open.maps_mut().filter(|map| of_these(map.name())) {
            let make = map.name() == wanted;
            with_libbpf_log(what, || map.set_autocreate(make))?;
        }
        Ok(())
    }

    pub(crate) fn leave_out(&mut self, program: &str) -> Result<(), AccelError> {
        let what = self.what;
        let found = self.open.progs_mut().find(|found| found.name() == program);
        found.ok_or_else(|| lacks(what))?.set_autoload(false);
        Ok(())
    }

    /// Sets the name under which a struct_ops is registered.
    pub(crate) fn rename(&mut self, ops: &str, from: &str, to: &str) -> Result<(), AccelError> {
        let what = self.what;
        let refuse = |problem: &str| AccelError::Usage(format!("`{to}`: {problem}"));
        // TCP_CA_NAME_MAX of include/net/tcp.h, with the final zero; bpf_obj_name_cpy() of
        // kernel/bpf/syscall.c.
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if !(1..NAME_ROOM).contains(&to.len()) || !to.chars().all(allowed) {
            return Err(refuse("an algorithm's name has 1 to 15 letters, digits, `_` and `.`"));
        }
        let found = self.open.maps_mut().find(|found| found.name() == ops);
        let mut found = found.ok_or_else(|| lacks(what))?;
        let value = found.initial_value_mut().ok_or_else(|| lacks(what))?;
        let mut field = [0; NAME_ROOM];
        field[..from.len()].copy_from_slice(from.as_bytes());
        let at = value.windows(NAME_ROOM).position(|bytes| bytes == field);
        let at = at.ok_or_else(|| lacks(what))?;
        value[at..at + NAME_ROOM].fill(0);
        value[at..at + to.len()].copy_from_slice(to.as_bytes());
        Ok(())
    }

    /// Uses a pinned map of another object instead of its own map.
    pub(crate) fn reuse(&mut self, map: &str, pin: &Path) -> Result<(), AccelError> {
        let what = self.what;
        let found = self.open.maps_mut().find(|found| found.name() == map);
        let mut found = found.ok_or_else(|| lacks(what))?;
        with_libbpf_log(what, || found.reuse_pinned_map(pin))
    }

    /// Uses the unpinned map of another object instead of its own map.
    pub(crate) fn share(&mut self, map: &str, other: &Loaded) -> Result<(), AccelError> {
        let what = self.what;
        let theirs = other.map(map)?;
        let found = self.open.maps_mut().find(|found| found.name() == map);
        let mut found = found.ok_or_else(|| lacks(what))?;
        with_libbpf_log(what, || found.reuse_fd(theirs.as_fd()))
    }

    pub fn load(self) -> Result<Loaded, AccelError> {
        let Self { what, open } = self;
        Ok(Loaded { what, object: with_libbpf_log(what, || open.load())? })
    }
}

impl Loaded {
    pub fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, AccelError> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.ok_or_else(|| lacks(self.what))
    }

    pub(crate) fn map_mut(&mut self, name: &str) -> Result<MapMut<'_>, AccelError> {
        let what = self.what;
        let found = self.object.maps_mut().find(|map| map.name() == name);
        found.ok_or_else(|| lacks(what))
    }

    pub fn program(&self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>, AccelError> {
        let found = self.object.progs_mut().find(|program| program.name() == name);
        found.ok_or_else(|| lacks(self.what))
    }
}

fn lacks(what: &'static str) -> AccelError {
    AccelError::Refused {
        what,
        log: String::new(),
        source: libbpf_rs::Error::from_raw_os_error(libc::ENOENT),
    }
}

/// Collects the output of libbpf and the verifier for the error. Runs one `work` at a time: the
/// output has a single global callback.
pub(crate) fn with_libbpf_log<T>(
    what: &'static str,
    work: impl FnOnce() -> libbpf_rs::Result<T>,
) -> Result<T, AccelError> {
    static LOCK: Mutex<()> = Mutex::new(());
    let _lock = LOCK.lock();
    if let Ok(mut log) = LOG.lock() {
        log.clear();
    }
    let before = set_print(Some((PrintLevel::Warn, |_, text| {
        if let Ok(mut log) = LOG.lock() {
            log.push_str(&text);
        }
    })));
    let outcome = work();
    set_print(before);
    let log = LOG.lock().map(|mut log| std::mem::take(&mut *log)).unwrap_or_default();
    outcome.map_err(|source| match source.kind() {
        // An error after a refusal by the verifier has a log; an error for lack of permission has
        // no log.
        ErrorKind::PermissionDenied if !log.contains("PROG LOAD LOG") => {
            AccelError::NotPermitted { doing: what }
        }
        _ => AccelError::Refused { what, log, source },
    })
}

const NAME_ROOM: usize = 16;
static LOG: Mutex<String> = Mutex::new(String::new());

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// The binary contains the objects, and must be the same for every build directory.
    #[test]
    fn no_compiled_object_names_the_build_directory() {
        let headers = Path::new(env!("OUT_DIR")).ancestors().nth(2).unwrap();
        let folders = [env!("CARGO_MANIFEST_DIR"), headers.to_str().unwrap()];
        let entries = fs::read_dir(env!("OUT_DIR")).unwrap().map(|entry| entry.unwrap().path());
        let objects: Vec<_> =
            entries.filter(|path| path.to_string_lossy().ends_with(".bpf.o")).collect();
        assert!(!objects.is_empty());
        for path in objects {
            let object = fs::read(&path).unwrap();
            for folder in folders {
                let named = object.windows(folder.len()).any(|bytes| bytes == folder.as_bytes());
                assert!(!named, "{} names {folder}", path.display());
            }
        }
    }
}
