//! Parses results of LTP's runltp: the output of ltp-pan, or ltp-pan's log (`runltp -l FILE`).

use super::super::case::{Case, Checks, Outcome, Parsed};
use super::plain;

pub(super) fn parse(text: &str) -> Parsed {
    match text.contains(START) {
        true => blocks(text),
        false => log(text),
    }
}

/// Parses the output of ltp-pan: a block for each test.
fn blocks(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut test: Option<Test> = None;
    for line in text.lines() {
        let line = plain(line);
        let line = line.trim();
        if line == START {
            parsed.cases.extend(test.take().and_then(Test::without_end));
            test = Some(Test::default());
        } else if let Some(open) = &mut test {
            match line {
                END => parsed.cases.extend(test.take().and_then(Test::ended)),
                OUTPUT | STATUS => open.is_output = line == OUTPUT,
                line if open.is_output => open.output(line),
                line => open.field(line),
            }
        }
    }
    if let Some(case) = test.and_then(Test::without_end) {
        parsed.flaws.push(format!("the output ends within {}", units::foreign(&case.name)));
        parsed.cases.push(case);
    }
    parsed
}

#[derive(Debug, Default)]
struct Test {
    tag: Option<String>,
    is_output: bool,
    checks: Checks,
    summed: Checks,
    has_summary: bool,
    reason: Option<String>,
    /// The `initiation_status` of a test. `None` if the status is `ok`.
    refused: Option<String>,
    how: String,
    id: Option<i32>,
}

impl Test {
    fn output(&mut self, line: &str) {
        // tst_test.c prints a line for each check and then a summary. The summary counts the same
        // checks.
        if let Some((word, count)) = line.split_once(char::is_whitespace)
            && let Ok(count) = count.trim().parse::<u64>()
            && let Some(place) = place(&mut self.summed, word)
        {
            *place = place.saturating_add(count);
            self.has_summary = true;
            return;
        }
        let Some((kind, at)) = kind(line) else { return };
        let outcome = match kind {
            "TPASS" => &mut self.checks.passed,
            "TFAIL" => &mut self.checks.failed,
            "TBROK" => &mut self.checks.broken,
            "TCONF" => &mut self.checks.skipped,
            _ => &mut self.checks.warnings,
        };
        *outcome = outcome.saturating_add(1);
        let tells = matches!(kind, "TFAIL" | "TBROK");
        if tells || (self.reason.is_none() && kind != "TPASS") {
            let worse = self.reason.as_deref().is_none_or(|told| !is_bad(told));
            if worse {
                self.reason = Some(line[at..].to_owned());
            }
        }
    }

    fn field(&mut self, line: &str) {
        for (key, value) in fields(line) {
            match key {
                "tag" if self.tag.is_none() => self.tag = Some(value.to_owned()),
                "termination_type" => self.how = value.to_owned(),
                "termination_id" => self.id = value.parse().ok(),
                _ => {}
            }
        }
        if let Some(status) = line.strip_prefix("initiation_status=") {
            let status = status.trim_matches('"');
            self.refused = (status != "ok").then(|| status.to_owned());
        }
    }

    fn ended(self) -> Option<Case> {
        let name = self.tag.clone()?;
        let (outcome, how) = match (&self.refused, self.how.as_str(), self.id) {
            (Some(refused), ..) => (Outcome::Broken, Some(refused.clone())),
            (None, "exited", Some(status)) => (of_exit(status), said(status)),
            (None, how, id) => {
                let id = id.map(|id| format!(" by signal {id}")).unwrap_or_default();
                (Outcome::Broken, Some(format!("it {how}{id}")))
            }
        };
        let mut case = Case::new(&name, outcome);
        let counted = if self.has_summary { self.summed } else { self.checks };
        if counted != Checks::default() {
            case.checks = counted;
        }
        match self.reason.or(how).filter(|_| outcome != Outcome::Passed) {
            Some(reason) => Some(case.because(&reason)),
            None => Some(case),
        }
    }

    fn without_end(self) -> Option<Case> {
        let name = self.tag?;
        Some(Case::new(&name, Outcome::Broken).because("it did not end"))
    }
}

/// Parses the log of ltp-pan, in the format for people or in the format for programs.
fn log(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut total = None;
    for line in text.lines() {
        let line = plain(line);
        if let Some(case) = for_programs(&line).or_else(|| for_people(&line)) {
            parsed.cases.push(case);
        } else if let Some(count) = line.strip_prefix("Total Tests:") {
            total = count.trim().parse::<usize>().ok();
        }
    }
    let found = parsed.cases.len();
    if let Some(total) = total.filter(|total| *total != found) {
        parsed.flaws.push(format!("the log counts {total} tests, and its lines name {found}"));
    }
    parsed
}

/// Parses a line such as `accept01                       CONF       32`.
fn for_people(line: &str) -> Option<Case> {
    let mut words = line.split_whitespace();
    let (name, word, status) = (words.next()?, words.next()?, words.next()?);
    let status: i32 = status.parse().ok()?;
    if words.next().is_some() || !["PASS", "FAIL", "CONF", "BROK", "WARN", "RETR"].contains(&word) {
        return None;
    }
    // Old versions write FAIL for each status but 0.
    let outcome = if word == "PASS" { Outcome::Passed } else { of_exit(status) };
    let case = Case::new(name, outcome);
    Some(match said(status).filter(|_| outcome != Outcome::Passed) {
        Some(reason) => case.because(&reason),
        None => case,
    })
}

/// Parses a line such as `tag=accept01 stime=1734600000 dur=0 exit=exited stat=32 core=no cu=0
/// cs=0`.
fn for_programs(line: &str) -> Option<Case> {
    if !line.starts_with("tag=") || !line.contains(" stat=") {
        return None;
    }
    let value = |wanted: &str| fields(line).find(|(key, _)| *key == wanted).map(|(_, value)| value);
    let status: i32 = value("stat")?.parse().ok()?;
    let outcome = match value("exit")? {
        "exited" => of_exit(status),
        _ => Outcome::Broken,
    };
    let case = Case::new(value("tag")?, outcome);
    Some(match outcome {
        Outcome::Passed => case,
        _ => case.because(&format!("it {} with {status}", value("exit")?)),
    })
}

fn fields(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split_whitespace().filter_map(|word| word.split_once('='))
}

/// Decodes the bits of an exit status (`include/tst_res_flags.h`): TFAIL 1, TBROK 2, TWARN 4, TCONF
/// 32.
fn of_exit(status: i32) -> Outcome {
    match status {
        0 => Outcome::Passed,
        32 => Outcome::Skipped,
        status if (0..64).contains(&status) && status & 2 != 0 => Outcome::Broken,
        _ => Outcome::Failed,
    }
}

fn said(status: i32) -> Option<String> {
    match status {
        0 => None,
        4 => Some("it ended with a warning".to_owned()),
        status => Some(format!("it ended with status {status}")),
    }
}

/// Finds the result type in a check's line, and its position: `file.c:12: TPASS: …`, `name 1 TPASS
/// : …`.
fn kind(line: &str) -> Option<(&'static str, usize)> {
    KINDS.iter().find_map(|kind| {
        let at = line.find(kind)?;
        let before = line[..at].is_empty() || line[..at].ends_with([' ', '\t', ':']);
        let after = line[at + kind.len()..].starts_with([':', ' ']);
        (before && after).then_some((*kind, at))
    })
}

fn is_bad(reason: &str) -> bool {
    reason.starts_with("TFAIL") || reason.starts_with("TBROK")
}

fn place<'a>(checks: &'a mut Checks, word: &str) -> Option<&'a mut u64> {
    Some(match word {
        "passed" => &mut checks.passed,
        "failed" => &mut checks.failed,
        "broken" => &mut checks.broken,
        "skipped" => &mut checks.skipped,
        "warnings" => &mut checks.warnings,
        _ => return None,
    })
}

const START: &str = "<<<test_start>>>";
const OUTPUT: &str = "<<<test_output>>>";
const STATUS: &str = "<<<execution_status>>>";
const END: &str = "<<<test_end>>>";
const KINDS: [&str; 5] = ["TFAIL", "TBROK", "TPASS", "TCONF", "TWARN"];

#[cfg(test)]
mod tests {
    use super::*;

    fn block(tag: &str, output: &str, how: &str, id: i32) -> String {
        format!(
            "<<<test_start>>>\ntag={tag} stime=1734600000\ncmdline=\"{tag}\"\ncontacts=\"\"\n\
             analysis=exit\n<<<test_output>>>\n{output}<<<execution_status>>>\n\
             initiation_status=\"ok\"\nduration=0 termination_type={how} termination_id={id} \
             corefile=no\ncutime=0 cstime=1\n<<<test_end>>>\n"
        )
    }

    #[test]
    fn ltp_pan_blocks_are_cases_with_their_checks() {
        let new = "tst_test.c:1560: \x1b[1;34mTINFO: \x1b[0mTimeout per run is 0h 05m 00s\n\
                   accept01.c:78: \x1b[1;32mTPASS: \x1b[0mbad file descriptor: EBADF (9)\n\
                   accept01.c:78: \x1b[1;31mTFAIL: \x1b[0minvalid socket: succeeded\n\n\
                   Summary:\npassed   5\nfailed   1\nbroken   0\nskipped  0\nwarnings 0\n";
        let old = "abort01     1  TPASS  :  abort() dumped core\nabort01     2  TPASS  :  raised\n";
        let text = [
            block("accept01", new, "exited", 1),
            block("abort01", old, "exited", 0),
            block("sctp01", "", "exited", 32),
            block("crashes", "", "signaled", 11),
            block("unset", "x.c:1: TBROK: mount failed: EPERM (1)\n", "exited", 2),
        ]
        .concat();
        let parsed = parse(&text);
        assert_eq!(
            parsed.told(),
            [
                ("accept01", Outcome::Failed, Some("TFAIL: invalid socket: succeeded")),
                ("abort01", Outcome::Passed, None),
                ("sctp01", Outcome::Skipped, Some("it ended with status 32")),
                ("crashes", Outcome::Broken, Some("it signaled by signal 11")),
                ("unset", Outcome::Broken, Some("TBROK: mount failed: EPERM (1)")),
            ]
        );
        let checks: Vec<_> =
            parsed.cases.iter().map(|case| (case.checks.passed, case.checks.failed)).collect();
        assert_eq!(checks, [(5, 1), (2, 0), (0, 0), (0, 0), (0, 0)]);
        assert_eq!(parsed.flaws, Vec::<String>::new());
    }

    #[test]
    fn an_ltp_test_without_an_end_is_broken() {
        let text = block("a", "", "exited", 0) + "<<<test_start>>>\ntag=hangs stime=1\n";
        let parsed = parse(&text);
        assert_eq!(parsed.cases[1].outcome, Outcome::Broken);
        assert!(parsed.flaws[0].contains("ends within hangs"));
    }

    #[test]
    fn ltp_logs_for_people_and_for_programs_are_parsed() {
        let people = "Test Start Time: Thu Dec 19 10:00:00 2024\n\
             -----------------------------------------\n\
             Testcase                                           Result     Exit Value\n\
             --------                                           ------     ----------\n\
             abort01                                            PASS       0    \n\
             accept02                                           CONF       32   \n\
             bind01                                             FAIL       1    \n\n\
             -----------------------------------------------\nTotal Tests: 3\n\
             Total Skipped Tests: 1\nTotal Failures: 1\nKernel Version: 6.6.0\n";
        let programs = "tag=abort01 stime=1 dur=0 exit=exited stat=0 core=no cu=0 cs=0\n\
             tag=accept02 stime=1 dur=0 exit=exited stat=32 core=no cu=0 cs=0\n\
             tag=bind01 stime=1 dur=0 exit=exited stat=1 core=no cu=0 cs=0\n";
        for text in [people, programs] {
            let parsed = parse(text);
            let told: Vec<_> =
                parsed.cases.iter().map(|case| (case.name.as_str(), case.outcome)).collect();
            let expected = [
                ("abort01", Outcome::Passed),
                ("accept02", Outcome::Skipped),
                ("bind01", Outcome::Failed),
            ];
            assert_eq!(told, expected);
            assert_eq!(parsed.flaws, Vec::<String>::new());
        }
    }
}
