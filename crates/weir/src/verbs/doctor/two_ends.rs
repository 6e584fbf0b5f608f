//! `weir doctor --from A --to B`: a test between two machines, observed at both ends.

use super::Doctor;
use crate::exit::Ending;
use crate::output;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use doctor::test_path::TestPlan;
use doctor::{Observed, Recording};
use lab::hosts::{TwoEnds, machines};
use units::visible;

pub(super) fn run(arguments: &Doctor, names: [&String; 2]) -> anyhow::Result<Ending> {
    let config = arguments.ssh_config.as_deref();
    let ends = machines(&names.map(String::clone), None, config)?;
    let [from, to] = ends.as_slice() else {
        anyhow::bail!("--from and --to name the same machine: name two");
    };
    let cancel = cancel_on_signals()?;
    let plan = match arguments.thorough {
        true => TestPlan::thorough(to.name(), arguments.port),
        false => TestPlan::short(to.name(), arguments.port),
    };
    let said = format!("weir doctor: {}: {}", from.name(), plan.announcement());
    output::note(visible(&said));
    let weir = std::env::current_exe().context("finding this program itself")?;
    let test = TwoEnds {
        ends: [from, to],
        address: arguments.address,
        port: arguments.port,
        thorough: arguments.thorough,
        weir: &weir,
    };
    let (near, far) = test.record(&cancel)?;
    let read = |end: usize, text: &str| {
        Recording::parse(text).map_err(|reason| {
            let reason = units::foreign(reason);
            anyhow::anyhow!("{}: its recording cannot be judged: {reason}", visible(names[end]))
        })
    };
    let near = read(0, &near)?;
    let far = match far {
        Ok(text) => read(1, &text)?,
        Err(words) => doctor::unreached(&near, words.clone())
            .with_context(|| format!("{}: weir doctor failed there: {words}", visible(names[1])))?,
    };
    let diagnosis = doctor::diagnose_both([
        Observed { name: from.name(), recording: &near },
        Observed { name: to.name(), recording: &far },
    ]);
    arguments.print(&diagnosis)?;
    Ok(Ending::Fine)
}
