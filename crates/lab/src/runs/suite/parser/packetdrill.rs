//! Parses the output of packetdrill's `run_all.py -v` and of the kernel's runner `ksft_runner.sh`,
//! which prints TAP.

use super::super::case::{Case, Outcome, Parsed};
use super::{plain, tap};

pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut ran = 0_u64;
    let mut has_totals = false;
    // Index of the case to which the next lines of the log belong.
    let mut logged: Option<usize> = None;
    for line in text.lines() {
        let line = plain(line);
        if let Some((outcome, name)) = case(&line) {
            let case = Case::new(name, outcome);
            let killed = line.starts_with(KILL);
            parsed.cases.push(if killed { case.because("it took too long") } else { case });
            logged = Some(parsed.cases.len() - 1).filter(|_| outcome.is_bad() && !killed);
        } else if let Some(count) = total(&line) {
            ran = ran.saturating_add(count);
            has_totals = true;
            logged = None;
        } else if let Some(number) = logged.filter(|_| is_reason(&line)) {
            let case = parsed.cases[number].clone();
            parsed.cases[number] = case.because(&line);
            logged = None;
        }
    }
    if parsed.cases.is_empty() && !has_totals {
        return tap::parse(text);
    }
    let found = parsed.cases.len() as u64;
    match has_totals {
        true if found == 0 => parsed
            .flaws
            .push(format!("run_all.py ran {ran} cases and named none of them: give it -v")),
        true if found != ran => {
            parsed.flaws.push(format!("run_all.py counts {ran} cases, and its lines name {found}"))
        }
        true => {}
        false => {
            parsed.flaws.push("run_all.py did not print its totals: it did not end".to_owned())
        }
    }
    parsed
}

/// Parses a line `OK   [PATH (VARIANT)]`, or a line with FAIL or KILL in place of OK.
fn case(line: &str) -> Option<(Outcome, &str)> {
    let (word, rest) = line.split_once(' ')?;
    let outcome = match word {
        "OK" => Outcome::Passed,
        "FAIL" => Outcome::Failed,
        KILL => Outcome::Broken,
        _ => return None,
    };
    let name = rest.trim().strip_prefix('[')?.strip_suffix(']')?;
    (name.contains(".pkt (") && name.ends_with(')')).then_some((outcome, name))
}

/// Parses a line such as `Ran  399 tests:  396 passing,    3 failing,    0 timed out (54.10 sec):
/// tcp/`.
fn total(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("Ran ")?;
    if !rest.contains(" passing,") {
        return None;
    }
    let (count, _) = rest.trim_start().split_once(' ')?;
    count.parse().ok()
}

/// Whether the line is an error of packetdrill: `SCRIPT.pkt:LINE: …`.
fn is_reason(line: &str) -> bool {
    line.split_once(".pkt:").is_some_and(|(_, rest)| {
        let (number, rest) = rest.split_once(':').unwrap_or((rest, ""));
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && !rest.is_empty()
    })
}

const KILL: &str = "KILL";

#[cfg(test)]
mod tests {
    use super::*;

    const RUN_ALL: &str = "\
OK   [/pd/tcp/ack/ack-per-1pkt.pkt (ipv4)]
FAIL [/pd/tcp/close/close-on-syn-sent.pkt (ipv6)]
stdout: 
stderr: 
close-on-syn-sent.pkt:9: error handling packet: timed out waiting for packet
OK   [/pd/tcp/ack/ack-per-1pkt.pkt (ipv4-mapped-v6)]
KILL [/pd/tcp/zero/slow.pkt (ipv4)]
Ran    4 tests:    2 passing,    1 failing,    1 timed out (60.42 sec): tcp/
";

    #[test]
    fn packetdrill_lines_are_cases_with_their_reasons() {
        let parsed = parse(RUN_ALL);
        assert_eq!(
            parsed.told(),
            [
                ("/pd/tcp/ack/ack-per-1pkt.pkt (ipv4)", Outcome::Passed, None),
                (
                    "/pd/tcp/close/close-on-syn-sent.pkt (ipv6)",
                    Outcome::Failed,
                    Some(
                        "close-on-syn-sent.pkt:9: error handling packet: timed out waiting for \
                         packet"
                    )
                ),
                ("/pd/tcp/ack/ack-per-1pkt.pkt (ipv4-mapped-v6)", Outcome::Passed, None),
                ("/pd/tcp/zero/slow.pkt (ipv4)", Outcome::Broken, Some("it took too long")),
            ]
        );
        assert_eq!(parsed.flaws, Vec::<String>::new());
    }

    #[test]
    fn packetdrill_totals_without_case_lines_ask_for_the_flag_v() {
        let parsed =
            parse("Ran  399 tests:  396 passing,    3 failing,    0 timed out (9.1 sec): .\n");
        assert!(parsed.cases.is_empty() && parsed.flaws[0].contains("-v"), "{parsed:?}");
    }

    #[test]
    fn packetdrill_output_without_totals_is_a_flaw() {
        let parsed = parse("OK   [/pd/a.pkt (ipv4)]\n");
        assert!(parsed.flaws[0].contains("did not end"), "{parsed:?}");
    }

    #[test]
    fn packetdrill_output_of_the_kernels_runner_is_parsed_as_tap() {
        let parsed = parse(
            "TAP version 13\n1..1\n# selftests: net/packetdrill: tcp_zerocopy_basic.pkt\n\
             # TAP version 13\n# 1..2\n# ok 1 ipv4\n# not ok 2 ipv6\n\
             not ok 1 selftests: net/packetdrill: tcp_zerocopy_basic.pkt # exit=1\n",
        );
        let whole = "selftests: net/packetdrill: tcp_zerocopy_basic.pkt";
        let names: Vec<_> =
            parsed.cases.iter().map(|case| (case.name.clone(), case.outcome)).collect();
        assert_eq!(
            names,
            [
                (format!("{whole} / ipv4"), Outcome::Passed),
                (format!("{whole} / ipv6"), Outcome::Failed),
                (whole.to_owned(), Outcome::Failed)
            ]
        );
    }
}
