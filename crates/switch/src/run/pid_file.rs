use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use host::PrivateDirectory;
use rustix::fs::{FlockOperation, OFlags, fcntl_lock};

use super::error::SwitchError;

/// The PID file by which ovs-appctl finds the switch of a folder. A running switch holds a lock on
/// its file; a file that nobody has locked has the PID of an ended process.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    /// Writes the PID of this process. If the file has the PID of a killed switch, first removes
    /// the socket of the killed switch.
    pub(super) fn write(folder: &PrivateDirectory) -> Result<Self, SwitchError> {
        let path = folder.path().join(NAME);
        let failed = |error| SwitchError::Rundir { path: path.clone(), error };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o644);
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let mut file = options.open(&path).map_err(failed)?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| SwitchError::Running { rundir: folder.path().to_owned() })?;
        let mut former = String::new();
        // A file with other contents is overwritten.
        let _ = (&mut file).take(32).read_to_string(&mut former);
        if let Ok(former) = former.trim().parse::<u32>() {
            let _ = folder.socket(socket_of(former)).clear();
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { path, file })
    }

    /// Returns the name of the control socket that ovs-appctl expects for this process.
    pub(super) fn socket() -> String {
        socket_of(std::process::id())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if is_same(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn is_same(file: &File, path: &Path) -> bool {
    let own = file.metadata().map(|found| (found.dev(), found.ino()));
    let there = std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((own, there), (Ok(own), Ok(there)) if own == there)
}

fn socket_of(process: u32) -> String {
    format!("ovs-vswitchd.{process}.ctl")
}

/// The PID file of Open vSwitch's daemon, which ovs-appctl uses unless the user names another
/// target.
const NAME: &str = "ovs-vswitchd.pid";
