//! A lab in virtual time on many machines: each runs shards of the lab through its agent, and the
//! finished shards are copied here.

use super::inventory::temporary_folder;
use super::message::Wanted;
use super::remote::RemoteHost;
use super::seam::{LabHost, Order, last_words};
use super::ssh::Ssh;
use crate::bench::programs;
use crate::bench::{Bench, Executor, LabFile};
use crate::model::checksum::sha256;
use crate::model::file::ansible::Inventory as Ansible;
use crate::model::file::{Document, HostSpec, SystemSpec, with_port};
use crate::model::plan::form_of;
use crate::model::{Cancel, Failure, LabError, Plan, Shard};
use results::Form;
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use toml::Spanned;

/// A lab, and the machines that share it.
#[derive(Debug)]
pub struct Sweep<'a> {
    pub lab: &'a LabFile,
    pub form: Form,
    /// The systems to measure. Empty: all systems of the form.
    pub systems: &'a [String],
    pub repeats: Option<u32>,
    pub seed: Option<u64>,
    pub machines: &'a [Machine],
    /// The path of this program, which is copied to the machines.
    pub weir: &'a Path,
    /// The command that repeats the run.
    pub command: &'a str,
    /// Receives the shards. Shards that are already in the folder are not run again.
    pub folder: &'a Path,
}

/// A machine that runs shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The name in messages.
    name: String,
    /// The destination of ssh, and the key if an inventory names a key.
    ssh: String,
    key: Option<String>,
    /// The jump host, and root by sudo, if an inventory names them.
    jump: Option<String>,
    sudo: bool,
    /// The file that ssh reads instead of the user's configuration.
    config: Option<String>,
}

impl Machine {
    /// Returns the machine's name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn spec(&self) -> HostSpec {
        let mut spec = HostSpec::by_ssh(&self.ssh);
        spec.key.clone_from(&self.key);
        spec.jump.clone_from(&self.jump);
        spec.sudo = self.sudo.then(|| Spanned::new(0..0, true));
        spec.config = self.config.clone().map(|config| Spanned::new(0..0, config));
        spec
    }
}

/// Resolves names to machines. Names are destinations of ssh or, with an inventory, hosts and
/// groups. `config`: the file that ssh reads instead of the user's configuration.
pub fn machines(
    names: &[String],
    inventory: Option<&Path>,
    config: Option<&Path>,
) -> Result<Vec<Machine>, LabError> {
    let plain = |c: char| !c.is_whitespace() && !c.is_control();
    let mut all: Vec<Machine> = Vec::new();
    let inventory = match inventory {
        None => None,
        Some(path) => {
            let wrong = |reason: String| LabError::Usage(format!("{}: {reason}", path.display()));
            Some((Ansible::parse(&Document::text_of(path)?).map_err(wrong)?, wrong))
        }
    };
    for name in names {
        let found = match &inventory {
            None => vec![(name.clone(), name.clone(), None, None, false)],
            Some((inventory, wrong)) => {
                let found = inventory.find_all(name).map_err(wrong)?;
                let each = found.into_iter();
                each.map(|(name, at)| (name, at.ssh, at.key, at.jump, at.sudo)).collect()
            }
        };
        for (name, ssh, key, jump, sudo) in found {
            if ssh.is_empty() || ssh.starts_with('-') || !ssh.chars().all(plain) {
                return Err(LabError::Usage(format!(
                    "`{}` is no destination of ssh: root@10.0.0.5, or a name of ssh's configuration",
                    units::foreign(ssh)
                )));
            }
            if let Some(url) = with_port(&ssh) {
                return Err(LabError::Usage(format!("ssh reads no port in `{ssh}`: write {url}")));
            }
            let config = config.map(|config| config.display().to_string());
            let machine = Machine { name, ssh, key, jump, sudo, config };
            // Two agents on one host would share its CPUs.
            if !all.contains(&machine) {
                all.push(machine);
            }
        }
    }
    match all.is_empty() {
        true => {
            Err(LabError::Usage("no machine is named: name one, as in root@10.0.0.5".to_owned()))
        }
        false => Ok(all),
    }
}

/// Receives progress reports for the user.
pub trait SweepProgress {
    /// Reports the start. `turns`: the number of all turns of the lab. `finished`: the number of
    /// finished turns.
    fn begin(&mut self, turns: usize, finished: usize, estimate: Duration);
    /// Reports progress. `hosts`: the work of each host, for one line.
    fn finished(&mut self, turns: usize, hosts: &str);
    fn note(&mut self, text: &str);
}

/// The shards that no host has finished.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Shard>,
    running: usize,
}

enum Event {
    /// `host` has finished this number of turns of `shard`.
    Turns {
        host: usize,
        shard: Shard,
        turns: usize,
    },
    Finished {
        host: usize,
        shard: Shard,
    },
    /// `failure` ended the work of `host`: no shard goes to this host any more.
    Lost {
        host: usize,
        failure: Failure,
    },
}

/// Runs all shards, and returns their directories.
pub fn sweep(
    sweep: &Sweep<'_>,
    cancel: &Cancel,
    progress: &mut dyn SweepProgress,
) -> Result<Vec<PathBuf>, LabError> {
    let sha256 = programs::own_sha256()?;
    let bench = Executor::Simulator { threads: sweep.machines.len() };
    let bench = bench.bench(sweep.lab)?;
    let plan = sweep.plan(&*bench);
    let wanted = u32::try_from(sweep.machines.len()).unwrap_or(u32::MAX);
    let wanted = wanted.saturating_mul(SHARDS_OF_A_HOST).min(MOST_SHARDS);
    // Shards beyond the number of groups of turns would be empty.
    let of = plan.shards(sweep.lab, wanted).into_iter().max().unwrap_or(1);
    let numbers = plan.shards(sweep.lab, of);
    let turns_of = |shard: Shard| numbers.iter().filter(|one| **one == shard.number()).count();
    let shards: Vec<Shard> =
        (1..=of).filter_map(|number| format!("{number}/{of}").parse().ok()).collect();
    let unusable = |path: &Path, error: &std::io::Error| LabError::RunDirectory {
        path: path.to_owned(),
        reason: format!("cannot be written: {error}; name another with --out"),
    };
    fs::create_dir_all(sweep.folder).map_err(|error| unusable(sweep.folder, &error))?;
    sweep.claim(of, &sha256)?;
    let (done, waiting): (Vec<Shard>, Vec<Shard>) =
        shards.iter().copied().partition(|shard| sweep.directory(*shard).exists());
    let finished: usize = done.iter().map(|shard| turns_of(*shard)).sum();
    let left: Vec<_> = plan.steps.iter().take(plan.steps.len() - finished).collect();
    progress.begin(plan.steps.len(), finished, bench.estimate(&plan, &left));
    let sockets = temporary_folder()?;
    let waiting = longest_first(waiting, |shard| {
        let steps = plan.steps.iter().zip(&numbers);
        let own = steps.filter(|(_, number)| **number == shard.number()).map(|(step, _)| step);
        bench.estimate(&plan, &own.collect::<Vec<_>>())
    });
    let queue = Mutex::new(Queue { waiting, running: 0 });
    let (sender, events) = channel();
    let mut lost: Vec<String> = Vec::new();
    std::thread::scope(|scope| {
        for host in 0..sweep.machines.len() {
            let (sender, queue, sockets, sha256) =
                (sender.clone(), &queue, sockets.path(), &sha256);
            let turns_of = &turns_of;
            scope.spawn(move || {
                let worker = Worker { sweep, turns_of, host, queue, events: &sender, cancel };
                if let Err(failure) = worker.work(sockets, sha256) {
                    let _ = sender.send(Event::Lost { host, failure });
                }
            });
        }
        drop(sender);
        let mut states: Vec<String> = vec!["connecting".to_owned(); sweep.machines.len()];
        let mut under_way = vec![0; sweep.machines.len()];
        let mut complete = finished;
        for event in events {
            match event {
                Event::Turns { host, shard, turns } => {
                    under_way[host] = turns;
                    states[host] = format!("{shard} {turns}/{}", turns_of(shard));
                }
                Event::Finished { host, shard } => {
                    under_way[host] = 0;
                    complete += turns_of(shard);
                    states[host] = format!("{shard} done");
                }
                Event::Lost { failure: Failure::Interrupted, .. } => {}
                Event::Lost { host, failure } => {
                    under_way[host] = 0;
                    states[host] = "lost".to_owned();
                    lost.push(failure.to_string());
                    progress.note(&format!("{failure}; other hosts take its parts"));
                }
            }
            let each = sweep.machines.iter().zip(&states);
            let line: Vec<String> =
                each.map(|(machine, state)| format!("{} {state}", machine.name)).collect();
            progress.finished(complete + under_way.iter().sum::<usize>(), &line.join(", "));
        }
    });
    if cancel.is_cancelled() {
        return Err(LabError::Interrupted { directory: Some(sweep.folder.to_owned()) });
    }
    let directories: Vec<PathBuf> = shards.iter().map(|shard| sweep.directory(*shard)).collect();
    let missing = directories.iter().filter(|path| !path.exists()).count();
    match missing {
        0 => Ok(directories),
        _ if missing == directories.len() => Err(LabError::HostsUnfit { problems: lost }),
        _ => Err(LabError::HostLost {
            host: format!("{missing} of {of} parts have no result"),
            reason: lost.join("; "),
            directory: Some(sweep.folder.to_owned()),
        }),
    }
}

impl Sweep<'_> {
    /// Plans the turns of all shards. A host leaves out the same systems as this `bench`.
    fn plan(&self, bench: &dyn Bench) -> Plan {
        let form = form_of(self.lab, self.form);
        let is_chosen = |system: &&SystemSpec| {
            let is_asked = self.systems.iter().any(|name| name == system.name());
            let is_wanted = is_asked || (self.systems.is_empty() && form.measures(system.name()));
            is_wanted && bench.missing(system, is_asked).is_none()
        };
        let systems = self.lab.systems().filter(is_chosen);
        let names: Vec<String> = systems.map(|system| system.name().to_owned()).collect();
        Plan::new(self.lab, self.form, &names, self.repeats)
    }

    /// Describes the parts in a new folder. A folder that exists must have the same description.
    fn claim(&self, of: u32, weir_sha256: &str) -> Result<(), LabError> {
        let path = self.folder.join(DESCRIPTION);
        let refuse = |reason: String| LabError::RunDirectory { path: path.clone(), reason };
        let wrong = |error: std::io::Error| refuse(format!("{error}; name another with --out"));
        let number = |number: Option<u64>| number.map_or("none".to_owned(), |n| n.to_string());
        let text = format!(
            "parts = {of}\nform = \"{:?}\"\nsystems = \"{}\"\nrepeats = \"{}\"\nseed = \"{}\"\n\
             lab_sha256 = \"{}\"\nweir_sha256 = \"{weir_sha256}\"\n",
            self.form,
            self.systems.join(","),
            number(self.repeats.map(u64::from)),
            number(self.seed),
            sha256(&*self.lab.text()),
        );
        match fs::read_to_string(&path) {
            Ok(found) if found == text => return Ok(()),
            Ok(found) => {
                let differs = found.lines().find(|line| !text.lines().any(|own| own == *line));
                let differs = units::foreign(differs.unwrap_or("another description").to_owned());
                return Err(refuse(format!(
                    "the parts are of another run ({differs}): repeat its options, or name another with --out"
                )));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(wrong(error)),
        }
        if fs::read_dir(self.folder).map_err(wrong)?.next().is_some() {
            return Err(refuse(
                "the folder has other files: name another run with --out".to_owned(),
            ));
        }
        fs::write(&path, text).map_err(wrong)
    }

    /// Removes the folder after a run that finished no part.
    pub fn forget_without_parts(&self) {
        let Ok(mut entries) = fs::read_dir(self.folder) else { return };
        let is_part = |name: &str| name != DESCRIPTION && !name.starts_with(UNFINISHED);
        let has_part =
            entries.any(|one| one.is_ok_and(|one| is_part(&one.file_name().to_string_lossy())));
        if !has_part {
            let _ = self.remove_parts();
        }
    }

    /// Removes the folder with the parts. Keeps files that this command did not write.
    pub fn remove_parts(&self) -> std::io::Result<()> {
        for entry in fs::read_dir(self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name == DESCRIPTION {
                fs::remove_file(entry.path())?;
            } else if name.contains("-of-") || name.starts_with(UNFINISHED) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        fs::remove_dir(self.folder)
    }

    fn directory(&self, shard: Shard) -> PathBuf {
        self.folder.join(format!("{}-of-{}", shard.number(), shard.of()))
    }

    /// Builds the command of a shard on a host. `lab` and `out` are paths on the host.
    fn line(&self, weir: &str, lab: &str, shard: Shard, threads: u32, out: &str) -> Vec<String> {
        let mut line: Vec<String> = [weir, "sim", "run", lab].map(str::to_owned).into();
        match self.form {
            Form::Quick => line.push("--quick".to_owned()),
            Form::Smoke => line.push("--smoke".to_owned()),
            Form::Full | Form::Other => {}
        }
        let mut option = |name: &str, value: String| line.extend([name.to_owned(), value]);
        if !self.systems.is_empty() {
            option("--systems", self.systems.join(","));
        }
        self.repeats.iter().for_each(|repeats| option("--repeats", repeats.to_string()));
        self.seed.iter().for_each(|seed| option("--seed", seed.to_string()));
        option("--shard", shard.to_string());
        option("--threads", threads.to_string());
        option("--out", out.to_owned());
        line
    }
}

/// The worker of one host.
struct Worker<'a> {
    sweep: &'a Sweep<'a>,
    /// Counts the turns of a shard.
    turns_of: &'a (dyn Fn(Shard) -> usize + Sync),
    host: usize,
    queue: &'a Mutex<Queue>,
    events: &'a Sender<Event>,
    cancel: &'a Cancel,
}

/// A shard that a host has taken. Dropping this value gives the shard back to the other hosts
/// unless the shard is finished.
struct Taken<'a> {
    queue: &'a Mutex<Queue>,
    shard: Shard,
    is_finished: bool,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut queue = lock(self.queue);
        queue.running -= 1;
        if !self.is_finished {
            queue.waiting.push_front(self.shard);
        }
    }
}

impl Worker<'_> {
    fn work(&self, sockets: &Path, sha256: &str) -> Result<(), Failure> {
        let machine = &self.sweep.machines[self.host];
        let name = machine.name();
        let ssh = Ssh::of(name, &machine.spec(), self.host, sockets, self.cancel);
        let Some(ssh) = ssh else { return Ok(()) };
        let worked = self.work_by(&ssh, name, sha256);
        ssh.close();
        worked
    }

    fn work_by(&self, ssh: &Ssh, name: &str, sha256: &str) -> Result<(), Failure> {
        ssh.install(self.sweep.weir, sha256)?;
        let host = RemoteHost::connect(name, ssh.agent(sha256), sha256, self.cancel)?;
        let threads = host.facts(Wanted::default())?.cpus.clamp(1, MOST_THREADS);
        host.lease(LEASE)?;
        let lab = host.put("lab.toml", &self.sweep.lab.text())?;
        while let Some(mut taken) = self.take(&host)? {
            let turns = (self.turns_of)(taken.shard);
            self.run(&host, &lab, (taken.shard, turns), threads)?;
            taken.is_finished = true;
            let _ = self.events.send(Event::Finished { host: self.host, shard: taken.shard });
        }
        Ok(())
    }

    /// Takes the next shard. `None` once all shards are finished. While other hosts work, waits: a
    /// shard of a lost host comes back.
    fn take(&self, host: &RemoteHost) -> Result<Option<Taken<'_>>, Failure> {
        let mut told = Instant::now();
        loop {
            {
                let mut queue = lock(self.queue);
                if let Some(shard) = queue.waiting.pop_front() {
                    queue.running += 1;
                    return Ok(Some(Taken { queue: self.queue, shard, is_finished: false }));
                }
                if queue.running == 0 {
                    return Ok(None);
                }
            }
            self.cancel.sleep_until(Instant::now() + LOOK)?;
            if told.elapsed() > LEASE / 10 {
                host.lease(LEASE)?;
                told = Instant::now();
            }
        }
    }

    fn run(
        &self,
        host: &RemoteHost,
        lab: &str,
        (shard, turns): (Shard, usize),
        threads: u32,
    ) -> Result<(), Failure> {
        let room = Path::new(lab).parent().unwrap_or(Path::new("/"));
        let name = format!("shard-{}", shard.number());
        let out = room.join(&name).display().to_string();
        let argv = self.sweep.line(host.weir(), lab, shard, threads, &out);
        let mut task = host.start(&Order { argv, cpus: Vec::new() })?;
        let mut journal = String::new();
        let file = format!("{name}/journal.jsonl");
        let longest = LONGEST_TURN.saturating_mul(turns).min(LONGEST_JOURNAL);
        loop {
            let end = task.wait(LOOK, self.cancel)?;
            self.read_on(host, &file, &mut journal, longest)?;
            let done = journal.lines().count();
            let _ = self.events.send(Event::Turns { host: self.host, shard, turns: done });
            match end.map(|end| end.code) {
                None => {}
                // Status 1 means that a turn failed.
                Some(Some(0 | 1)) => break,
                Some(_) => {
                    let words = last_words(task.as_mut());
                    let text = format!("{}: part {shard} ended: {words}", host.name());
                    return Err(Failure::Workload(text));
                }
            }
        }
        let mut described = String::new();
        let file = format!("{name}/run.toml");
        self.read_on(host, &file, &mut described, LONGEST_DESCRIPTION)?;
        if described.is_empty() {
            let words = last_words(task.as_mut());
            let text = format!("{}: part {shard} has no result: {words}", host.name());
            return Err(Failure::Workload(text));
        }
        // A program that could not write its journal exits with the same status as a program whose
        // turn failed.
        let found = journal.lines().count();
        if found != turns {
            let words = last_words(task.as_mut());
            let text =
                format!("{}: part {shard} has {found} of {turns} turns: {words}", host.name());
            return Err(Failure::Workload(text));
        }
        self.keep(shard, &described, &journal)
    }

    /// Appends the rest of a host's file to `text`, from the position where `text` ends. The file
    /// has at most `longest` bytes.
    fn read_on(
        &self,
        host: &RemoteHost,
        file: &str,
        text: &mut String,
        longest: usize,
    ) -> Result<(), Failure> {
        loop {
            let piece = host.read(file, text.len() as u64)?;
            if piece.is_empty() {
                return Ok(());
            }
            text.push_str(&piece);
            if text.len() > longest {
                let reason = format!("{}: a file of a part is too long", host.name());
                return Err(Failure::Workload(reason));
            }
        }
    }

    /// Writes the shard to this machine. The directory appears when the shard is complete.
    fn keep(&self, shard: Shard, described: &str, journal: &str) -> Result<(), Failure> {
        let wrong = |error: std::io::Error| Failure::io("keeping a part of the run", &error);
        let mut described: toml::Table = toml::from_str(described).map_err(|error| {
            let reason = units::foreign(error.to_string()).to_string();
            Failure::Workload(format!("the run.toml of part {shard} cannot be read: {reason}"))
        })?;
        described.insert("command".to_owned(), self.sweep.command.into());
        let part = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(self.sweep.folder);
        let part = part.map_err(wrong)?;
        let write = |name: &str, text: &str| fs::write(part.path().join(name), text);
        write("run.toml", &described.to_string())
            .and_then(|()| write("lab.toml", &self.sweep.lab.text()))
            .and_then(|()| write("journal.jsonl", journal))
            .and_then(|()| fs::rename(part.path(), self.sweep.directory(shard)))
            .map_err(wrong)?;
        // The rename gave the folder its final name, so it must stay.
        drop(part.keep());
        Ok(())
    }
}

/// Orders the shards by their estimated time. A long shard that begins last would keep one host
/// busy while the others wait.
fn longest_first(mut shards: Vec<Shard>, estimate: impl Fn(Shard) -> Duration) -> VecDeque<Shard> {
    shards.sort_by_cached_key(|shard| std::cmp::Reverse(estimate(*shard)));
    shards.into()
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of shards for each host. With this number, the last shard of a slow host takes a
/// small part of the whole time.
const SHARDS_OF_A_HOST: u32 = 10;
const MOST_SHARDS: u32 = 10_000;
/// The file that describes the parts of a folder.
const DESCRIPTION: &str = "parts.toml";
const UNFINISHED: &str = "part-";
const MOST_THREADS: u32 = 1024;
const LOOK: Duration = Duration::from_millis(200);
/// An agent ends after this time without a request from its controller.
const LEASE: Duration = Duration::from_secs(300);
/// Maximum size of a turn in a journal. The time series are the longest part of a turn.
const LONGEST_TURN: usize = 16 << 20;
/// Maximum size of the journal of a part, which is in memory as a whole.
const LONGEST_JOURNAL: usize = 2 << 30;
const LONGEST_DESCRIPTION: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::builtin;

    #[test]
    fn a_shard_command_has_the_options_of_the_run() {
        let lab = builtin::open("cc-grid").unwrap();
        let sweep = Sweep {
            lab: &lab,
            form: Form::Quick,
            systems: &["cubic".to_owned(), "bbr".to_owned()],
            repeats: Some(2),
            seed: Some(7),
            machines: &[],
            weir: Path::new("weir"),
            command: "",
            folder: Path::new("parts"),
        };
        let line = sweep.line("/w", "/r/lab.toml", "2/3".parse().unwrap(), 4, "/r/shard-2");
        let expected = "/w sim run /r/lab.toml --quick --systems cubic,bbr --repeats 2 --seed 7 \
                        --shard 2/3 --threads 4 --out /r/shard-2";
        assert_eq!(line.join(" "), expected);
    }

    #[test]
    fn shards_of_another_run_are_refused_and_foreign_files_kept() {
        let (lab, folder) = (builtin::open("cc-grid").unwrap(), tempfile::tempdir().unwrap());
        let parts = folder.path().join("run-parts");
        fs::create_dir(&parts).unwrap();
        let sweep = |seed| Sweep {
            lab: &lab,
            form: Form::Quick,
            systems: &[],
            repeats: None,
            seed: Some(seed),
            machines: &[],
            weir: Path::new("weir"),
            command: "",
            folder: &parts,
        };
        sweep(7).claim(3, "aa").unwrap();
        sweep(7).claim(3, "aa").unwrap();
        let error = sweep(8).claim(3, "aa").unwrap_err().to_string();
        assert!(error.contains("of another run (seed = \"7\")"), "{error}");
        fs::create_dir(sweep(7).directory("1/3".parse().unwrap())).unwrap();
        fs::write(parts.join("notes"), "mine").unwrap();
        assert!(sweep(7).remove_parts().is_err());
        let left: Vec<_> = fs::read_dir(&parts).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["notes"]);
        let error = sweep(7).claim(3, "aa").unwrap_err().to_string();
        assert!(error.contains("has other files"), "{error}");
    }

    #[test]
    fn machines_are_ssh_destinations_or_inventory_groups() {
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let found = machines(&names(&["a", "root@b", "a"]), None, None).unwrap();
        assert_eq!(found.iter().map(|one| one.ssh.as_str()).collect::<Vec<_>>(), ["a", "root@b"]);
        for wrong in [&["-oProxyCommand=x"][..], &["a b"], &[""], &[]] {
            assert!(machines(&names(wrong), None, None).is_err(), "{wrong:?}");
        }
        let error = machines(&names(&["root@b:2222"]), None, None).unwrap_err().to_string();
        assert!(error.contains("write ssh://root@b:2222"), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "[all:vars]\nansible_user=me\n[grid]\nn[1:2]\n").unwrap();
        let found = machines(&names(&["grid"]), Some(file.path()), None).unwrap();
        assert_eq!(
            found.iter().map(|one| one.ssh.as_str()).collect::<Vec<_>>(),
            ["me@n1", "me@n2"]
        );
        let error = machines(&names(&["gird"]), Some(file.path()), None).unwrap_err().to_string();
        assert!(error.contains("did you mean `grid`?"), "{error}");
    }

    #[test]
    fn systems_that_do_not_run_in_virtual_time_have_no_turns() {
        let text = "name = \"grid\"\nhosts = [\"a\", \"b\"]\n\
            [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"100mbit\"\nrtt = \"20ms\"\n\
            [workload]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n\
            [[system]]\nname = \"cubic\"\nkind = \"tcp\"\ncongestion = \"cubic\"\n\
            [[system]]\nname = \"without\"\nkind = \"tcp\"\ncongestion = \"reno\"\n\
            sysctl = { \"net.ipv4.tcp_sack\" = \"0\" }\n\
            [form.full]\nrepeats = 2\nduration = \"20s\"\n";
        let lab = LabFile::parse("grid.toml", text).unwrap();
        let sweep = Sweep {
            lab: &lab,
            form: Form::Full,
            systems: &[],
            repeats: None,
            seed: None,
            machines: &[],
            weir: Path::new("weir"),
            command: "",
            folder: Path::new("parts"),
        };
        let executor = Executor::Simulator { threads: 1 };
        let bench = executor.bench(&lab).unwrap();
        assert_eq!(sweep.plan(&*bench).steps.len(), 2);
    }

    #[test]
    fn long_shards_begin_before_short_shards() {
        let shards: Vec<Shard> = (1..=3).map(|n| format!("{n}/3").parse().unwrap()).collect();
        let seconds = [5, 1, 9];
        let estimate = |shard: Shard| Duration::from_secs(seconds[shard.number() as usize - 1]);
        let order: Vec<u32> =
            longest_first(shards, estimate).iter().map(|shard| shard.number()).collect();
        assert_eq!(order, [3, 1, 2]);
    }

    #[test]
    fn a_shard_of_a_lost_host_goes_to_another_host() {
        let shard: Shard = "1/1".parse().unwrap();
        let queue = Mutex::new(Queue { waiting: [].into(), running: 1 });
        drop(Taken { queue: &queue, shard, is_finished: false });
        assert_eq!(lock(&queue).waiting, [shard]);
        lock(&queue).running = 1;
        drop(Taken { queue: &queue, shard, is_finished: true });
        let queue = lock(&queue);
        assert_eq!((queue.waiting.len(), queue.running), (1, 0));
    }
}
