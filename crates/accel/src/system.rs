//! Settings of the whole network namespace: raised while the algorithm is on, and restored
//! afterwards.
//!
//! Weir writes the earlier value of a setting to a file before it changes the setting. If this
//! command is killed, the next command can restore the value. Files in /run last until the machine
//! reboots, as the settings do.

use crate::pins::is_there;
use crate::switches::{KernelSwitch, SWITCHES};
use crate::{AccelError, namespaces};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use units::Switch;

/// Requested settings of the namespace; other settings stay unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct System {
    /// A socket's send buffer in bytes: minimum, default, maximum.
    pub wmem: Option<[u64; 3]>,
    /// All of TCP's memory in pages: low, pressure, maximum.
    pub mem: Option<[u64; 3]>,
    /// The largest send buffer that an application may request, in bytes.
    pub wmem_max: Option<u64>,
    pub timestamps: Option<bool>,
    /// The kernel's values, by the keys of [`SWITCHES`].
    pub switches: BTreeMap<&'static str, u64>,
}

/// Settings by the kernel's name: the earlier value, and the value set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Journal {
    namespace: u64,
    settings: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    was: String,
    set: String,
}

impl System {
    /// Returns settings with buffers for 4.5 bandwidth-delay products of a lossy path of 100 Mbit/s
    /// and 200 ms, unless the system's buffers are larger.
    pub fn roomy() -> Self {
        let now = words(&read_sysctl(WMEM).unwrap_or_default());
        match now[..] {
            [least, usual, most] if most < ROOMY => {
                Self { wmem: Some([least, usual, ROOMY]), ..Self::default() }
            }
            _ => Self::default(),
        }
    }

    pub fn check(&self) -> Result<(), AccelError> {
        let refuse =
            |name, advice: &'static str| Err(AccelError::Tunable { name, advice: advice.into() });
        let rising = |values: &[u64; 3]| values.is_sorted() && values[0] > 0;
        if self.wmem.is_some_and(|wmem| !rising(&wmem) || wmem[2] > i32::MAX as u64) {
            return refuse("wmem", "three sizes in bytes that do not fall, up to 2 GiB");
        }
        if self.mem.is_some_and(|mem| !rising(&mem)) {
            return refuse("mem", "three numbers of pages that do not fall");
        }
        if self.wmem_max.is_some_and(|most| !(4608..=i32::MAX as u64).contains(&most)) {
            return refuse("wmem_max", "4608 bytes to 2 GiB");
        }
        Ok(())
    }

    /// Checks that this network namespace has all settings of `self`, and that Weir can write all
    /// settings.
    pub(crate) fn check_here(&self) -> Result<(), AccelError> {
        self.sysctls().into_iter().try_for_each(|(name, _)| check_sysctl(name))
    }

    /// Parses a name and a value in the kernel's format; returns whether the setting exists.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, AccelError> {
        let wrong = |form: &str| AccelError::Usage(format!("{name}={value}: write {form}"));
        let numbers =
            || value.split_whitespace().map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
        let three = || {
            let numbers = numbers().ok().and_then(|numbers| numbers.try_into().ok());
            numbers.ok_or_else(|| wrong("three numbers, as in wmem=\"4096 16384 4194304\""))
        };
        match (name, value) {
            ("wmem", _) => self.wmem = Some(three()?),
            ("mem", _) => self.mem = Some(three()?),
            ("wmem_max", _) => {
                let most = value.parse().map_err(|_| wrong("a number of bytes"))?;
                self.wmem_max = Some(most);
            }
            ("timestamps", _) => {
                let Switch(on) = value.parse().map_err(|_| wrong("on or off"))?;
                self.timestamps = Some(on);
            }
            // Forward acknowledgement left the kernel with 4.15.
            ("fack", _) => {
                let form = "on or off; it does nothing in today's kernels";
                value.parse::<Switch>().map_err(|_| wrong(form))?;
            }
            _ => match KernelSwitch::named(name) {
                Some(switch) => {
                    self.switches.insert(switch.key, switch.parse(value)?);
                }
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    /// Returns the values by the kernel's names.
    fn sysctls(&self) -> Vec<(&'static str, String)> {
        let three = |values: [u64; 3]| values.map(|value| value.to_string()).join(" ");
        let mut sysctls = Vec::new();
        sysctls.extend(self.wmem.map(|wmem| (WMEM, three(wmem))));
        sysctls.extend(self.mem.map(|mem| (MEM, three(mem))));
        sysctls.extend(self.wmem_max.map(|most| (WMEM_MAX, most.to_string())));
        sysctls.extend(self.timestamps.map(|on| (TIMESTAMPS, u8::from(on).to_string())));
        let switches = SWITCHES.iter().filter_map(|s| Some((s.sysctl, self.switches.get(s.key)?)));
        sysctls.extend(switches.map(|(sysctl, value)| (sysctl, value.to_string())));
        sysctls
    }
}

impl Journal {
    pub(crate) fn read() -> Result<Self, AccelError> {
        let path = Path::new(JOURNAL);
        match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| AccelError::NoJournal {
                path: path.to_owned(),
                problem: error.to_string(),
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(AccelError::file("reading", path, source)),
        }
    }

    /// Returns the settings that Weir has set.
    pub(crate) fn system(&self) -> System {
        let set = |name: &str| self.settings.get(name).map(|entry| words(&entry.set));
        let three = |name| set(name).and_then(|words| words.try_into().ok());
        let one = |name| set(name).and_then(|words: Vec<u64>| words.first().copied());
        System {
            wmem: three(WMEM),
            mem: three(MEM),
            wmem_max: one(WMEM_MAX),
            timestamps: one(TIMESTAMPS).map(|on| on != 0),
            switches: SWITCHES.iter().filter_map(|s| Some((s.key, one(s.sysctl)?))).collect(),
        }
    }

    /// Sets the wanted values, and restores settings that are no longer wanted. On failure nothing
    /// has changed, or the error names the changes that remain.
    pub(crate) fn become_like(&mut self, wanted: &System) -> Result<(), AccelError> {
        let wanted = wanted.sysctls();
        if wanted.is_empty() && self.settings.is_empty() {
            return Ok(());
        }
        wanted.iter().try_for_each(|(name, _)| check_sysctl(name))?;
        let here = namespace()?;
        // A restore would write the other namespace's values into this namespace.
        if !self.settings.is_empty() && self.namespace != here {
            return Err(AccelError::OtherNamespace);
        }
        let before = self.clone();
        self.try_become_like(&wanted, here).map_err(|failure| failure.after(self.go_back(before)))
    }

    /// Restores all settings, even if a setting fails. A failed setting stays in the journal for
    /// the next attempt.
    fn go_back(&self, mut before: Self) -> Result<(), AccelError> {
        let mut all = Ok(());
        for (name, entry) in &before.settings {
            all = all.and(restore_sysctl(name, &entry.set));
        }
        let tried = self.settings.iter().filter(|(name, _)| !before.settings.contains_key(*name));
        for (name, entry) in tried.map(|(n, e)| (n.clone(), e.clone())).collect::<Vec<_>>() {
            let one = restore_sysctl(&name, &entry.was);
            if one.is_err() {
                before.settings.insert(name, entry);
                before.namespace = self.namespace;
            }
            all = all.and(one);
        }
        match Self::read() {
            Ok(there) if there == before => all,
            _ => all.and(before.store()),
        }
    }

    /// Restores all settings, in the journal's namespace; returns whether there were any.
    pub(crate) fn put_back() -> Result<bool, AccelError> {
        let mut journal = Self::read()?;
        if journal.settings.is_empty() {
            journal.store()?;
            return Ok(false);
        }
        if journal.namespace != namespace()? {
            let Some(elsewhere) = namespaces::numbered(journal.namespace) else {
                // The journal's namespace has ended, so no settings are left to restore.
                journal.settings.clear();
                return journal.store().map(|()| true);
            };
            let put_back = elsewhere.run(|| Ok(journal.become_like(&System::default())));
            return put_back.map_err(AccelError::Host)?.map(|()| true);
        }
        journal.become_like(&System::default()).map(|()| true)
    }

    fn try_become_like(
        &mut self,
        wanted: &[(&'static str, String)],
        here: u64,
    ) -> Result<(), AccelError> {
        let kept = |name: &str| wanted.iter().any(|(other, _)| *other == name);
        let unwanted: Vec<_> = self
            .settings
            .iter()
            .filter(|(name, _)| !kept(name))
            .map(|(n, e)| (n.clone(), e.clone()))
            .collect();
        self.namespace = here;
        for (name, value) in wanted {
            let was = match self.settings.get(*name) {
                Some(entry) => entry.was.clone(),
                None => {
                    read_sysctl(name).ok_or(AccelError::NoSetting { name: (*name).to_owned() })?
                }
            };
            self.settings.insert((*name).to_owned(), Entry { was, set: value.clone() });
        }
        self.store()?;
        for (name, value) in wanted {
            write_sysctl(name, value)?;
        }
        for (name, entry) in unwanted {
            // Keep a value that another program or user has set since Weir set the value.
            if read_sysctl(&name).as_deref() == Some(&entry.set) {
                write_sysctl(&name, &entry.was)?;
            }
            self.settings.remove(&name);
        }
        self.store()
    }

    /// Writes the file completely or not at all.
    fn store(&self) -> Result<(), AccelError> {
        let path = Path::new(JOURNAL);
        let failed = |source| AccelError::file("writing", path, source);
        let staging = PathBuf::from(format!("{JOURNAL}.new"));
        if self.settings.is_empty() {
            return [&staging, path].into_iter().try_for_each(|path| match fs::remove_file(path) {
                Err(error) if is_there(path) => Err(failed(error)),
                _ => Ok(()),
            });
        }
        let text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        let mut file = File::create(&staging).map_err(failed)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&staging, path).map_err(failed)
    }
}

fn namespace() -> Result<u64, AccelError> {
    let path = Path::new("/proc/thread-self/ns/net");
    fs::metadata(path).map(|about| about.ino()).map_err(|e| AccelError::file("reading", path, e))
}

pub(crate) fn read_sysctl(name: &str) -> Option<String> {
    let text = fs::read_to_string(path_of(name)).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Checks that this namespace can write the setting. Outside the initial network namespace some
/// settings are read-only, even for root (net_core_table of net/core/sysctl_net_core.c).
pub(crate) fn check_sysctl(name: &str) -> Result<(), AccelError> {
    let path = path_of(name);
    match File::options().write(true).open(&path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(AccelError::NoSetting { name: name.to_owned() })
        }
        Err(error)
            if error.kind() == ErrorKind::PermissionDenied
                && rustix::process::geteuid().is_root() =>
        {
            Err(AccelError::OfInitialNamespace { name: name.to_owned() })
        }
        Err(source) => Err(AccelError::file("setting", &path, source)),
    }
}

/// Writes a setting; an error if the kernel clamped the value.
fn write_sysctl(name: &str, value: &str) -> Result<(), AccelError> {
    let path = path_of(name);
    fs::write(&path, value).map_err(|source| AccelError::file("setting", &path, source))?;
    match read_sysctl(name) {
        Some(found) if found == value => Ok(()),
        found => Err(AccelError::NotKept {
            name: name.to_owned(),
            wanted: value.to_owned(),
            found: found.unwrap_or_default(),
        }),
    }
}

/// Restores a setting, unless the setting still has its earlier value: the kernel may refuse to
/// write the setting.
fn restore_sysctl(name: &str, value: &str) -> Result<(), AccelError> {
    match read_sysctl(name) {
        Some(found) if found == value => Ok(()),
        _ => write_sysctl(name, value),
    }
}

fn path_of(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name.replace('.', "/"))
}

fn words(text: &str) -> Vec<u64> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

pub(crate) const WMEM: &str = "net.ipv4.tcp_wmem";
pub(crate) const MEM: &str = "net.ipv4.tcp_mem";
pub(crate) const WMEM_MAX: &str = "net.core.wmem_max";
pub(crate) const TIMESTAMPS: &str = "net.ipv4.tcp_timestamps";
const JOURNAL: &str = "/run/weir-accel.json";
const ROOMY: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_buffer_size_is_reported() {
        let check = |system: System| system.check().map_err(|error| error.to_string());
        let falling = System { wmem: Some([4096, 2048, 8192]), ..System::default() };
        assert!(check(falling).unwrap_err().contains("wmem"));
        let none = System { mem: Some([0, 1, 2]), ..System::default() };
        assert!(check(none).unwrap_err().contains("mem"));
        let tiny = System { wmem_max: Some(1), ..System::default() };
        assert!(check(tiny).unwrap_err().contains("wmem_max"));
        assert!(
            check(System { wmem: Some([4096, 16384, 4_194_304]), ..System::default() }).is_ok()
        );
    }

    #[test]
    fn the_journal_lists_the_sysctl_values_that_weir_set() {
        let entry = |was: &str, set: &str| Entry { was: was.to_owned(), set: set.to_owned() };
        let settings = [
            (WMEM.to_owned(), entry("1 2 3", "4 5 6")),
            (TIMESTAMPS.to_owned(), entry("1", "0")),
            ("net.ipv4.tcp_early_retrans".to_owned(), entry("3", "0")),
        ];
        let journal = Journal { namespace: 1, settings: settings.into() };
        let system = journal.system();
        assert_eq!(system.wmem, Some([4, 5, 6]));
        assert_eq!((system.timestamps, system.mem), (Some(false), None));
        assert_eq!(system.switches, BTreeMap::from([("tlp", 0)]));
    }
}
