//! A client of the control socket that ovs-appctl uses: JSON-RPC 1.0.

use crate::model::Failure;
use host::SocketFile;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The control socket of one process.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    path: PathBuf,
}

impl Control {
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Whether the process answers at its control socket.
    pub(crate) fn answers(&self) -> bool {
        self.call("version", &[]).is_ok()
    }

    /// Sends a command to the process, and returns the command's output.
    pub(crate) fn call(&self, method: &str, arguments: &[&str]) -> Result<String, Failure> {
        let broken = |error: io::Error| Failure::io(&format!("calling {method}"), &error);
        let mut stream =
            SocketFile::at(&self.path).and_then(|file| file.connect(PATIENCE)).map_err(broken)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
        let request = json!({ "id": 0, "method": method, "params": arguments }).to_string();
        stream.write_all(request.as_bytes()).map_err(broken)?;
        let deadline = Instant::now() + PATIENCE;
        let (mut reply, mut buffer) = (Vec::new(), [0; 16 << 10]);
        // The other side keeps the connection open, so the end of the JSON document marks the end
        // of the reply.
        while Instant::now() < deadline && reply.len() < LONGEST_REPLY {
            match stream.read(&mut buffer).map_err(broken)? {
                0 => break,
                count => reply.extend_from_slice(&buffer[..count]),
            }
            if let Ok(document) = serde_json::from_slice::<Value>(&reply) {
                return output(method, &document);
            }
        }
        Err(Failure::Workload(format!("{method}: the switch sent a malformed reply")))
    }
}

fn output(method: &str, document: &Value) -> Result<String, Failure> {
    match (document.get("result"), document.get("error")) {
        (Some(Value::String(text)), _) => Ok(text.clone()),
        (_, Some(Value::String(error))) => Err(Failure::Workload(format!(
            "{method}: the switch refused it: {}",
            units::foreign(error.trim_end())
        ))),
        _ => Err(Failure::Workload(format!("{method}: the switch sent a malformed reply"))),
    }
}

/// Timeout of a command. A switch that loads a hundred thousand rules may not answer for some
/// seconds.
const PATIENCE: Duration = Duration::from_secs(20);
const LONGEST_REPLY: usize = 16 << 20;
