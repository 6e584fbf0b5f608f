//! CPU waits of other programs on this machine. The device under test may be one of these programs.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use units::Span;

/// The time that each thread of another program has waited for a CPU, for the threads that `/proc`
/// shows.
#[derive(Debug, Default)]
pub(super) struct Waits(HashMap<u32, u64>);

impl Waits {
    pub(super) fn read() -> Self {
        let own = std::process::id();
        let mut waits = HashMap::new();
        let others = numbered(Path::new("/proc")).filter(|(pid, _)| *pid != own);
        for (_, process) in others {
            for (thread, place) in numbered(&process.join("task")) {
                let text = fs::read_to_string(place.join("schedstat")).unwrap_or_default();
                // The file has three fields: time on a CPU, time waiting for a CPU, number of time
                // slices.
                let waited = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
                waits.extend(waited.map(|waited: u64| (thread, waited)));
            }
        }
        Self(waits)
    }

    /// Returns the longest time that a single thread has waited since `before`.
    pub(super) fn longest_since(&self, before: &Self) -> Span {
        let since = |(thread, waited): (&u32, &u64)| {
            waited.saturating_sub(before.0.get(thread).copied().unwrap_or(0))
        };
        Span::from_nanos(self.0.iter().map(since).max().unwrap_or(0))
    }
}

fn numbered(folder: &Path) -> impl Iterator<Item = (u32, std::path::PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_cpu_wait_of_a_single_thread_is_measured() {
        let before = Waits([(1, 5_000), (2, 900)].into());
        let after = Waits([(1, 5_100), (2, 1_400), (3, 300)].into());
        assert_eq!(after.longest_since(&before), Span::from_nanos(500));
        assert_eq!(Waits::default().longest_since(&before), Span::ZERO);
    }
}
