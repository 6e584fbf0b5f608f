//! Network namespaces. Each namespace has its own list of connections.

use crate::AccelError;
use host::Namespace;
use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

/// The identity of another namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamespaceId {
    /// A process with at least one thread in the namespace.
    Process(u32),
    /// A name of `ip netns`.
    Named(String),
}

/// Runs `work` in this namespace, and then in every other namespace that a process, a thread or a
/// name of `ip netns` keeps alive. Skips a namespace that has ended by then and so has no
/// connections left.
pub(crate) fn run_in_each<T: Send>(
    work: impl Fn(Option<&NamespaceId>) -> Result<T, AccelError> + Sync,
) -> Result<Vec<T>, AccelError> {
    let mut done = vec![work(None)?];
    for (inside, path) in others() {
        let outcome = Namespace::named(&path.display().to_string())
            .and_then(|namespace| namespace.run(|| Ok(work(Some(&inside)))));
        if let Ok(outcome) = outcome {
            done.push(outcome?);
        }
    }
    Ok(done)
}

/// Finds the namespace with this number, if it still exists.
pub(crate) fn numbered(wanted: u64) -> Option<Namespace> {
    let path = others()
        .into_iter()
        .map(|(_, path)| path)
        .find(|path| number(path).is_some_and(|(_, number)| number == wanted))?;
    Namespace::named(&path.display().to_string()).ok()
}

/// Returns the path of this network namespace under its name of `ip netns`, or a path with a
/// placeholder.
pub(crate) fn path_here() -> PathBuf {
    let here = number(&PathBuf::from(HERE));
    let mut paths = names(NAMED).into_iter().map(|name| PathBuf::from(NAMED).join(name));
    let found = here.and_then(|here| paths.find(|path| number(path) == Some(here)));
    found.unwrap_or_else(|| PathBuf::from(NAMED).join("NAME"))
}

fn others() -> Vec<(NamespaceId, PathBuf)> {
    let mut seen: HashSet<_> = number(&PathBuf::from(HERE)).into_iter().collect();
    let mut found = Vec::new();
    let mut consider = |path: PathBuf, inside: NamespaceId| {
        if number(&path).is_some_and(|number| seen.insert(number)) {
            found.push((inside, path));
        }
    };
    for name in names(NAMED) {
        consider(PathBuf::from(NAMED).join(&name), NamespaceId::Named(name));
    }
    for process in names("/proc").iter().filter_map(|name| name.parse::<u32>().ok()) {
        for thread in names(&format!("/proc/{process}/task")) {
            let path = format!("/proc/{process}/task/{thread}/ns/net");
            consider(path.into(), NamespaceId::Process(process));
        }
    }
    found
}

/// Identifies a namespace's file: a namespace is one file under any number of paths.
fn number(path: &PathBuf) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The directory of `ip netns`.
const NAMED: &str = "/run/netns";
const HERE: &str = "/proc/thread-self/ns/net";
