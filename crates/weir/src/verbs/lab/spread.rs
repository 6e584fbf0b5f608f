//! `weir sim run --hosts`: the shards of a lab on many machines, and the merged run.

use super::{RUNS, Run, command_line, ending, location, print_run, quoted};
use crate::exit::Ending;
use crate::output;
use crate::progress::Bar;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use lab::hosts::{Machine, Sweep, sweep};
use lab::{LabError, Location, runs};
use std::path::{Path, PathBuf};

impl Run {
    pub(in crate::verbs) fn take_inventory(&mut self) -> Option<PathBuf> {
        self.inventory.take()
    }

    /// Runs the lab in virtual time on these hosts.
    pub(in crate::verbs) fn spread(&self, machines: &[Machine]) -> anyhow::Result<Ending> {
        let (mut lab, form) = self.lab()?;
        // Every host gets the same seed, which decides the turns of each shard.
        if let Some(seed) = self.seed {
            lab.set_seed(seed)?;
        }
        let out = match location(self, &lab, form)? {
            Location::At(out) => out,
            _ => runs::fresh(Path::new(RUNS), lab.name(), form),
        };
        let seed = match self.seed {
            None if lab.is_drawn() => {
                output::note(format_args!(
                    "paths are drawn with the seed of the file: {}",
                    lab.seed
                ));
                None
            }
            seed => seed,
        };
        if out.join("journal.jsonl").exists() {
            let text = format!("{} holds a run already: name another with --out", out.display());
            return Err(LabError::Usage(text).into());
        }
        let folder = parts_of(&out);
        let weir = std::env::current_exe().context("finding this program itself")?;
        let command = command_line(seed);
        let cancel = cancel_on_signals()?;
        let mut bar = Bar::new();
        let work = Sweep {
            lab: &lab,
            form,
            systems: &self.systems,
            repeats: self.repeats,
            seed,
            machines,
            weir: &weir,
            command: &command,
            folder: &folder,
        };
        let swept = sweep(&work, &cancel, &mut bar);
        bar.finish();
        let directories = swept.inspect_err(|_| {
            work.forget_without_parts();
            if folder.exists() {
                let out = quoted(&out.to_string_lossy());
                output::note(format_args!("to continue: the same command with --out {out}"));
            }
        })?;
        let merged = lab::merge::merge(&directories, &Location::At(out), self.trust)?;
        work.remove_parts().with_context(|| format!("removing {}", folder.display()))?;
        print_run(&merged.results, &merged.directory, None, self.json)?;
        Ok(ending(&merged.results))
    }
}

fn parts_of(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push("-parts");
    out.with_file_name(name)
}
