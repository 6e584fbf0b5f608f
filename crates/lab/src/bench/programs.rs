//! The identities of programs. A comparison of two runs has to show that the two runs ran the same
//! programs. A build ID differs between builds of the same version; a checksum identifies any file.

use super::go_build;
use crate::bench::LabFile;
use crate::bench::machine::search_path;
use crate::model::LabError;
use crate::model::checksum::hex;
use crate::model::file::{SystemKind, SystemSpec, Traffic, words};
use aws_lc_rs::digest::{Context, SHA256};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Returns the build ID and the checksum of this program.
pub(crate) fn own() -> Map<String, Value> {
    identity(Path::new(OWN)).unwrap_or_default()
}

/// Returns the checksum of this program.
pub(crate) fn own_sha256() -> Result<String, LabError> {
    let sha256 = own().get("sha256").and_then(Value::as_str).map(str::to_owned);
    sha256.ok_or_else(|| {
        LabError::Usage("the checksum of this program cannot be read: is /proc mounted?".to_owned())
    })
}

/// Returns every program that the lab's own commands start, without Weir itself: its file,
/// checksum, build ID and version, as far as they are known. Omits programs that are not installed.
pub(crate) fn started_by(lab: &LabFile) -> Map<String, Value> {
    let mut names: Vec<(String, Option<Vec<String>>)> = Vec::new();
    for system in lab.systems() {
        let own = lab.kind().programs(system).iter();
        names.extend(own.copied().chain(system.traffic().peer()).map(|name| {
            let version = [name, "--version"].map(str::to_owned);
            (name.to_owned(), Some(version.into()))
        }));
        // The lab does not ask the workload's programs for a version, because some programs do not
        // take --version.
        names.extend(lab.kind().programs_of(lab, system).into_iter().map(|name| (name, None)));
        names.extend(behind(system));
    }
    if lab.workload.get_ref().kind.get_ref() == "download" {
        names.push(("nginx".to_owned(), Some(["nginx", "-v"].map(str::to_owned).into())));
    }
    names.push(("iperf3".to_owned(), Some(["iperf3", "--version"].map(str::to_owned).into())));
    let mut found = Map::new();
    for (program, version) in names {
        let name = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(name) = name.filter(|name| !name.contains('{') && !found.contains_key(name))
        else {
            continue;
        };
        let Some(file) = installed(&program) else { continue };
        let Some(mut facts) = identity(&file) else { continue };
        facts.insert("file".to_owned(), file.display().to_string().into());
        if let Some(version) = version.as_deref().and_then(version_of) {
            facts.insert("version".to_owned(), version.into());
        }
        facts.extend(of_go(&file).unwrap_or_default());
        found.insert(name, facts.into());
    }
    found
}

/// Returns the commands and files of the external systems, with their placeholders, and the notes
/// about the settings of packet switches. A changed configuration of a peer changes the figures as
/// much as a changed program.
pub(crate) fn configurations(lab: &LabFile) -> Map<String, Value> {
    let mut all = Map::new();
    for system in lab.systems().filter(|system| system.kind == SystemKind::External) {
        let mut one = Map::new();
        let texts = [
            ("server", &system.server),
            ("client", &system.client),
            ("connect", &system.connect),
            ("congestion", &system.congestion),
            ("version", &system.version),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                one.insert(name.to_owned(), text.get_ref().as_str().into());
            }
        }
        let files: Map<String, Value> = system
            .files
            .iter()
            .map(|(name, text)| (name.get_ref().clone(), text.get_ref().as_str().into()))
            .collect();
        if !files.is_empty() {
            one.insert("files".to_owned(), files.into());
        }
        all.insert(system.name().to_owned(), one.into());
    }
    let switches = lab.systems().filter(|system| system.kind == SystemKind::Switch);
    for system in switches.filter(|system| !system.note.is_empty()) {
        let settings = Map::from_iter([("settings".to_owned(), system.note.as_str().into())]);
        all.insert(system.name().to_owned(), settings.into());
    }
    all
}

/// Returns the names of the programs that a run of these systems starts. These names are the keys
/// of [`started_by`].
pub(crate) fn names_of(lab: &LabFile, systems: &[SystemSpec]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for system in systems {
        let own = crate::bench::workload::programs(lab, system).into_iter();
        let base =
            |name: String| Path::new(&name).file_name().map(|n| n.to_string_lossy().into_owned());
        names.extend(own.filter_map(base));
        names.extend(behind(system).into_iter().filter_map(|(program, _)| base(program)));
        if system.traffic() == Traffic::Iperf3 {
            names.push("iperf3".to_owned());
        }
    }
    if lab.workload.get_ref().kind.get_ref() == "download" {
        names.push("nginx".to_owned());
    }
    names.sort();
    names.dedup();
    names
}

/// Returns the programs of a system's commands, each with the command that prints its version: the
/// first words of the commands or, if a shell starts other programs, the programs that the system
/// `needs`.
fn behind(system: &SystemSpec) -> Vec<(String, Option<Vec<String>>)> {
    let version = system.version.as_ref().map(|command| words(command.get_ref()));
    if !system.needs.is_empty() {
        let its = |name: &String| version.clone().filter(|command| command.first() == Some(name));
        return system.needs.iter().map(|name| (name.clone(), its(name))).collect();
    }
    [&system.server, &system.client]
        .into_iter()
        .flatten()
        .filter_map(|command| words(command.get_ref()).into_iter().next())
        .map(|program| (program, version.clone()))
        .collect()
}

/// Returns the version that a program prints, without the banner that some programs print first.
fn version_of(command: &[String]) -> Option<String> {
    let (program, flags) = command.split_first()?;
    let program = installed(program)?;
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let text = probe::machine::program_text(program.to_str()?, &flags).ok()?;
    let lines = text.lines().map(str::trim).filter(|line| line.contains(char::is_alphanumeric));
    let lines: Vec<String> = lines.take(LINES).map(single_spaced).collect();
    Some(lines.join("; ")).filter(|version| !version.is_empty())
}

fn single_spaced(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Finds the file of a program, which may be named by its path or by its name.
fn installed(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|file| file.is_file());
    }
    std::env::split_paths(&search_path())
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Returns the checksum of a file, and its build ID if it has one.
fn identity(path: &Path) -> Option<Map<String, Value>> {
    let mut file = File::open(path).ok()?;
    let (mut context, mut start) = (Context::new(&SHA256), Vec::new());
    let mut room = vec![0; PIECE];
    loop {
        match file.read(&mut room).ok()? {
            0 => break,
            count => {
                let piece = room.get(..count)?;
                context.update(piece);
                let missing = NOTES.saturating_sub(start.len());
                start.extend_from_slice(&piece[..missing.min(count)]);
            }
        }
    }
    let mut facts = Map::new();
    facts.insert("sha256".to_owned(), hex(context.finish().as_ref()).into());
    if let Some(build) = build_id(&start) {
        facts.insert("build".to_owned(), build.into());
    }
    Some(facts)
}

/// Reads the versions that the Go linker wrote into a program.
fn of_go(path: &Path) -> Option<Map<String, Value>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LARGEST_PROGRAM).read_to_end(&mut bytes).ok()?;
    go_build::versions(&bytes)
}

/// Finds the build ID in the linker's NT_GNU_BUILD_ID note: sizes of name and text, its type and
/// its name (elf(5)). The note lies near the start of a file.
fn build_id(start: &[u8]) -> Option<String> {
    let place = start.windows(NOTE.len()).position(|part| part == NOTE)?;
    Some(hex(start.get(place + NOTE.len()..)?.get(..ID)?))
}

const OWN: &str = "/proc/self/exe";
/// Maximum number of lines of a program's version that are kept.
const LINES: usize = 12;
const LARGEST_PROGRAM: u64 = 256 << 20;
const PIECE: usize = 256 << 10;
const NOTES: usize = 64 << 10;
const ID: usize = 20;
const NOTE: [u8; 16] = *b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_build_id_is_read_from_the_gnu_note() {
        let file = [&b"\x7fELF..."[..], &NOTE, &[0xab; ID], b"rest"].concat();
        assert_eq!(build_id(&file).unwrap(), "ab".repeat(ID));
        assert_eq!(build_id(&file[..30]), None);
        assert_eq!(build_id(b"#!/bin/sh"), None);
    }

    /// The checksums are those of FIPS 180-4's examples.
    #[test]
    fn a_file_is_identified_by_its_checksum() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "abc").unwrap();
        assert_eq!(identity(&file).unwrap()["sha256"], abc);
        std::fs::write(&file, "a".repeat(1_000_000)).unwrap();
        let million = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
        assert_eq!(identity(&file).unwrap()["sha256"], million);
        assert_eq!(identity(&folder.path().join("none")), None);
        assert!(own().contains_key("sha256"));
    }

    #[test]
    fn external_systems_are_described_with_version_and_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peer");
        std::fs::write(&path, "#!/bin/sh\necho ░█░█\necho\necho Version:\t\tv2.6.0\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let lab =
            LabFile::parse("peer.toml", &LAB.replace("PEER", path.to_str().unwrap())).unwrap();
        let programs = started_by(&lab);
        assert_eq!(programs["peer"]["version"], "Version: v2.6.0");
        assert_eq!(programs["peer"]["file"], path.to_str().unwrap());
        assert!(!programs.contains_key("absent") && !programs.contains_key("{weir}"));
        let peers = configurations(&lab);
        assert_eq!(peers.keys().collect::<Vec<_>>(), ["peer", "absent", "own"]);
        assert_eq!(peers["peer"]["files"]["a.yaml"], "window: 64\n");
        assert_eq!(peers["own"]["client"], "{weir} tunnel client");
    }

    #[test]
    fn a_program_that_a_system_needs_is_recorded_in_place_of_the_shell_that_starts_it() {
        let text = LAB.replace("version = \"PEER version\"", "needs = [\"env\"]");
        let lab = LabFile::parse("peer.toml", &text.replace("PEER", "/bin/sh")).unwrap();
        let programs = started_by(&lab);
        assert!(programs.contains_key("env") && !programs.contains_key("sh"));
        assert!(programs["env"].get("version").is_none());
    }

    const LAB: &str = r#"
name = "peer"
hosts = ["near", "far"]
[[link]]
between = ["near", "far"]
[workload]
kind = "bulk"
from = "near"
to = "far"
[[system]]
name = "peer"
kind = "external"
server = "PEER server"
client = "PEER client --config {files}/a.yaml"
version = "PEER version"
[system.files]
"a.yaml" = """
window: 64
"""
[[system]]
name = "absent"
kind = "external"
server = "/nowhere/absent"
client = "/nowhere/absent"
[[system]]
name = "own"
kind = "external"
server = "{weir} tunnel server"
client = "{weir} tunnel client"
[form.full]
duration = "1s"
"#;
}
