use super::values;
use crate::exit::Ending;
use crate::output;
use crate::signals::cancel_on_signals;
use clap::Args;
use perf::PerfError;
use perf::download::{Download, Downloaded};
use serde_json::json;
use std::time::{Duration, Instant};
use units::{Span, shown};

/// Fetch a file over http and measure its rate
///
/// Each fetch opens a new connection. The rate counts from before the connection is opened; the
/// second rate counts from when it was open. KB are 1024 bytes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// For example http://192.0.2.1/file
    url: String,
    /// Number of fetches
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    times: u32,
    /// Fetch again until this time is up, instead of a number of times: seconds, or with a unit.
    /// The fetch that is under way then is completed
    #[arg(short, long, value_name = "TIME", conflicts_with = "times", value_parser = values::seconds)]
    time: Option<Span>,
    /// How long a fetch may take: seconds, or with a unit, for example 10min
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = values::seconds)]
    timeout: Span,
    /// How long the server may send nothing, also before the connection is open: milliseconds, or
    /// with a unit [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = values::timeout)]
    rcv_timeout: Option<Duration>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Ending> {
    let cancel = cancel_on_signals()?;
    let mut download = Download::of_url(&arguments.url)?;
    download.patience = arguments.timeout.as_duration().max(SHORTEST);
    download.silence = arguments.rcv_timeout.unwrap_or(download.silence);
    let (mut came, mut failed) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    let most = arguments.time.map_or(arguments.times, |_| MOST);
    for number in 1..=most {
        let is_over = |time: Span| begun.elapsed() >= time.as_duration();
        if number > 1 && arguments.time.is_some_and(is_over) {
            break;
        }
        match download.run(|| cancel.is_cancelled()).map(|(one, _)| one) {
            Err(PerfError::Interrupted) => break,
            Ok(one) if one.status == 200 => {
                if !arguments.json {
                    output::print(line(number, &one))?;
                }
                came.push(one);
            }
            outcome => {
                let reason = match outcome {
                    Ok(one) if (300..400).contains(&one.status) => format!(
                        "the server answered {}, a redirect: fetch the URL that its `Location` names \
                         (curl -sI shows the answer)",
                        one.status
                    ),
                    Ok(one) => format!("the server answered {}", one.status),
                    Err(error) => error.to_string(),
                };
                output::note(format_args!("{number}: {reason}"));
                failed.push(reason);
            }
        }
    }
    let tried = came.len() + failed.len();
    let available = came.len() as f64 / tried.max(1) as f64 * 100.0;
    let rate = mean(&came, Downloaded::kbyte_s);
    let transfer = mean(&came, Downloaded::transfer_kbyte_s);
    if arguments.json {
        let one = |one: &Downloaded| {
            json!({
                "bytes": one.body.count(),
                "connect_ms": one.connected.millis_f64(),
                "first_byte_ms": one.first_byte.millis_f64(),
                "complete_ms": one.complete.millis_f64(),
                "kbyte_s": one.kbyte_s(),
                "transfer_kbyte_s": one.transfer_kbyte_s(),
                "checksum": format!("{:016x}", one.checksum),
            })
        };
        let document = json!({
            "url": arguments.url,
            "kbyte_s": rate,
            "transfer_kbyte_s": transfer,
            "availability_percent": available,
            "downloads": came.iter().map(one).collect::<Vec<_>>(),
            "failed": failed,
        });
        output::print(format_args!("{}\n", serde_json::to_string_pretty(&document)?))?;
    } else if let (Some(rate), Some(transfer)) = (rate, transfer)
        && tried > 1
    {
        output::print(format_args!(
            "mean of {}: {rate:.0} KB/s, without connect time {transfer:.0} KB/s; availability {}\n",
            came.len(),
            shown::percent(available)
        ))?;
    }
    if !arguments.json && came.is_empty() && tried > 1 {
        output::print(format_args!("none of {tried} downloads succeeded; availability 0 %\n"))?;
    }
    let is_complete = match arguments.time {
        Some(_) => failed.is_empty() && !came.is_empty(),
        None => came.len() == arguments.times as usize,
    };
    Ok(if is_complete { Ending::Fine } else { Ending::Failed })
}

fn line(number: u32, one: &Downloaded) -> String {
    format!(
        "{number}: {} in {:.3} s: {:.0} KB/s, without connect time {:.0} KB/s; connected after {:.1} ms, first byte after {:.1} ms\n",
        one.body,
        one.complete.secs_f64(),
        one.kbyte_s(),
        one.transfer_kbyte_s(),
        one.connected.millis_f64(),
        one.first_byte.millis_f64(),
    )
}

fn mean(all: &[Downloaded], of: fn(&Downloaded) -> f64) -> Option<f64> {
    (!all.is_empty()).then(|| all.iter().map(of).sum::<f64>() / all.len() as f64)
}

const MOST: u32 = 100_000;
/// Shortest timeout: a timeout of zero would end the connection before its start.
const SHORTEST: Duration = Duration::from_millis(1);

const EXAMPLES: &str = "\
Examples:
  weir perf download http://192.0.2.1/640K.png
  weir perf download http://192.0.2.1:8080/8M.apk --times 20 --json
  weir perf download http://192.0.2.1/8M.apk --time 30s --json
  weir perf download http://192.0.2.1/1G.iso --timeout 30min --rcv-timeout 5s";
