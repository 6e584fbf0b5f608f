use crate::HostError;
use std::path::PathBuf;

/// A kernel setting by its dotted name, as for `sysctl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    pub name: String,
    pub value: String,
}

/// Reads the value in the calling thread's network namespace; `None` if the kernel has no such
/// setting.
pub fn read_sysctl(name: &str) -> Option<String> {
    std::fs::read_to_string(path(name)).ok().map(|text| normalised(&text))
}

/// Sets a setting in the calling thread's network namespace and reads it back, because the kernel
/// clamps some settings, and some writes have no effect.
pub fn write_sysctl(sysctl: &Sysctl) -> Result<(), HostError> {
    std::fs::write(path(&sysctl.name), &sysctl.value).map_err(|source| HostError::Sysctl {
        name: sysctl.name.clone(),
        value: sysctl.value.clone(),
        source,
    })?;
    let found = read_sysctl(&sysctl.name).unwrap_or_default();
    if found != normalised(&sysctl.value) {
        return Err(HostError::SysctlIgnored {
            name: sysctl.name.clone(),
            wanted: sysctl.value.clone(),
            found,
        });
    }
    Ok(())
}

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name.replace('.', "/"))
}

fn normalised(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
