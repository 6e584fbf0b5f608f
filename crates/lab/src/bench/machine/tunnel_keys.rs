//! Keys for both endpoints of a tunnel, if an external system's commands ask for them.

use crate::model::Failure;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// The tunnel keys of a step. Dropping this value removes the keys.
#[derive(Debug)]
pub(crate) struct TunnelKeys {
    folder: TempDir,
    server_pin: String,
    client_pin: String,
}

impl TunnelKeys {
    /// Makes keys if one of these commands or files has a placeholder for keys. The folder `within`
    /// is removed with the run. If the run is killed, the next run in that directory removes the
    /// folder.
    pub(crate) fn for_texts<'a>(
        mut texts: impl Iterator<Item = &'a str>,
        within: &Path,
    ) -> Result<Option<Self>, Failure> {
        let asked = |text: &str| WORDS.iter().any(|word| text.contains(&format!("{{{word}}}")));
        if texts.any(asked) { Self::make(within).map(Some) } else { Ok(None) }
    }

    pub(crate) fn word(&self, name: &str) -> Option<String> {
        match name {
            "keys" => Some(self.folder.path().display().to_string()),
            "server-pin" => Some(self.server_pin.clone()),
            "client-pin" => Some(self.client_pin.clone()),
            _ => None,
        }
    }

    fn make(within: &Path) -> Result<Self, Failure> {
        let folder = super::pair::folder("keys-", within)?;
        let server_pin = made("server", folder.path())?;
        let client_pin = made("client", folder.path())?;
        Ok(Self { folder, server_pin, client_pin })
    }
}

/// Returns the path of the running `weir` program.
pub(crate) fn weir() -> Option<String> {
    std::env::current_exe().ok().map(|path| path.display().to_string())
}

/// Runs `weir tunnel keys` as a user would, and returns the pin with which its output ends.
fn made(role: &str, folder: &Path) -> Result<String, Failure> {
    let failed = |why: String| Failure::Workload(format!("weir tunnel keys {role}: {why}"));
    let weir = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(weir);
    command.args(["tunnel", "keys", role, "--name", "lab", "--directory"]).arg(folder);
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    let line = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match line.find("sha256/") {
        Some(at) if output.status.success() => Ok(line[at..].to_owned()),
        _ => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

const WORDS: [&str; 3] = ["keys", "server-pin", "client-pin"];
