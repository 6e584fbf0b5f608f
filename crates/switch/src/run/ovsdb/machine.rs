use std::path::{Path, PathBuf};

use ovsdb::interface::Machine;

/// The properties of this machine on which the types of interfaces depend.
#[derive(Debug)]
pub(super) struct ThisMachine {
    pub(super) rundir: PathBuf,
    pub(super) has_dummies_alone: bool,
}

impl Machine for ThisMachine {
    fn interface_of_pci(&self, address: &str, representor: Option<u32>) -> Option<String> {
        let whole = match address.split(':').count() {
            2 => format!("0000:{address}"),
            _ => address.to_owned(),
        };
        interface_of(&Path::new("/sys/bus/pci/devices").join(whole).join("net"), representor)
    }

    fn has_dummies_alone(&self) -> bool {
        self.has_dummies_alone
    }

    fn rundir(&self) -> &Path {
        &self.rundir
    }
}

/// Returns the name of the interface in the folder of a PCI device. `representor`: the virtual
/// function, whose port the kernel names like `pf0vf1` (devlink, phys_port_name).
fn interface_of(folder: &Path, representor: Option<u32>) -> Option<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    let function = |name: &String| {
        let port = std::fs::read_to_string(folder.join(name).join("phys_port_name")).ok()?;
        port.trim().rsplit_once("vf")?.1.parse::<u32>().ok()
    };
    names.into_iter().find(|name| function(name) == representor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_representor_interface_is_found_by_its_physical_port_name() {
        let folder = tempfile::tempdir().unwrap();
        for (name, port) in [("eth0", "p0\n"), ("eth0_1", "pf0vf1\n"), ("eth0_2", "pf0vf2\n")] {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("phys_port_name"), port).unwrap();
        }
        let found = |representor| interface_of(folder.path(), representor);
        assert_eq!(found(None).as_deref(), Some("eth0"));
        assert_eq!(found(Some(2)).as_deref(), Some("eth0_2"));
        assert_eq!(found(Some(3)), None);
        assert_eq!(interface_of(Path::new("/nowhere"), None), None);
    }
}
