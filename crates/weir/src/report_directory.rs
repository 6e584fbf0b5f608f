//! The directory that a verb's `--report` names.

use crate::exit::Unusable;
use anyhow::Context;
use std::path::Path;

/// Finds out before a measurement whether its report can be written. A directory that holds
/// something is refused.
pub(crate) fn check(directory: &Path) -> anyhow::Result<()> {
    let absent = directory.ancestors().filter(|path| !path.as_os_str().is_empty());
    let absent: Vec<&Path> = absent.take_while(|path| !path.exists()).collect();
    std::fs::create_dir_all(directory)
        .map_err(|cause| Unusable::path("create", directory, &cause, "--report"))?;
    let held =
        || std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.file_name()).next();
    if let Some(name) = held() {
        return Err(Unusable::held(directory, &name, "--report").into());
    }
    let trial = directory.join(".weir");
    std::fs::write(&trial, "")
        .and_then(|()| std::fs::remove_file(&trial))
        .map_err(|cause| Unusable::path("write to", directory, &cause, "--report"))?;
    // A measurement that never begins leaves nothing behind.
    absent.iter().try_for_each(std::fs::remove_dir).context("removing an empty directory")
}
