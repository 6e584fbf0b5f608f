//! Checks before a case runs whether the machine has the programs, CPUs and rights that the case
//! needs.

use super::case::{Case, Side};
use crate::bench::machine::is_installed;

/// Returns the needs of the case that this machine does not meet, each as a sentence.
pub(super) fn lacking(case: &Case) -> Vec<String> {
    let mut lacking: Vec<String> = programs(case)
        .into_iter()
        .filter(|program| !is_installed(program))
        .map(|program| format!("`{program}` is not installed"))
        .collect();
    let online = host::online_cpus();
    let named = case.cpus.as_deref().and_then(|list| units::parse_cpus(list).ok());
    let missing = named.into_iter().flatten().find(|cpu| !online.contains(cpu));
    lacking.extend(missing.map(|cpu| format!("this machine has no CPU {cpu}")));
    let has_quota = case.quota.sender.is_some() || case.quota.receiver.is_some();
    if has_quota && !rustix::process::geteuid().is_root() {
        lacking.push("a CPU quota needs root, to make control groups".to_owned());
    }
    lacking
}

/// Returns the programs that the file names, and the tools that its scripts call.
fn programs(case: &Case) -> Vec<String> {
    let mut programs = case.needs.clone();
    for side in [Side::Sender, Side::Receiver] {
        for script in [case.setup.of(side), case.load.of(side)].into_iter().flatten() {
            programs.extend(tools(script).map(str::to_owned));
        }
    }
    programs.sort();
    programs.dedup();
    programs
}

/// Returns the known tools that the commands of a script start.
fn tools(script: &str) -> impl Iterator<Item = &str> {
    let parts = script.split(['\n', ';', '|', '&', '(', '{']);
    parts.flat_map(|part| {
        // A keyword, a function or a variable may stand before the program.
        let begins = part.split_whitespace().take(MOST_BEFORE).any(|word| TOOLS.contains(&word));
        let mut words = part.split_whitespace().filter(|word| TOOLS.contains(word));
        let first = words.next().filter(|_| begins);
        // Some tools, such as `taskset`, start a second tool.
        let second = first.filter(|tool| STARTERS.contains(tool)).and_then(|_| words.next());
        first.into_iter().chain(second)
    })
}

/// Tools that scripts of network faults call and that come in packages of their own.
const TOOLS: [&str; 12] = [
    "bash", "curl", "ethtool", "gzip", "ip", "iperf3", "nft", "nginx", "nsenter", "rsync",
    "taskset", "tc",
];
const STARTERS: [&str; 2] = ["nsenter", "taskset"];
const MOST_BEFORE: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::file::axes;
    use crate::workloads::builtin;
    use crate::workloads::diagnose::library;
    use results::{Axes, Form};

    #[test]
    fn a_fault_needs_the_tools_that_its_scripts_call() {
        let found: Vec<&str> =
            tools("nft add table ip x\nexec taskset -c 0 iperf3 -s > /dev/null").collect();
        assert_eq!(found, ["nft", "taskset", "iperf3"]);
        assert_eq!(tools("echo '# nothing'; sleep 1").count(), 0);
        let case = |name: &str| Case::parse(&library::open(name).unwrap(), &Axes::new()).unwrap();
        assert!(programs(&case("output-filter")).contains(&"nft".to_owned()));
        assert!(programs(&case("shaper")).contains(&"tc".to_owned()));
        let board = builtin::open("slow-nic").unwrap();
        let spec = crate::model::plan::form_of(&board, Form::Quick);
        let place = axes::places(&board, spec).swap_remove(0);
        let needed = programs(&Case::parse(&board, &place).unwrap());
        for tool in ["ethtool", "nft", "iperf3", "taskset", "nsenter"] {
            assert!(needed.contains(&tool.to_owned()), "{tool}: {needed:?}");
        }
    }
}
