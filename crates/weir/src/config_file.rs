//! Finds a file of settings that no flag names: first the user's file, then the machine's file.

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Finds `NAME` in `$XDG_CONFIG_HOME/weir` (`~/.config/weir` by default), or else in /etc/weir.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let named = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    // The specification tells programs to ignore relative paths.
    let user = named.filter(|path| path.is_absolute()).or_else(home);
    let folders = user.into_iter().chain([PathBuf::from("/etc")]);
    let paths: Vec<_> = folders.map(|folder| folder.join("weir").join(name)).collect();
    let first = |wanted: fn(&PathBuf) -> bool| paths.iter().find(|path| wanted(path)).cloned();
    // Also returns a file in a directory that this user may not enter: the error of the read then
    // names the missing permission.
    first(|path| path.is_file()).or_else(|| first(|path| is_hidden(path)))
}

fn is_hidden(path: &Path) -> bool {
    path.metadata().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}
