//! Kernel settings of the hosts: `[sysctl]` for all systems, and the key `sysctl` of a system for
//! that system.

use super::locate::FileError;
use super::schema::{Document, SystemSpec};
use indexmap::IndexMap;
use results::Axes;
use toml::Spanned;

impl Document {
    /// Returns the settings of every host while `system` is measured in the cell at `axes`, by
    /// name. The system's own settings take precedence.
    pub(crate) fn settings_at(
        &self,
        axes: &Axes,
        system: Option<&SystemSpec>,
    ) -> Result<IndexMap<String, String>, FileError> {
        let own = system.into_iter().flat_map(|system| &system.sysctl);
        let all = self.sysctl.iter().chain(own);
        all.map(|(name, value)| Ok((name.get_ref().clone(), self.filled(axes, value)?))).collect()
    }

    /// Accepts only network settings of a host. All other settings apply to the whole machine.
    pub(crate) fn check_settings(&self) -> Result<(), FileError> {
        let first = |values: &Spanned<Vec<Spanned<String>>>| {
            values.get_ref().first().map(|value| value.get_ref().clone()).unwrap_or_default()
        };
        let axes: Axes =
            self.axes.iter().map(|(axis, values)| (axis.clone(), first(values))).collect();
        let of_systems = self.systems().flat_map(|system| &system.sysctl);
        for (name, value) in self.sysctl.iter().chain(of_systems) {
            self.check_setting_name(name)?;
            self.filled(&axes, value)?;
        }
        Ok(())
    }

    pub(super) fn check_setting_name(&self, name: &Spanned<String>) -> Result<(), FileError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let text = name.get_ref();
        let own = text.strip_prefix("net.").is_some_and(|rest| rest.chars().all(plain));
        match !own || text.contains("..") {
            true => {
                let message =
                    format!("`{text}` is not a setting of one host: those begin with `net.`");
                self.refuse(name.span(), message)
            }
            false => Ok(()),
        }
    }

    /// Whether the value of a kernel setting contains `text`.
    pub(super) fn settings_mention(&self, text: &str) -> bool {
        let of_systems = self.systems().flat_map(|system| system.sysctl.values());
        self.sysctl.values().chain(of_systems).any(|value| value.get_ref().contains(text))
    }

    pub(crate) fn has_settings(&self) -> bool {
        !self.sysctl.is_empty()
            || self.systems().any(|system| !system.sysctl.is_empty() || system.is_state)
    }
}
