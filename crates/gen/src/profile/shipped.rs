//! The profiles that are shipped with the program, by name.

use std::path::Path;

/// Returns the text of a shipped profile. `path`: the file name, alone or in TRex's folder `cap2`.
pub fn shipped(path: &Path) -> Option<&'static str> {
    let folder = path.parent()?;
    if !folder.as_os_str().is_empty() && folder != Path::new("cap2") {
        return None;
    }
    let name = path.file_name()?.to_str()?;
    PROFILES.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
}

pub fn shipped_names() -> impl Iterator<Item = &'static str> {
    PROFILES.iter().map(|(name, _)| *name)
}

/// The profiles, which the package also installs as files in `/usr/share/weir/profiles`.
const PROFILES: &[(&str, &str)] = &[
    ("imix.yaml", include_str!("../../profiles/imix.yaml")),
    ("imix_64.yaml", include_str!("../../profiles/imix_64.yaml")),
    ("imix_64_65535.yaml", include_str!("../../profiles/imix_64_65535.yaml")),
    ("imix_64_131070.yaml", include_str!("../../profiles/imix_64_131070.yaml")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn every_shipped_profile_is_valid_and_every_file_is_shipped() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut names: Vec<_> = shipped_names().collect();
        files.sort();
        names.sort();
        assert_eq!(files, names);
        for name in names {
            let profile = Profile::parse(name, shipped(Path::new(name)).unwrap()).unwrap();
            assert_eq!(profile.notes, Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn a_shipped_profile_is_found_without_a_folder_and_in_cap2_only() {
        for path in ["imix_64.yaml", "cap2/imix_64.yaml"] {
            assert!(shipped(Path::new(path)).is_some(), "{path}");
        }
        for path in ["/imix_64.yaml", "cap3/imix_64.yaml", "./x/cap2/imix_64.yaml", "imix", ""] {
            assert!(shipped(Path::new(path)).is_none(), "{path}");
        }
    }
}
