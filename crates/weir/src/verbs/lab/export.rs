//! `weir lab export`: the files of a run, or the shards of a lab as a job for a cluster.

use super::seed;
use crate::destination;
use crate::exit::{Ending, Unusable};
use crate::output;
use clap::Args;
use lab::batch::{Batch, NAME_OF_CLAIM};
use lab::{LabError, builtin, runs};
use results::Form;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// A run's directory; with --slurm or --kubernetes a built-in lab's name, or the path of a lab
    /// file
    #[arg(value_name = "RUN|LAB")]
    subject: PathBuf,
    /// Directory for the files of a run [default: export], or the file for the job [default:
    /// standard output]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Write a script for sbatch that runs the lab in virtual time as one array job
    #[arg(long, conflicts_with = "kubernetes")]
    slurm: bool,
    /// Write a manifest for kubectl that runs the lab in virtual time as one Indexed Job
    #[arg(long)]
    kubernetes: bool,
    #[command(flatten)]
    job: Job,
    /// Print one JSON document: the paths of the files, or the job
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Job {
    /// Number of parts of the lab, each a task [default: as many as take 30 s or more each, at most
    /// 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    shards: Option<u32>,
    /// The short form of the lab
    #[arg(long)]
    quick: bool,
    /// Seed of the order and of all random losses, instead of the file's: a number, or `fresh` for
    /// a new seed
    #[arg(long, value_name = "N", value_parser = seed)]
    seed: Option<u64>,
    /// With --kubernetes: the container image, which has weir and a shell [default: weir:VERSION]
    #[arg(long, value_name = "IMAGE", requires = "kubernetes")]
    image: Option<String>,
    /// With --kubernetes: the volume claim for the results [default: weir-results]
    #[arg(long, value_name = "CLAIM", requires = "kubernetes")]
    claim: Option<String>,
}

pub(super) fn run(arguments: &Export) -> anyhow::Result<Ending> {
    let Export { subject, out, json, job, .. } = arguments;
    if arguments.slurm || arguments.kubernetes {
        return write_job(arguments);
    }
    let is_of_job = job.shards.is_some() || job.quick || job.seed.is_some();
    if is_of_job {
        let text = "--shards, --quick and --seed are for a job: add --slurm or --kubernetes";
        return Err(LabError::Usage(text.to_owned()).into());
    }
    write_run(subject, out.as_deref().unwrap_or(Path::new("export")), *json)
}

fn write_job(arguments: &Export) -> anyhow::Result<Ending> {
    let Export { subject, out, json, job, .. } = arguments;
    let name = subject.to_string_lossy();
    let lab = builtin::open(&name)?;
    let file = match lab.is_builtin() {
        true => None,
        false => Some(std::path::absolute(subject)?),
    };
    let form = if job.quick { Form::Quick } else { Form::Full };
    let batch = Batch::new(lab, file, form, job.seed, job.shards)?;
    let (kind, text) = match arguments.slurm {
        true => {
            batch.slurm_limit().into_iter().for_each(output::note);
            ("slurm", batch.slurm())
        }
        false => {
            let usual = format!("weir:{}", env!("CARGO_PKG_VERSION"));
            let image = job.image.as_deref().unwrap_or(&usual);
            let claim = job.claim.as_deref().unwrap_or(NAME_OF_CLAIM);
            ("kubernetes", batch.kubernetes(image, claim))
        }
    };
    if let Some(path) = out {
        destination::write(path, &text)
            .map_err(|cause| Unusable::path("write", path, &cause, "--out"))?;
    }
    if *json {
        let document = serde_json::json!({
            "kind": kind,
            "shards": batch.shards(),
            "estimated_cpu_seconds": batch.estimate().as_secs_f64(),
            "file": out,
            "job": text,
        });
        output::print(format_args!("{document:#}\n"))?;
    } else if let Some(path) = out {
        output::print(format_args!("{}\n", path.display()))?;
    } else {
        output::print(text)?;
    }
    Ok(Ending::Fine)
}

fn write_run(run: &Path, out: &Path, json: bool) -> anyhow::Result<Ending> {
    let runs::Run { results, samples, .. } = runs::read(run)?;
    let files = report::export(&results, &samples);
    std::fs::create_dir_all(out).map_err(|cause| Unusable::path("create", out, &cause, "--out"))?;
    let mut written = Vec::new();
    for (name, text) in files {
        let path = out.join(name);
        destination::write(&path, &text)
            .map_err(|cause| Unusable::path("write", &path, &cause, "--out"))?;
        if !json {
            output::print(format_args!("{}\n", path.display()))?;
        }
        written.push(path);
    }
    if json {
        let document = serde_json::json!({ "files": written });
        output::print(format_args!("{document:#}\n"))?;
    }
    Ok(Ending::Fine)
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir lab export runs/quic-tun-quick-20261121-030000 --out charts
  weir lab export --slurm cc-grid --shards 16 > cc-grid.sbatch
  weir lab export --kubernetes ./lab.toml --image weir:1 | kubectl apply -f -
The directory of a run gets results.csv (a line per cell and metric), comparisons.csv, samples.csv (a
line per figure and repeat) and an SVG file per chart of the report. A job runs the shards of a lab
in virtual time; weir lab merge joins them.";
