//! The faults and healthy cases that come with the program: `labs/faults`.

use crate::bench::LabFile;

/// Parses the lab file of the built-in fault `name`.
pub(crate) fn open(name: &str) -> Result<LabFile, String> {
    let Some((name, text)) = FAULTS.iter().find(|(known, _)| *known == name) else {
        let names = FAULTS.iter().map(|(name, _)| *name);
        let hint = units::did_you_mean(name, names.clone());
        let known = names.collect::<Vec<_>>().join(", ");
        return Err(format!("no fault `{name}`{hint}; there are {known}"));
    };
    LabFile::parse(&format!("labs/faults/{name}.toml"), text).map_err(|error| error.to_string())
}

/// Returns the text of the built-in fault `name`.
pub(super) fn text(name: &str) -> Option<&'static str> {
    FAULTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Whether the text is the text of a built-in fault.
pub(crate) fn has(text: &str) -> bool {
    FAULTS.iter().any(|(_, known)| *known == text)
}

/// The name of each file in labs/faults, and its text, in the order of the names. The build script
/// writes the list.
pub(crate) const FAULTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/faults.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_in_labs_faults_is_a_valid_lab_and_a_cell_of_the_lab_of_all_faults() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../labs/faults");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<String> = files
            .filter(|file| file.extension().is_some_and(|end| end == "toml"))
            .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        let all =
            crate::workloads::builtin::open("faults").unwrap_or_else(|error| panic!("{error}"));
        let axis: Vec<&str> =
            all.axes["fault"].get_ref().iter().map(|value| value.get_ref().as_str()).collect();
        assert_eq!(axis, names);
        for name in names {
            let fault = open(&name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(fault.name(), name);
        }
    }

    #[test]
    fn a_file_that_lists_faults_has_cells_for_these_faults_only() {
        let all = crate::model::builtin::BUILTIN.iter().find(|lab| lab.name == "faults").unwrap();
        let text = all.text.replacen(
            "[workload]",
            "[axes]\nfault = [\"loss\", \"shaper\", \"backlog\", \"healthy-idle\"]\n\n[workload]",
            1,
        );
        let quick = text.find("cells = ").unwrap();
        let end = quick + text[quick..].find("}]").unwrap() + 2;
        let text = format!("{}{}", &text[..quick], &text[end..]);
        let lab = LabFile::parse("some.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(lab.axes["fault"].get_ref().len(), 4);
    }
}
