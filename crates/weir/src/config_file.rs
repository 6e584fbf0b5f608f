//! Files with settings that no flag names: the user's first, then the machine's.

use std::env;
use std::path::PathBuf;

/// `NAME` in `$XDG_CONFIG_HOME/weir` (`~/.config/weir` by default), or else in /etc/weir.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let named = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    // The specification tells programs to ignore relative paths.
    let user = named.filter(|path| path.is_absolute()).or_else(home);
    let folders = user.into_iter().chain([PathBuf::from("/etc")]);
    folders.map(|folder| folder.join("weir").join(name)).find(|path| path.is_file())
}
