//! The folder into which `scripts/peers` puts the programs of other projects.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Whether a lab finds the program: by its path, in `PATH`, among the system's daemons, or among
/// the peers.
pub(super) fn is_found(program: &str) -> bool {
    let is_there = |folder: PathBuf| folder.join(program).to_str().is_some_and(host::is_installed);
    host::is_installed(program) || (!program.contains('/') && further().any(is_there))
}

/// Returns the value of `PATH` for the programs of a lab.
pub(crate) fn search_path() -> OsString {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&own).chain(further()).collect();
    // A folder with a colon in its name cannot be in PATH.
    std::env::join_paths(folders).unwrap_or(own)
}

/// Returns the folders that a lab searches after the folders of `PATH`.
fn further() -> impl Iterator<Item = PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let peers = folder_of(
        variable("WEIR_PEERS").as_deref().map(Path::new),
        variable("XDG_DATA_HOME").as_deref().map(Path::new),
        variable("HOME").as_deref().map(Path::new),
    );
    SYSTEM.map(PathBuf::from).into_iter().chain(peers)
}

/// Returns the folder into which `scripts/peers` installs programs.
fn folder_of(named: Option<&Path>, data: Option<&Path>, home: Option<&Path>) -> Option<PathBuf> {
    let own = || data.map(Path::to_owned).or_else(|| Some(home?.join(".local/share")));
    let folder = match named {
        Some(named) => named.to_owned(),
        None => own()?.join("weir/peers"),
    };
    folder.is_absolute().then_some(folder)
}

/// Folders of daemons that an ordinary user's PATH omits.
const SYSTEM: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_peers_is_absolute_and_as_documented() {
        type Place = Option<&'static str>;
        let at = |named: Place, data: Place, home: Place| {
            let [named, data, home] = [named, data, home].map(|place| place.map(Path::new));
            folder_of(named, data, home)
        };
        assert_eq!(at(Some("/p"), Some("/d"), Some("/h")), Some("/p".into()));
        assert_eq!(at(None, Some("/d"), Some("/h")), Some("/d/weir/peers".into()));
        assert_eq!(at(None, None, Some("/h")), Some("/h/.local/share/weir/peers".into()));
        assert_eq!(at(Some("p"), None, Some("/h")), None);
        assert_eq!(at(None, None, None), None);
    }
}
