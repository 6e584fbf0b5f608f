use crate::output;
use anyhow::Context as _;
use generator::GenError;
use probe::process::pinned;
use probe::tree::Tree;
use std::collections::BTreeMap;

/// Restricts the generator to the CPUs that the user named, or to CPUs to which no thread of
/// another program is pinned. The sending threads are real-time threads, and would keep a switch's
/// packet thread from its CPU.
pub(super) fn choose(asked: Option<&str>) -> anyhow::Result<()> {
    let allowed = host::online_cpus();
    let chosen = match asked {
        Some(text) => named(text, &allowed)?,
        None => {
            let taken = pinned(&Tree::here(), std::process::id()).unwrap_or_default();
            let free = free(&allowed, &taken);
            if free.len() < allowed.len() {
                output::note(format_args!("note: {}", note(&allowed, &taken)));
            }
            free
        }
    };
    if chosen == allowed {
        return Ok(());
    }
    host::pin_to(&chosen).context("choosing the CPUs: leave --cpus out")
}

fn named(text: &str, allowed: &[usize]) -> Result<Vec<usize>, GenError> {
    let usage = |problem: String| GenError::Usage(format!("--cpus: {problem}"));
    let cpus = units::parse_cpus(text).map_err(usage)?;
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => {
            let allowed = list(allowed);
            Err(usage(format!("this process may not run on CPU {cpu}: name some of {allowed}")))
        }
        None => Ok(cpus),
    }
}

/// Returns the CPUs that no other program is pinned to; all allowed CPUs if every CPU has such a
/// program.
fn free(allowed: &[usize], taken: &BTreeMap<usize, String>) -> Vec<usize> {
    let free: Vec<_> = allowed.iter().copied().filter(|cpu| !taken.contains_key(cpu)).collect();
    if free.is_empty() { allowed.to_vec() } else { free }
}

fn note(allowed: &[usize], taken: &BTreeMap<usize, String>) -> String {
    let left = taken.iter().filter(|(cpu, _)| allowed.contains(cpu));
    let left: Vec<_> = left.map(|(cpu, name)| format!("CPU {cpu} to {name}")).collect();
    format!("left {}, which is pinned there; --cpus {} takes all", left.join(", "), list(allowed))
}

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_with_pinned_programs_are_used_only_if_no_cpu_is_free() {
        let taken = |cpus: &[usize]| -> BTreeMap<usize, String> {
            cpus.iter().map(|cpu| (*cpu, "weir".to_owned())).collect()
        };
        assert_eq!(free(&[0, 1], &taken(&[1])), [0]);
        assert_eq!(free(&[0, 1], &taken(&[0, 1])), [0, 1]);
        assert_eq!(free(&[2, 3], &taken(&[0])), [2, 3]);
        let note = note(&[0, 1], &taken(&[1, 7]));
        assert_eq!(note, "left CPU 1 to weir, which is pinned there; --cpus 0,1 takes all");
    }

    #[test]
    fn a_missing_cpu_is_wrong_use() {
        assert_eq!(named("1,0-1", &[0, 1]).unwrap(), [0, 1]);
        let refused = named("0-2", &[0, 1]).unwrap_err().to_string();
        assert!(refused.contains("may not run on CPU 2: name some of 0,1"), "{refused}");
        assert!(named("x", &[0, 1]).is_err());
    }
}
