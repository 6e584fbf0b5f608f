//! The settings of a bridge's tables.

use flow::request::TABLES;
use flow::request::TableLimit;
use serde::Deserialize;
use settings::{leaves, table};

table! {
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct TableSettings in kebab {
        /// The table's name, which ovs-ofctl shows. OpenFlow cannot change the name.
        pub name: Option<String>,
        /// Maximum number of rules, by default unlimited.
        pub flow_limit: Option<u32>,
        pub overflow: Overflow = Overflow::default(),
    }
}

/// The handling of a rule that is added to a full table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// The new rule is refused, unless a controller asks for eviction.
    #[default]
    Refuse,
    /// Another rule, which has a timeout, is removed to make space for the new rule.
    Evict,
}

leaves! { Overflow }

impl TableSettings {
    pub(super) fn limit(&self) -> TableLimit {
        TableLimit { rules: self.flow_limit, is_evicting: self.overflow == Overflow::Evict }
    }

    /// Checks the settings. `name`: the table's key in the settings.
    pub(super) fn check(&self, name: &str) -> Result<(), String> {
        let number = name.parse::<u8>().ok().filter(|number| number.to_string() == name);
        if number.is_none_or(|number| number >= TABLES) {
            let last = TABLES - 1;
            return Err(format!("table {name:?}: the tables have the numbers 0 to {last}"));
        }
        let is_usable = |text: &String| {
            (1..=LONGEST_NAME).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic())
        };
        if let Some(text) = self.name.as_ref().filter(|text| !is_usable(text)) {
            return Err(format!(
                "table {name}: name = {text:?}: use 1 to {LONGEST_NAME} visible characters"
            ));
        }
        if self.flow_limit == Some(0) {
            return Err(format!("table {name}: flow-limit: use 1 or more"));
        }
        Ok(())
    }
}

/// Maximum length of a name in OpenFlow, in bytes.
const LONGEST_NAME: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_needs_a_valid_number_and_a_limit_above_zero() {
        let settings = |text| settings::parse::<TableSettings>(text);
        let limited = settings("flow-limit = 4\noverflow = \"evict\"").unwrap();
        assert_eq!(limited.limit(), TableLimit { rules: Some(4), is_evicting: true });
        assert!(limited.check("0").is_ok() && limited.check("253").is_ok());
        for name in ["254", "01", "-1", "acl", ""] {
            assert!(limited.check(name).is_err(), "{name}");
        }
        assert!(settings("flow-limit = 0").unwrap().check("0").is_err());
        assert!(settings("flow-limits = 4").is_err());
        assert!(settings("name = \"acl\"").unwrap().check("0").is_ok());
        for name in ["", "a b", "äcl", &"a".repeat(33)] {
            let named = TableSettings { name: Some(name.to_owned()), ..TableSettings::default() };
            assert!(named.check("0").is_err(), "{name}");
        }
        assert_eq!(settings("").unwrap().limit(), TableLimit::default());
    }
}
