//! Recordings that come with the program.

use crate::DoctorError;
use crate::recording::Recording;

/// The names of all examples.
pub const NAMES: [&str; 1] = ["slow-nic"];

/// Returns the recording named `name`, a name of [`NAMES`].
pub fn open(name: &str) -> Result<Recording, DoctorError> {
    match name {
        "slow-nic" => Recording::parse(include_str!("examples/slow-nic.json"))
            .map_err(|reason| DoctorError::Malformed { path: name.into(), reason }),
        _ => Err(DoctorError::Usage(format!(
            "there is no example `{name}`: the examples are {}",
            NAMES.join(", ")
        ))),
    }
}
