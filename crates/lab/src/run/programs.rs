//! The identities of programs: a comparison of two runs has to show that both ran the same ones.
//! A build ID differs between builds of the same version.

use crate::LabFile;
use crate::file::words;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The build ID of this program.
pub(super) fn own_build() -> Option<String> {
    identity(Path::new("/proc/self/exe"))
}

/// `hysteria 12345678 bytes, quictun-server build 1f…`: the programs that the lab's own commands
/// start, without Weir itself. Omits those that are not installed.
pub(super) fn started_by(lab: &LabFile) -> String {
    let commands = lab.commands(&[]);
    let mut names: Vec<String> =
        commands.iter().filter_map(|command| words(command.line).into_iter().next()).collect();
    if lab.workload.get_ref().kind.get_ref() == "download" {
        names.push("nginx".to_owned());
    }
    names.retain(|name| !name.contains('{'));
    names.sort();
    names.dedup();
    let found = names.iter().filter_map(|name| {
        let path = PathBuf::from(name);
        Some(format!("{} {}", path.file_name()?.to_string_lossy(), identity(&installed(name)?)?))
    });
    found.collect::<Vec<_>>().join(", ")
}

/// The file of a program, which may be a path or a name.
fn installed(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// `build 1f…`, or the size of a file without a build ID, such as a script.
fn identity(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut start = Vec::new();
    file.take(NOTES).read_to_end(&mut start).ok()?;
    Some(build_id(&start).unwrap_or_else(|| format!("{length} bytes")))
}

/// The linker's NT_GNU_BUILD_ID note: sizes of name and text, its type and its name (elf(5)). It
/// lies near the start of a file.
fn build_id(start: &[u8]) -> Option<String> {
    let place = start.windows(NOTE.len()).position(|part| part == NOTE)?;
    let id = start.get(place + NOTE.len()..)?.get(..ID)?;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("build {hex}"))
}

/// Folders of daemons, which an ordinary user's PATH omits.
const SYSTEM: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
const NOTES: u64 = 64 << 10;
const ID: usize = 20;
const NOTE: [u8; 16] = *b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_found_behind_its_note() {
        let file = [&b"\x7fELF..."[..], &NOTE, &[0xab; ID], b"rest"].concat();
        assert_eq!(build_id(&file).unwrap(), format!("build {}", "ab".repeat(ID)));
        assert_eq!(build_id(&file[..30]), None);
        assert_eq!(build_id(b"#!/bin/sh"), None);
    }

    #[test]
    fn a_program_without_one_is_identified_by_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(identity(&script).unwrap(), "10 bytes");
        assert_eq!(identity(&folder.path().join("none")), None);
        assert!(own_build().is_some());
    }
}
