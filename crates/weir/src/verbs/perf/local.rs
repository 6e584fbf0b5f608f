use super::values::{self, Affinity};
use crate::exit::Ending;
use crate::output;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::Args;
use perf::event::Stop;
use perf::local::{self, LocalOptions, Over, Task};
use serde_json::{Value, json};
use units::{Bytes, Span, shown};

/// Measure round trips between two processes of this machine
///
/// A message goes to the second process and back, over a UNIX socket, two pipes or TCP on the
/// loopback, as in lmbench's lat_unix, lat_pipe and lat_tcp.
#[derive(Debug, Args)]
#[command(after_help = LATENCY_EXAMPLES)]
pub(crate) struct Latency {
    #[command(flatten)]
    test: Test,
    /// Bytes of a message
    #[arg(short, long, value_name = "SIZE", default_value = "1", value_parser = values::size)]
    size: Bytes,
}

/// Measure how fast a process of this machine reads data that a second process writes
///
/// The data passes a UNIX socket, a pipe or TCP on the loopback, as in lmbench's bw_unix, bw_pipe
/// and bw_tcp. MB are 10^6 bytes.
#[derive(Debug, Args)]
#[command(after_help = BANDWIDTH_EXAMPLES)]
pub(crate) struct Bandwidth {
    #[command(flatten)]
    test: Test,
    /// Bytes of a read and of a write
    #[arg(short, long, value_name = "SIZE", default_value = "64KiB", value_parser = values::size)]
    size: Bytes,
}

#[derive(Debug, Args)]
struct Test {
    /// unix, pipe or tcp [default: all three in turn]
    over: Vec<Over>,
    /// How long each measurement takes: seconds, or with a unit
    #[arg(short, long, value_name = "TIME", default_value = "1", value_parser = values::duration)]
    time: Span,
    /// CPUs for the first process and, after a comma, for the second process: 0 or 0,1
    #[arg(short = 'A', long, value_name = "CPU[,CPU]", value_parser = values::affinity)]
    affinity: Option<Affinity>,
    /// Print one JSON document
    #[arg(short = 'J', long)]
    json: bool,
}

/// The second process of a measurement; `weir perf latency` and `bandwidth` start it
#[derive(Debug, Args)]
pub(crate) struct FarEnd {
    task: Task,
    #[arg(long, value_parser = values::size)]
    size: Bytes,
    #[arg(long)]
    affinity: Option<usize>,
}

pub(crate) fn latency(arguments: &Latency) -> anyhow::Result<Ending> {
    arguments.test.each("latency", arguments.size, |options, stop| {
        let one = local::latency(options, stop)?;
        let summary = &one.summary;
        let at = |span: Span| shown::seconds(span.secs_f64());
        let line = format!(
            "{:7} {} a round trip (mean), p50 {}, p99 {}, {} round trips\n",
            one.over.to_string(),
            shown::seconds(one.mean_us() / 1e6),
            at(summary.p50),
            at(summary.p99),
            summary.samples,
        );
        Ok((line, one.document()))
    })
}

pub(crate) fn bandwidth(arguments: &Bandwidth) -> anyhow::Result<Ending> {
    arguments.test.each("bandwidth", arguments.size, |options, stop| {
        let one = local::bandwidth(options, stop)?;
        let rate = shown::significant(one.mbyte_s());
        let line = format!("{:7} {rate} MB/s in blocks of {}\n", one.over.to_string(), one.size);
        Ok((line, one.document()))
    })
}

pub(crate) fn far_end(arguments: &FarEnd) -> anyhow::Result<Ending> {
    local::far_end(arguments.task, arguments.size, arguments.affinity)?;
    Ok(Ending::Fine)
}

impl Test {
    fn each(
        &self,
        test: &str,
        size: Bytes,
        measure: impl Fn(&LocalOptions, &Stop) -> Result<(String, Value), perf::PerfError>,
    ) -> anyhow::Result<Ending> {
        if size == Bytes::ZERO || size > Over::LARGEST {
            let text = format!("--size is from 1B to {}", Over::LARGEST);
            return Err(perf::PerfError::Usage(text).into());
        }
        let cancel = cancel_on_signals()?;
        let stop = Stop::on(cancel.flag());
        let program = std::env::current_exe().context("finding this program")?;
        let all = if self.over.is_empty() { Over::ALL.to_vec() } else { self.over.clone() };
        let mut documents = Vec::new();
        for over in all {
            let affinity = self.affinity.map_or([None, None], |cpus| [cpus.here, cpus.there]);
            let program = program.clone();
            let options = LocalOptions { program, over, size, time: self.time, affinity };
            let (line, document) = measure(&options, &stop)?;
            documents.push(document);
            if !self.json {
                output::print(line)?;
            }
        }
        if self.json {
            let document = json!({ "test": test, "results": documents });
            output::print(serde_json::to_string_pretty(&document)? + "\n")?;
        }
        Ok(Ending::Fine)
    }
}

const LATENCY_EXAMPLES: &str = "\
Examples:
  weir perf latency                     # all three
  weir perf latency unix tcp --size 64 --json
  weir perf latency tcp -A 0,1          # each process on a CPU of its own";
const BANDWIDTH_EXAMPLES: &str = "\
Examples:
  weir perf bandwidth
  weir perf bandwidth pipe --size 4KiB -t 3";
