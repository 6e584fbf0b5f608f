use indexmap::IndexMap;
use serde_json::Value;

/// The source and the compilers of this program, as far as the build recorded them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Build {
    pub commit: Option<String>,
    /// `clean`, or `modified` if the files of the build differed from the commit.
    pub tree: Option<String>,
    pub rustc: Option<String>,
    pub clang: Option<String>,
}

impl Build {
    pub(super) fn describe(&self, facts: &mut IndexMap<String, Value>) {
        let known = [
            ("commit", &self.commit),
            ("tree", &self.tree),
            ("rustc", &self.rustc),
            ("clang", &self.clang),
        ];
        for (name, fact) in known {
            if let Some(fact) = fact {
                facts.insert(name.to_owned(), Value::from(fact.as_str()));
            }
        }
    }
}
