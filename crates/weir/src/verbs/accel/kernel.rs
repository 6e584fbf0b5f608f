//! The kernel's own algorithms.

use super::{OpenConnections, Selector, StatusAfterwards, tell};
use crate::exit::Ending;
use crate::output::note;
use accel::installation::{self, Change};
use accel::{KernelAlgorithm, Rule, Tunables, rules};
use clap::{CommandFactory, FromArgMatches, Parser};

/// Give new connections a congestion control that the kernel has
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
struct Enable {
    #[command(flatten)]
    selector: Selector,
    /// Also connections whose program named an algorithm itself, as `weir perf client -C` does; by
    /// default these connections keep their algorithm
    #[arg(long)]
    named_too: bool,
    #[command(flatten)]
    reach: OpenConnections,
    #[command(flatten)]
    after: StatusAfterwards,
}

/// Enables an algorithm of the kernel. `words`: the algorithm's name, followed by the options.
pub(super) fn enable(words: &[String]) -> anyhow::Result<Ending> {
    let name = words.first().map(String::as_str).unwrap_or_default();
    // Checks the name first: a misspelt name is more likely than a wrong option.
    let algorithm = name.parse::<KernelAlgorithm>()?;
    let command = Enable::command()
        .bin_name(format!("weir accel enable {algorithm}"))
        .max_term_width(crate::help::WIDEST);
    let read = command
        .try_get_matches_from(words)
        .and_then(|mut matches| Enable::from_arg_matches_mut(&mut matches));
    let Enable { selector, named_too, reach, after } = match read {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return Ok(if error.use_stderr() { Ending::Misused } else { Ending::Fine });
        }
    };
    let rule = selector.rule(Tunables::default())?;
    let rule = Rule { named_too, algorithm: Some(algorithm.clone()), ..rule };
    let description = rule.whose();
    let applied = installation::change(reach.reach(), |policy| {
        rules::insert(&mut policy.rules, rule);
        Ok(())
    })?;
    if applied.change == Change::Repaired {
        note("removed the incomplete installation of a killed command");
    }
    note(format_args!(
        "{algorithm} is on ({description}); `weir accel disable {algorithm}` turns it off"
    ));
    tell(reach.reach(), applied.switched);
    after.print()?;
    Ok(Ending::Fine)
}

pub(super) const ENABLE_EXAMPLES: &str = "\
ALGORITHM may also be any congestion control of this kernel, for example bbr or cubic. Its module is
loaded where the kernel has one. `sysctl net.ipv4.tcp_available_congestion_control` lists those that
are loaded.

Examples:
  weir accel enable tcpa --port 443
  weir accel enable bbr --port 443
  weir accel enable bbr --to 203.0.113.0/24 --open
  weir accel status
  weir accel disable bbr";
const EXAMPLES: &str = "\
Examples:
  weir accel enable bbr --port 443
  weir accel enable bbr --cgroup /system.slice/nginx.service --open
  weir accel disable bbr";
