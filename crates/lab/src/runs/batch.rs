//! The shards of a lab as one array job of Slurm, or as one Indexed Job of Kubernetes.

use crate::bench::{Executor, LabFile};
use crate::model::LabError;
use crate::model::checksum::sha256;
use crate::model::plan::{self, Plan};
use results::Form;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// A lab, cut into shards for a cluster.
#[derive(Debug)]
pub struct Batch {
    lab: LabFile,
    form: Form,
    seed: Option<u64>,
    shards: u32,
    /// The absolute path of the lab file. `None` for a built-in lab.
    file: Option<PathBuf>,
    /// The estimated time of the whole lab on one CPU.
    estimate: Duration,
}

impl Batch {
    /// Plans the job. `file`: the absolute path of the lab, unless the lab is built in. `shards`:
    /// by default the largest number whose shards take half a minute or more each.
    pub fn new(
        lab: LabFile,
        file: Option<PathBuf>,
        form: Form,
        seed: Option<u64>,
        shards: Option<u32>,
    ) -> Result<Self, LabError> {
        // The error names the reason and its position in the file.
        let simulator = Executor::Simulator { threads: 1 };
        let bench = simulator.bench(&lab)?;
        let measured = plan::form_of(&lab, form);
        let names = lab.systems().map(|system| system.name().to_owned());
        let names: Vec<String> = names.filter(|name| measured.measures(name)).collect();
        let plan = Plan::new(&lab, form, &names, None);
        let estimate = bench.estimate(&plan, &plan.steps.iter().collect::<Vec<_>>());
        drop(bench);
        // Shards beyond the number of groups of turns would be empty.
        let most = plan.shards(&lab, MOST).into_iter().max().unwrap_or(1);
        let usual = estimate.as_secs() / SHORTEST.as_secs();
        let usual = u32::try_from(usual).unwrap_or(MOST).clamp(1, USUAL_MOST);
        let shards = shards.unwrap_or(usual).clamp(1, most);
        Ok(Self { lab, form, seed, shards, file, estimate })
    }

    pub fn shards(&self) -> u32 {
        self.shards
    }

    pub fn estimate(&self) -> Duration {
        self.estimate
    }

    /// Returns a note about the number of tasks if a cluster with usual settings refuses the array.
    pub fn slurm_limit(&self) -> Option<String> {
        (self.shards > USUAL_MOST).then(|| {
            format!(
                "Slurm accepts an array of {} tasks only if its MaxArraySize is above that number (1001 by default), and \
                 otherwise says `Invalid job array specification`: ask scontrol show config, or write at most \
                 {USUAL_MOST} parts with --shards",
                self.shards
            )
        })
    }

    /// Writes a script for `sbatch`.
    pub fn slurm(&self) -> String {
        let (name, shards, parts) = (self.name(), self.shards, self.parts());
        let limit = self.slurm_limit().map(|limit| format!("# {limit}\n")).unwrap_or_default();
        let mut text = format!(
            "#!/bin/sh\n\
             # The lab {name} in virtual time, in {shards} parts. Submit this file with sbatch, in a directory\n\
             # that all nodes share. Afterwards: weir lab merge {parts}/* --out {name}\n\
             {limit}\
             #SBATCH --job-name=weir-{name}\n\
             #SBATCH --array=1-{shards}\n\
             #SBATCH --cpus-per-task=1\n\
             #SBATCH --requeue\n\
             #SBATCH --output={name}-%a.log\n\
             set -eu\n"
        );
        if let Some(file) = &self.file {
            let sum = sha256(&*self.lab.text());
            let file = quoted(&file.display().to_string());
            let _ = write!(
                text,
                "lab={file}\n\
                 if ! printf '%s  %s\\n' {sum} \"$lab\" | sha256sum --check --status; then\n  \
                 echo \"$lab is missing or has changed: write this script again with weir lab export\" >&2\n  \
                 exit 2\n\
                 fi\n"
            );
        }
        let lab = if self.file.is_some() { "\"$lab\"" } else { self.lab.name() };
        let run = self.run(lab, "\"$SLURM_ARRAY_TASK_ID\"");
        let _ = write!(
            text,
            "out={parts}/$SLURM_ARRAY_TASK_ID\n\
             # A task that Slurm starts again continues.\n\
             if [ -e \"$out/run.toml\" ]; then\n  \
             exec weir sim run --threads 1 --resume \"$out\"\n\
             fi\n\
             exec {run}"
        );
        text
    }

    /// Writes a manifest for `kubectl apply`. `image` has weir and a shell, and the volume claim
    /// `claim` receives the results.
    pub fn kubernetes(&self, image: &str, claim: &str) -> String {
        let (name, shards) = (self.object_name(), self.shards);
        let mut text = format!(
            "# The lab {0} in virtual time, in {shards} parts. The claim {claim} receives the parts.\n\
             # Afterwards, where the claim is mounted: weir lab merge {1}/* --out {0}\n",
            self.name(),
            self.parts()
        );
        if self.file.is_some() {
            let lines =
                self.lab.text().lines().map(|line| format!("    {line}")).collect::<Vec<_>>();
            let _ = write!(
                text,
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  lab.toml: |2\n{}\n---\n",
                lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
            );
        }
        let lab = if self.file.is_some() { "/lab/lab.toml" } else { self.lab.name() };
        let run = self.run(lab, "$((JOB_COMPLETION_INDEX + 1))");
        let script = format!(
            "out=/results/{}/$((JOB_COMPLETION_INDEX + 1))\n\
             # A pod that Kubernetes starts again continues. Status 1: a turn failed, and would fail again.\n\
             if [ -e \"$out/run.toml\" ]; then\n  \
             weir sim run --threads 1 --resume \"$out\" || [ $? -eq 1 ]\n\
             else\n  \
             {} || [ $? -eq 1 ]\n\
             fi\n",
            self.parts(),
            run.trim_end()
        );
        let script = script.lines().map(|line| format!("              {line}\n"));
        let (mount, volume) = match self.file.is_some() {
            true => (
                "            - name: lab\n              mountPath: /lab\n",
                format!("        - name: lab\n          configMap:\n            name: {name}\n"),
            ),
            false => ("", String::new()),
        };
        let (image, claim) = (text_of_yaml(image), text_of_yaml(claim));
        let _ = write!(
            text,
            "apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  completionMode: Indexed
  completions: {shards}
  parallelism: {shards}
  backoffLimit: {backoff}
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: weir
          image: {image}
          command:
            - /bin/sh
            - -euc
            - |
{script}          resources:
            requests:
              cpu: \"1\"
              memory: 256Mi
          volumeMounts:
            - name: results
              mountPath: /results
{mount}      volumes:
        - name: results
          persistentVolumeClaim:
            claimName: {claim}
{volume}",
            backoff = shards.saturating_mul(2).max(6),
            script = script.collect::<String>(),
        );
        text
    }

    /// Returns the shell command of a shard. The shell word `number` is the shard's number.
    fn run(&self, lab: &str, number: &str) -> String {
        let form = match self.form {
            Form::Quick => " --quick",
            Form::Smoke => " --smoke",
            Form::Full | Form::Other => "",
        };
        let seed = self.seed.map(|seed| format!(" --seed {seed}")).unwrap_or_default();
        format!(
            "weir sim run {lab}{form}{seed} --threads 1 \\\n  --shard {number}/{} --out \"$out\"\n",
            self.shards
        )
    }

    /// Returns the directory of the shards' runs. A job with another file, form, seed or number of
    /// shards has another directory, and so continues no run of this job.
    fn parts(&self) -> String {
        let mut name = self.name();
        match self.form {
            Form::Quick => name.push_str("-quick"),
            Form::Smoke => name.push_str("-smoke"),
            Form::Full | Form::Other => {}
        }
        self.seed.iter().for_each(|seed| name.push_str(&format!("-seed{seed}")));
        if self.file.is_some() {
            let sum = sha256(&*self.lab.text());
            name.push_str(&format!("-{}", &sum[..8]));
        }
        format!("{name}-{}-shards", self.shards)
    }

    /// Returns the name of the lab for file names: letters, digits, `-` and `_`.
    fn name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
        self.lab.name().chars().map(plain).collect()
    }

    /// Returns the name as a DNS label (RFC 1123), which Kubernetes requires.
    fn object_name(&self) -> String {
        let name = self.name().to_lowercase().replace('_', "-");
        let name: String = name.chars().take(LONGEST_NAME).collect();
        format!("weir-{}", name.trim_matches('-'))
    }
}

/// Quotes the text as a single word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes a scalar. YAML escapes a text in double quotes as JSON does.
fn text_of_yaml(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Maximum number of tasks of an array: Slurm's MaxArraySize is 1001 unless the administrator
/// raises the limit.
const USUAL_MOST: u32 = 1000;
const MOST: u32 = 10_000;
/// Minimum time of a shard. A scheduler spends more on a shorter task than the task computes.
const SHORTEST: Duration = Duration::from_secs(30);
const LONGEST_NAME: usize = 50;

/// The volume claim for the results, unless the user names another claim.
pub const NAME_OF_CLAIM: &str = "weir-results";

#[cfg(test)]
mod schema;

#[cfg(test)]
mod tests {
    use super::schema::mistakes;
    use super::*;
    use crate::workloads::builtin;
    use saphyr_parser::{Event, Parser};
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    fn batch(name: &str, file: Option<&str>, shards: Option<u32>) -> Batch {
        let lab = builtin::open(name).unwrap();
        Batch::new(lab, file.map(PathBuf::from), Form::Full, Some(7), shards).unwrap()
    }

    fn assert_is_shell(script: &str) {
        for shell in ["sh", "bash"] {
            let mut check = Command::new(shell).arg("-n").stdin(Stdio::piped()).spawn().unwrap();
            check.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
            assert!(check.wait().unwrap().success(), "{script}");
        }
    }

    /// Returns the scalars of all documents, in order.
    fn scalars(text: &str) -> Vec<String> {
        let events = Parser::new_from_str(text).map(|event| event.unwrap().0);
        let scalar = |event| match event {
            Event::Scalar(text, ..) => Some(text.into_owned()),
            _ => None,
        };
        events.filter_map(scalar).collect()
    }

    #[test]
    fn a_slurm_script_is_valid_and_has_a_task_for_each_shard() {
        let text = batch("cc-grid", None, Some(16)).slurm();
        assert_is_shell(&text);
        assert!(text.contains("#SBATCH --array=1-16\n"), "{text}");
        let run = "exec weir sim run cc-grid --seed 7 --threads 1 \\\n  \
                   --shard \"$SLURM_ARRAY_TASK_ID\"/16 --out \"$out\"";
        assert!(text.contains(run), "{text}");
        let own = batch("cc-grid", Some("/data/it's/grid.toml"), Some(2)).slurm();
        assert_is_shell(&own);
        assert!(own.contains(r"lab='/data/it'\''s/grid.toml'"), "{own}");
        assert!(own.contains("sha256sum --check"), "{own}");
    }

    #[test]
    fn an_array_beyond_the_usual_limit_of_slurm_has_a_note() {
        let mut job = batch("cc-grid", None, Some(1));
        let note_has = |line: &str, part: &str| line.starts_with("# Slurm") && line.contains(part);
        for (shards, is_beyond) in [(1000, false), (1001, true), (10_000, true)] {
            job.shards = shards;
            let text = job.slurm();
            assert_is_shell(&text);
            assert_eq!(job.slurm_limit().is_some(), is_beyond, "{shards}");
            for part in ["MaxArraySize", "Invalid job array specification", "--shards"] {
                assert_eq!(text.lines().any(|line| note_has(line, part)), is_beyond, "{text}");
            }
        }
    }

    #[test]
    fn a_kubernetes_manifest_is_yaml_and_contains_the_lab() {
        let text = batch("cc-grid", Some("/grid.toml"), Some(16)).kubernetes("a: \"b", "results");
        let all = scalars(&text);
        let after = |key: &str| {
            let place = all.iter().position(|one| one == key).unwrap();
            all[place + 1].as_str()
        };
        let lab = builtin::open("cc-grid").unwrap();
        assert_eq!(after("lab.toml").trim_end(), lab.text().trim_end());
        assert_eq!((after("completionMode"), after("completions")), ("Indexed", "16"));
        assert_eq!((after("image"), after("claimName")), ("a: \"b", "results"));
        let script = after("-euc");
        assert_is_shell(script);
        assert!(script.contains("--shard $((JOB_COMPLETION_INDEX + 1))/16"), "{script}");
        let built_in = batch("cc-grid", None, Some(1)).kubernetes("weir", "results");
        assert!(!built_in.contains("ConfigMap"), "{built_in}");
    }

    #[test]
    fn an_exported_manifest_has_only_known_fields_of_a_job_with_valid_values() {
        for name in ["cc-grid", "incast", "validate"] {
            for (file, shards) in [(None, 1), (Some("/grid.toml"), 10_000)] {
                let text = batch(name, file, Some(shards)).kubernetes("weir:1", "results");
                assert_eq!(mistakes(&text), [""; 0], "{text}");
            }
        }
        let right = batch("cc-grid", Some("/grid.toml"), Some(16)).kubernetes("weir:1", "results");
        for (from, to, mistake) in [
            ("kind: Job", "kind: Jobs", "kind: Some(\"Jobs\")"),
            ("batch/v1", "batch/v1beta1", "Job.apiVersion has the wrong value"),
            ("completions: 16", "completions: \"16\"", "Job.spec.completions has the wrong value"),
            ("completions: 16", "complete: 16", "Job.spec.complete is no field"),
            ("restartPolicy: Never", "restartPolicy: Always", "restartPolicy has the wrong value"),
            (
                "name: weir-cc-grid\nspec",
                "name: weir_cc\nspec",
                "metadata.name has the wrong value",
            ),
            ("image: \"weir:1\"", "image: 1", "containers.image has the wrong value"),
            ("memory: 256Mi", "memory: 256MiB", "requests.memory has the wrong value"),
            ("mountPath: /lab", "mountPath: lab", "volumeMounts.mountPath has the wrong value"),
            (
                "- name: results\n              mount",
                "- name: other\n              mount",
                "no volume `other`",
            ),
            ("claimName: \"results\"", "claimName: \"Results\"", "claimName has the wrong value"),
            ("  lab.toml: |2", "  lab toml: |2", "ConfigMap.data has the wrong value"),
        ] {
            let wrong = right.replace(from, to);
            assert_ne!(wrong, right, "{from}");
            let found = mistakes(&wrong).join("\n");
            assert!(found.contains(mistake), "{to}: {found}");
        }
    }

    #[test]
    fn the_longest_name_of_a_job_leaves_room_for_the_index_in_a_host_name() {
        let right = batch("cc-grid", None, Some(16)).kubernetes("weir:1", "results");
        let named = |letters: usize| {
            let to = format!("name: {}\nspec", "a".repeat(letters));
            mistakes(&right.replace("name: weir-cc-grid\nspec", &to))
        };
        assert_eq!(named(60), [""; 0]);
        assert_eq!(named(61), [format!("`{}-15` is no host name", "a".repeat(61))]);
    }

    #[test]
    fn a_shard_takes_half_a_minute_and_no_shard_is_empty() {
        let usual = batch("cc-grid", None, None);
        let each = usual.estimate().as_secs() / u64::from(usual.shards());
        assert!(usual.shards() == 1 || each >= 30, "{each} s");
        assert!(batch("incast", None, Some(10_000)).shards() < 10_000);
        let lab = builtin::open("tunnel-latency").unwrap();
        let refused = Batch::new(lab, None, Form::Full, None, None).unwrap_err().to_string();
        assert!(refused.contains("weir lab run tunnel-latency"), "{refused}");
    }
}
