//! Joins the shards of a run to the whole run.

use super::directory::RunDirectory;
use super::environment;
use super::inputs::Inputs;
use super::runner::{self, Finished, Location};
use super::{command, on_disk, record};
use crate::analysis::summary;
use crate::bench::LabFile;
use crate::bench::machine::validity;
use crate::model::Plan;
use crate::model::Shard;
use crate::model::{LabError, Outcome};
use indexmap::{IndexMap, IndexSet};
use results::Form;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Examples, printed in the command's help.
pub const EXAMPLES: &str = "\
Examples:
  weir sim run cc-grid --shard 1/2 --out shards/1
  weir sim run cc-grid --shard 2/2 --out shards/2
  weir lab merge shards/1 shards/2 --out cc-grid

The shards may run on different machines. The command refuses shards of different files, builds,
seeds or forms, and names the shards that are missing. In virtual time the figures of the merged run
are those of a run without --shard, to the last bit.";

/// The directory of a shard, as read from disk.
struct Part {
    path: PathBuf,
    shard: Shard,
    began: toml::Table,
    text: String,
    outcomes: Vec<Outcome>,
}

/// Writes the whole run that the shards in `directories` make up. `trust`: the directories may
/// belong to another user.
pub fn merge(
    directories: &[PathBuf],
    location: &Location,
    trust: bool,
) -> Result<Finished, LabError> {
    let mut parts =
        directories.iter().map(|path| Part::read(path, trust)).collect::<Result<Vec<_>, _>>()?;
    parts.sort_by_key(|part| part.shard);
    let turns: Vec<Vec<Outcome>> =
        parts.iter_mut().map(|part| std::mem::take(&mut part.outcomes)).collect();
    let Some(first) = parts.first() else {
        return Err(LabError::Usage("name the directories of the shards".to_owned()));
    };
    parts.iter().try_for_each(|part| part.belongs_to(first))?;
    all_are_there(&parts)?;

    let (mut lab, form) = on_disk::begun(&first.path, trust)?;
    let file_seed = lab.seed;
    let environment = first.began.get("environment");
    let seed = environment.and_then(|facts| facts.get("seed")).and_then(toml::Value::as_integer);
    if let Some(seed) = seed.filter(|seed| seed.cast_unsigned() != file_seed) {
        lab.set_seed(seed.cast_unsigned())?;
    }
    let plan = planned(&lab, form, first);
    let mut outcomes = gathered(&parts, turns, &lab, &plan)?;
    let mut facts = facts(environment);
    let is_simulated = facts.get("world").and_then(Value::as_str) == Some("virtual time");
    let verb = if is_simulated { "weir sim run" } else { "weir lab run" };
    let command = command::of_continued(verb, &lab, &plan, file_seed, &first.began);
    let inputs = Inputs::of_run(&first.began).unwrap_or_default();
    plan.put_in_order(&mut outcomes);
    runner::add_readings(&outcomes, &mut facts);
    // `steal_percent` of the facts describes only the machine of one shard. Each cell has a
    // percentage of its own.
    facts.shift_remove("steal_percent");

    // Collect the notes of all shards, each text once.
    let texts = |key: &str| -> Vec<String> {
        let of = |part: &Part| part.began.get(key).and_then(toml::Value::as_array).cloned();
        let listed = parts.iter().filter_map(of).flatten();
        let listed = listed.filter_map(|text| text.as_str().map(str::to_owned));
        let each: IndexSet<String> = listed.collect();
        each.into_iter().collect()
    };
    let mut results = summary::results(&lab, &plan, &outcomes);
    if facts.contains_key("privilege") && lab.is_emulated() {
        results.method.extend(validity::method(&results));
    }
    if facts.contains_key("hosts") && !lab.middles().is_empty() {
        results.method.extend(validity::method_of_middles(&results));
    }
    let started = parts.iter().filter_map(|part| part.began.get("started")?.as_str()).min();
    let seconds = |part: &Part| part.began.get(environment::MEASURED)?.as_float();
    results.duration_s = parts.iter().map(seconds).sum();
    results.started = started.map(str::to_owned);
    results.command.clone_from(&command);
    results.notes.extend(texts(NOTES));
    let fewer = environment::fewer_at_first(&first.began, plan.repeats);
    results.notes.extend(fewer.map(|first| runner::more_repeats(first, plan.repeats)));
    if !is_simulated {
        results.notes.extend(machines(&parts));
    }
    results.warnings.extend(texts(WARNINGS));
    let started = (started.unwrap_or_default(), results.duration_s);
    let run = environment::as_run_toml(&lab, &plan, &command, started, &facts, &inputs).to_string();
    results.environment = facts;
    let (samples, series) = summary::samples(&lab, &outcomes);

    let mut directory = match location {
        Location::At(path) => RunDirectory::create(path, &lab.text(), &run)?,
        Location::Inside(folder) => {
            let name = || on_disk::fresh(folder, lab.name(), form);
            RunDirectory::create_new(name, &lab.text(), &run)?
        }
        Location::Resume { .. } => {
            return Err(LabError::Usage("a merged run is a new run".to_owned()));
        }
    };
    directory.mark(inputs.mark());
    directory.keep_all(&outcomes)?;
    let text = lab.text();
    report::write_run(directory.path(), &results, &samples, &series, &text, None)?;
    let unfit = runner::unfit(&lab, &outcomes);
    Ok(Finished { results, directory: directory.path().to_owned(), unfit, profile: None })
}

impl Part {
    fn read(path: &Path, trust: bool) -> Result<Self, LabError> {
        if RunDirectory::holds_runs(path) {
            let reason =
                format!("has a directory for each shard: name these, as in {}/*", path.display());
            return Err(LabError::RunDirectory { path: path.to_owned(), reason });
        }
        let began = RunDirectory::description(path, trust)?;
        let shard = began.get(SHARD).and_then(toml::Value::as_str);
        let shard = shard.and_then(|shard| shard.parse().ok()).ok_or_else(|| {
            let reason = "is no shard: name directories of runs that were begun with --shard";
            LabError::RunDirectory { path: path.to_owned(), reason: reason.to_owned() }
        })?;
        let (text, outcomes) = RunDirectory::turns(path, trust)?;
        let own = Inputs::of_run(&began).unwrap_or_default().mark();
        if RunDirectory::marks(path)?.iter().any(|mark| *mark != own) {
            let reason = "has turns of another build or of other files: run the shard again";
            return Err(LabError::RunDirectory {
                path: path.to_owned(),
                reason: reason.to_owned(),
            });
        }
        Ok(Self { path: path.to_owned(), shard, began, text, outcomes })
    }

    /// Fails if this shard and `first` are parts of different runs.
    fn belongs_to(&self, first: &Self) -> Result<(), LabError> {
        let wrong = |difference: &str| {
            let (path, first) = (self.path.display(), first.path.display());
            LabError::Usage(format!(
                "{path} and {first} are not shards of one run, {difference}: run the shards again with the \
                 same lab file, program and options"
            ))
        };
        if self.text != first.text {
            return Err(wrong("their lab files differ"));
        }
        if self.shard.of() != first.shard.of() {
            return Err(wrong(&format!(
                "{} and {} differ in the number of shards",
                self.shard, first.shard
            )));
        }
        for key in ["lab", "form", "systems", "repeats"] {
            if self.began.get(key) != first.began.get(key) {
                return Err(wrong(&format!("their `{key}` differs")));
            }
        }
        let fact = |part: &Self, name: &str| part.began.get("environment")?.get(name).cloned();
        for name in ["seed", "world", "privilege"] {
            if fact(self, name) != fact(first, name) {
                return Err(wrong(&format!("their `{name}` differs")));
            }
        }
        let (mine, theirs) = (Inputs::of_run(&self.began), Inputs::of_run(&first.began));
        let Some((mine, theirs)) = mine.zip(theirs) else {
            return Err(wrong(&format!("one of them has no `{}`", record::INPUTS)));
        };
        match theirs.differences(&mine).as_slice() {
            [] => Ok(()),
            names => Err(wrong(&format!("their inputs differ ({})", names.join(", ")))),
        }
    }
}

fn all_are_there(parts: &[Part]) -> Result<(), LabError> {
    if let Some(two) = parts.windows(2).find(|two| two[0].shard == two[1].shard) {
        let (one, other) = (two[0].path.display(), two[1].path.display());
        let shard = two[0].shard;
        return Err(LabError::Usage(format!(
            "{one} and {other} are both shard {shard}: name one of them"
        )));
    }
    let there: BTreeSet<u32> = parts.iter().map(|part| part.shard.number()).collect();
    let of = parts.first().map_or(0, |part| part.shard.of());
    let missing: Vec<String> = (1..=of)
        .filter(|number| !there.contains(number))
        .map(|number| number.to_string())
        .collect();
    match missing.as_slice() {
        [] => Ok(()),
        [one] => Err(LabError::Usage(format!("shard {one}/{of} is missing: name its directory"))),
        _ => Err(LabError::Usage(format!(
            "{} of {of} shards are missing: {}; name their directories",
            missing.len(),
            missing.join(", ")
        ))),
    }
}

/// Plans the run of which the shards are parts.
fn planned(lab: &LabFile, form: Form, first: &Part) -> Plan {
    let systems = first.began.get("systems").and_then(toml::Value::as_array);
    let systems = systems.into_iter().flatten().filter_map(toml::Value::as_str);
    let systems: Vec<String> = systems.map(str::to_owned).collect();
    let repeats = first.began.get("repeats").and_then(toml::Value::as_integer);
    Plan::new(lab, form, &systems, repeats.and_then(|repeats| repeats.try_into().ok()))
}

/// Collects the outcomes of all shards. Refuses a shard whose run has not ended.
fn gathered(
    parts: &[Part],
    turns: Vec<Vec<Outcome>>,
    lab: &LabFile,
    plan: &Plan,
) -> Result<Vec<Outcome>, LabError> {
    let mut outcomes = Vec::new();
    for (part, mut own) in parts.iter().zip(turns) {
        let mut of_part = plan.clone();
        of_part.keep_shard(lab, part.shard);
        of_part.keep_own(&mut own);
        let left = of_part.left(&own).len();
        if left > 0 {
            let path = part.path.display();
            return Err(LabError::Usage(format!(
                "shard {} in {path} lacks {left} of its {} turns: continue it with --resume {path}",
                part.shard,
                of_part.steps.len()
            )));
        }
        outcomes.extend(own);
    }
    Ok(outcomes)
}

/// Converts the facts of `run.toml` to the format of `results.json`.
fn facts(environment: Option<&toml::Value>) -> IndexMap<String, Value> {
    match environment.map(serde_json::to_value) {
        Some(Ok(Value::Object(facts))) => facts.into_iter().collect(),
        _ => IndexMap::new(),
    }
}

/// Returns a note if the shards ran on different machines.
fn machines(parts: &[Part]) -> Option<String> {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for part in parts {
        let environment = part.began.get("environment");
        let fact = |name: &str| {
            let value = environment.and_then(|facts| facts.get(name));
            value.map(|value| value.to_string().replace('"', "")).unwrap_or_default()
        };
        let machine = format!("{} ({} CPUs)", fact("cpu_model"), fact("cores_online"));
        *kinds.entry(machine).or_default() += 1;
    }
    (kinds.len() > 1).then(|| {
        let kinds: Vec<String> =
            kinds.iter().map(|(machine, shards)| format!("{shards} on {machine}")).collect();
        format!("the shards ran on different machines: {}", kinds.join(", "))
    })
}

/// Keys of a shard's `run.toml`: the shard, and the notes and warnings of its run.
pub(super) const SHARD: &str = "shard";
pub(super) const NOTES: &str = "notes";
pub(super) const WARNINGS: &str = "warnings";
