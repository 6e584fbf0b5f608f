//! Options of iperf3 that change nothing at `weir perf`, or that `weir perf` refuses with the
//! remedy. The help does not list these options.

use clap::Args;
use perf::PerfError;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct Foreign {
    #[arg(long, hide = true)]
    forceflush: bool,
    #[arg(long, hide = true)]
    gsro: bool,
    #[arg(short = 'F', long, hide = true, value_name = "FILE")]
    file: Option<PathBuf>,
    #[arg(long, hide = true)]
    json_stream_full_output: bool,
    #[arg(short = 'm', long, hide = true)]
    mptcp: bool,
    #[arg(long, hide = true)]
    sctp: bool,
    #[arg(long, hide = true, value_name = "N")]
    nstreams: Option<String>,
    #[arg(short = 'X', long, hide = true, value_name = "NAME")]
    xbind: Option<String>,
    #[arg(short = 'd', long, hide = true, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "4", value_name = "LEVEL")]
    debug: Option<String>,
}

impl Foreign {
    pub(super) fn check(&self) -> Result<(), PerfError> {
        if self.forceflush || self.gsro {
            tracing::debug!(
                "--forceflush and --gsro change nothing: each line is written at once, and the \
                 kernel segments datagrams where it can"
            );
        }
        let refused = [
            (self.file.is_some(), FILE),
            (self.json_stream_full_output, FULL_OUTPUT),
            (self.mptcp, MPTCP),
            (self.sctp || self.nstreams.is_some() || self.xbind.is_some(), SCTP),
            (self.debug.is_some(), DEBUG),
        ];
        match refused.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, advice)) => Err(PerfError::Usage(advice.to_owned())),
            None => Ok(()),
        }
    }
}

const FILE: &str = "--file: weir perf sends generated data only; leave --file out, or measure \
                    the fetch of a file with `weir perf download URL`";
const FULL_OUTPUT: &str = "--json-stream-full-output: write --json-stream for the lines, or --json \
                           for the whole document";
const MPTCP: &str = "--mptcp: weir perf tests TCP and UDP; leave --mptcp out";
const SCTP: &str = "--sctp: weir perf tests TCP and UDP; leave --sctp, --nstreams and --xbind out";
const DEBUG: &str = "--debug: write --verbose for all figures, or set WEIR_LOG=debug for the log";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        foreign: Foreign,
    }

    fn checked(words: &[&str]) -> Result<(), String> {
        let line = Line::try_parse_from([&["perf"], words].concat()).unwrap();
        line.foreign.check().map_err(|error| error.to_string())
    }

    #[test]
    fn options_of_iperf3_without_an_effect_are_accepted() {
        assert_eq!(checked(&[]), Ok(()));
        assert_eq!(checked(&["--forceflush", "--gsro"]), Ok(()));
    }

    #[test]
    fn options_that_weir_lacks_are_refused_with_the_remedy() {
        for (words, remedy) in [
            (&["-F", "data"][..], "weir perf download URL"),
            (&["--json-stream-full-output"], "write --json-stream"),
            (&["-m"], "leave --mptcp out"),
            (&["--sctp"], "leave --sctp"),
            (&["-X", "eth0"], "leave --sctp"),
            (&["-d"], "--verbose"),
            (&["--debug=2"], "WEIR_LOG=debug"),
        ] {
            let error = checked(words).unwrap_err();
            assert!(error.contains(remedy), "{words:?}: {error}");
        }
    }
}
