//! TAP 13 and 14 (testanything.org), and the kernel's KTAP (Documentation/dev-tools/ktap.rst), with
//! subtests. kselftest prefixes the lines of a subtest with `# `; other programs indent these
//! lines.

use super::super::case::{Case, Checks, Outcome, Parsed};
use super::{LONGEST_NAME, plain};

pub(super) fn parse(text: &str) -> Parsed {
    let mut reader = Reader::default();
    for line in text.lines() {
        reader.line(&plain(line));
    }
    reader.finish()
}

#[derive(Debug, Default)]
struct Reader {
    parsed: Parsed,
    /// Subtests whose parent has not been read, outermost first.
    open: Vec<Level>,
    /// Lines of tests that end with `{`, each with its depth. The subtests of such a test follow
    /// up to a line `}`, in the form of node-tap.
    braced: Vec<(usize, String)>,
    /// Indentation of the diagnostic block in YAML that the reader is in, from `---` to `...`.
    yaml: Option<usize>,
    /// Whether the next line of the YAML block is the first line of the message.
    awaits_message: bool,
    plan: Option<u64>,
    seen: u64,
}

/// Cases at one depth that wait for the line of their parent.
#[derive(Debug)]
struct Level {
    depth: usize,
    cases: Vec<Case>,
}

#[derive(Debug, PartialEq, Eq)]
struct Point<'a> {
    number: Option<&'a str>,
    description: String,
    outcome: Outcome,
    reason: Option<String>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let (depth, rest) = depth(line);
        if let Some(indent) = self.yaml {
            // A less indented line ends a YAML block without an end, because the block would hide
            // all cases that follow.
            let is_over = depth < indent && !rest.is_empty();
            if !is_over {
                self.yaml = Some(indent).filter(|_| rest != "...");
                self.reason(rest);
                return;
            }
            self.yaml = None;
        }
        // A YAML block is indented. Lines of dashes without indentation are output of the suite.
        if rest == "---" && depth > 0 {
            (self.yaml, self.awaits_message) = (Some(depth), false);
        } else if let Some(point) = point(rest) {
            self.end_braced(depth, false);
            match rest.ends_with('{') {
                true => self.braced.push((depth, rest.to_owned())),
                false => self.point(depth, &point),
            }
        } else if rest == "}" {
            self.end_braced(depth, true);
        } else if let Some(reason) = rest.strip_prefix("Bail out!") {
            let reason = reason.trim();
            self.parsed.flaws.push(match reason {
                "" => "the suite bailed out".to_owned(),
                reason => format!("the suite bailed out: {}", units::foreign(reason)),
            });
        } else if depth > 0 {
            // A plan or a comment of a subtest is ignored: the parent's line has the subtest's
            // result.
        } else if let Some(plan) = rest.strip_prefix("1..") {
            self.plan(plan);
        }
    }

    fn plan(&mut self, plan: &str) {
        let (count, directive) = plan.split_once('#').unwrap_or((plan, ""));
        let Ok(count) = count.trim().parse::<u64>() else { return };
        // An output may contain the plans of several suites, one after the other. Add the plans up.
        self.plan = Some(self.plan.unwrap_or(0).saturating_add(count));
        if count == 0 {
            let reason = directive.trim();
            let reason = strip_word(reason, "skip").unwrap_or(reason);
            let because = if reason.is_empty() { "" } else { ": " };
            let flaw =
                format!("the suite skipped all its cases{because}{}", units::foreign(reason));
            self.parsed.flaws.push(flaw);
        }
    }

    /// Adds the tests whose lines end with `{`, from this depth on. `is_closed`: whether a line `}`
    /// at this depth ends the last of these tests.
    fn end_braced(&mut self, depth: usize, is_closed: bool) {
        while let Some((own, line)) = self.braced.pop_if(|(own, _)| *own >= depth) {
            let is_closed = is_closed && own == depth;
            let line = line.strip_suffix('{').filter(|_| is_closed).unwrap_or(&line);
            if let Some(point) = point(line) {
                self.point(own, &point);
            }
        }
    }

    fn point(&mut self, depth: usize, point: &Point<'_>) {
        let mut name = match (point.description.as_str(), point.number) {
            ("", Some(number)) => format!("test {number}"),
            ("", None) => format!("test {}", self.seen + 1),
            (description, _) => description.to_owned(),
        };
        // The name of each subtest repeats the parent's name, so a long name with many subtests
        // would fill the memory.
        if name.len() > LONGEST_NAME {
            name = name.chars().take(LONGEST_NAME / 4).collect();
        }
        let mut cases = Vec::new();
        while self.open.last().is_some_and(|level| level.depth > depth) {
            let Some(level) = self.open.pop() else { break };
            cases.splice(0..0, level.cases);
        }
        let mut case = Case::new(&name, point.outcome);
        case.reason.clone_from(&point.reason);
        if !cases.is_empty() {
            case.checks = Checks::default();
        }
        for part in &mut cases {
            if !part.is_part {
                case.checks.add(part.checks);
            }
            part.is_part = true;
            if part.name.len() <= LONGEST_NAME {
                part.name = format!("{name} / {}", part.name);
            }
        }
        cases.push(case);
        if depth == 0 {
            self.seen += 1;
            self.parsed.cases.append(&mut cases);
            return;
        }
        let is_deepest = self.open.len() >= DEEPEST;
        match self.open.last_mut() {
            // Join subtests that are nested more than [`DEEPEST`] levels deep with the deepest
            // level.
            Some(level) if level.depth == depth || is_deepest => level.cases.append(&mut cases),
            _ => self.open.push(Level { depth, cases }),
        }
    }

    /// Gives the message of a YAML block to the case before the block.
    fn reason(&mut self, line: &str) {
        let line = line.trim();
        let named = ["message:", "error:"].into_iter().find_map(|name| line.strip_prefix(name));
        let message = match named.map(str::trim) {
            // The text of the message begins in the next line.
            Some("|" | "|-" | ">" | ">-") => {
                self.awaits_message = true;
                return;
            }
            Some(message) => message,
            None if std::mem::take(&mut self.awaits_message) => line,
            None => return,
        };
        let last = match self.open.last_mut() {
            Some(level) => level.cases.last_mut(),
            None => self.parsed.cases.last_mut(),
        };
        if let Some(case) = last.filter(|case| case.reason.is_none() && case.outcome.is_bad()) {
            let message = message.trim_matches(['"', '\'']);
            *case = case.clone().because(message);
        }
    }

    fn finish(mut self) -> Parsed {
        self.end_braced(0, false);
        for level in std::mem::take(&mut self.open) {
            let count = level.cases.len();
            self.parsed.flaws.push(format!("{count} subtests have no test that they belong to"));
            self.parsed.cases.extend(level.cases);
        }
        let seen = self.seen;
        match self.plan {
            Some(planned) if planned != seen && !(planned == 0 && seen == 0) => self
                .parsed
                .flaws
                .push(format!("the suite planned {planned} cases, and {seen} ended")),
            _ => {}
        }
        self.parsed
    }
}

/// Returns the depth of a line, and the line without indentation. Each `# ` in front of a test line
/// is a level of kselftest.
fn depth(line: &str) -> (usize, &str) {
    let trimmed = line.trim_start_matches([' ', '\t']);
    let indent = line.len() - trimmed.len();
    let (mut rest, mut levels) = (trimmed, 0);
    while let Some(inner) = rest.strip_prefix("# ") {
        (rest, levels) = (inner.trim_start_matches(' '), levels + 1);
    }
    if levels > 0 && point(rest).is_some() {
        let inner_indent = trimmed.len() - rest.len() - 2 * levels;
        return (WIDEST * levels + inner_indent.min(WIDEST - 1), rest);
    }
    (indent.min(WIDEST - 1), trimmed.trim_end())
}

/// Parses a test line such as `ok 3 - description # SKIP reason`.
fn point(line: &str) -> Option<Point<'_>> {
    let (good, rest) = match line.strip_prefix("not ok") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok")?),
    };
    // A line that begins with `okay` is no test line.
    if !rest.is_empty() && !rest.starts_with([' ', '\t']) {
        return None;
    }
    let rest = rest.trim();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let is_number = end > 0 && (end == rest.len() || rest[end..].starts_with([' ', '\t']));
    let (number, rest) = if is_number { (Some(&rest[..end]), &rest[end..]) } else { (None, rest) };
    let (description, directive) = split_directive(rest.trim());
    let description = description.trim();
    let description = description.strip_prefix("- ").unwrap_or(description);
    let (outcome, reason) = judged(good, directive);
    let description = description.trim().replace("\\#", "#");
    Some(Point { number, description, outcome, reason })
}

/// Splits at the first ` #` that no backslash precedes.
fn split_directive(text: &str) -> (&str, &str) {
    let mut from = 0;
    while let Some(at) = text[from..].find('#') {
        let at = from + at;
        if at == 0 || text[..at].ends_with([' ', '\t']) {
            return (&text[..at], text[at + 1..].trim());
        }
        from = at + 1;
    }
    (text, "")
}

fn judged(good: bool, directive: &str) -> (Outcome, Option<String>) {
    let reason = |rest: &str| {
        let rest = rest.trim();
        (!rest.is_empty()).then(|| rest.chars().take(200).collect())
    };
    // kselftest also writes `# XFAIL` and `# TIMEOUT 45 seconds`.
    if let Some(rest) = strip_word(directive, "skip") {
        return (Outcome::Skipped, reason(rest));
    }
    if let Some(rest) = strip_word(directive, "todo").or_else(|| strip_word(directive, "xfail")) {
        // An expected failure counts as skipped, and an unexpected success of a TODO as passed.
        return match good && strip_word(directive, "todo").is_some() {
            true => (Outcome::Passed, reason(rest)),
            false => (Outcome::Skipped, Some(format!("expected to fail {rest}").trim().to_owned())),
        };
    }
    if strip_word(directive, "timeout").is_some() {
        return (Outcome::Broken, reason(directive));
    }
    match good {
        true => (Outcome::Passed, None),
        false => (Outcome::Failed, reason(directive).filter(|reason| !reason.starts_with("time="))),
    }
}

/// Returns the rest of a text that begins with `word`, in upper or lower case, as in `SKIPPED: no
/// root`.
fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let head = text.get(..word.len())?;
    let rest = &text[word.len()..];
    let rest = rest.strip_prefix("ped").or_else(|| rest.strip_prefix("PED")).unwrap_or(rest);
    let ends = !rest.starts_with(|c: char| c.is_alphanumeric());
    (head.eq_ignore_ascii_case(word) && ends).then(|| rest.trim_start_matches([':', ' ']))
}

/// A depth beyond any indentation, so that a level of kselftest is deeper than an indented line.
const WIDEST: usize = 1_000;
const DEEPEST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<(String, Outcome)> {
        parse(text).cases.into_iter().map(|case| (case.name, case.outcome)).collect()
    }

    #[test]
    fn tap_13_directives_and_diagnostics_are_parsed() {
        let text = "TAP version 13\n1..6\nok 1 - opens\nnot ok 2 - reads\n  ---\n  message: 'short \
                    read'\n  severity: fail\n  ...\nok 3 # skip no root\nnot ok 4 later # TODO not \
                    written\nok 5 holds \\# and colours#1\nok\n# a remark\nokay\n";
        let parsed = parse(text);
        assert_eq!(
            parsed.told(),
            [
                ("opens", Outcome::Passed, None),
                ("reads", Outcome::Failed, Some("short read")),
                ("test 3", Outcome::Skipped, Some("no root")),
                ("later", Outcome::Skipped, Some("expected to fail not written")),
                ("holds # and colours#1", Outcome::Passed, None),
                ("test 6", Outcome::Passed, None),
            ]
        );
        assert_eq!(parsed.flaws, Vec::<String>::new());
    }

    #[test]
    fn tap_14_subtests_are_parts_of_their_test() {
        let text = "TAP version 14\n1..2\n# Subtest: foo\n    1..2\n    ok 1 - a\n    not ok 2 - \
                    b\nnot ok 1 - foo\nok 2 - bar\n";
        let expected = [
            ("foo / a", Outcome::Passed),
            ("foo / b", Outcome::Failed),
            ("foo", Outcome::Failed),
            ("bar", Outcome::Passed),
        ];
        assert_eq!(told(text), expected.map(|(name, outcome)| (name.to_owned(), outcome)));
        let parsed = parse(text);
        let wholes: Vec<_> = parsed.cases.iter().filter(|case| !case.is_part).collect();
        assert_eq!(wholes.len(), 2);
        assert_eq!((wholes[0].checks.passed, wholes[0].checks.failed), (1, 1));
    }

    #[test]
    fn subtests_in_braces_are_parts_of_the_test_before_them() {
        let text = "1..3\nok 1 - outer # time=5ms {\n    1..2\n    ok 1 - a\n    not ok 2 - b # TODO \
                    later\n}\n\nnot ok 2 - ends with {\nnot ok 3 - last # time=1ms {\n    not ok 1 - c\n}\n";
        let parsed = parse(text);
        assert_eq!(
            parsed.told(),
            [
                ("outer / a", Outcome::Passed, None),
                ("outer / b", Outcome::Skipped, Some("expected to fail later")),
                ("outer", Outcome::Passed, None),
                ("ends with {", Outcome::Failed, None),
                ("last / c", Outcome::Failed, None),
                ("last", Outcome::Failed, None),
            ]
        );
        assert_eq!(parsed.flaws, Vec::<String>::new());
    }

    #[test]
    fn ktap_levels_nest() {
        let text = "KTAP version 1\n1..1\n  KTAP version 1\n  1..1\n    KTAP version 1\n    1..2\n    \
                    ok 1 deep\n    not ok 2 deeper # no memory\n  not ok 1 inner\nnot ok 1 outer\n";
        let names: Vec<_> = told(text).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["outer / inner / deep", "outer / inner / deeper", "outer / inner", "outer"]
        );
    }

    #[test]
    fn kselftest_timeouts_and_expected_failures_are_distinguished() {
        let text = "TAP version 13\n1..3\nnot ok 1 selftests: net: a.sh # TIMEOUT 45 seconds\n\
                    ok 2 selftests: net: b.sh # XFAIL\nok 3 selftests: net: c.sh # SKIP\n";
        let outcomes: Vec<_> = told(text).into_iter().map(|(_, outcome)| outcome).collect();
        assert_eq!(outcomes, [Outcome::Broken, Outcome::Skipped, Outcome::Skipped]);
    }

    #[test]
    fn only_an_indented_block_hides_lines_from_the_cases() {
        let text = "1..4\nok 1 - a\n---\nok 2 - b\nnot ok 3 - c\n  ---\n  message: cut\nok 4 - d\n";
        let parsed = parse(text);
        assert_eq!(
            parsed.told(),
            [
                ("a", Outcome::Passed, None),
                ("b", Outcome::Passed, None),
                ("c", Outcome::Failed, Some("cut")),
                ("d", Outcome::Passed, None),
            ]
        );
        assert_eq!(parsed.flaws, Vec::<String>::new());
    }

    #[test]
    fn a_message_or_an_error_of_a_block_is_the_reason() {
        let block = |message: &str| {
            format!("not ok 1 - a\n  ---\n  type: test\n  {message}\n  ...\n1..1\n")
        };
        for (message, reason) in [
            ("message: \"cut\"", "cut"),
            ("error: 'cut'", "cut"),
            ("error: |-\n    1 == 2\n    more", "1 == 2"),
            ("message: >-\n    cut", "cut"),
        ] {
            let parsed = parse(&block(message));
            assert_eq!(parsed.told(), [("a", Outcome::Failed, Some(reason))], "{message}");
        }
    }

    #[test]
    fn a_subtest_that_bails_out_is_a_flaw() {
        let text =
            "# Subtest: foo\n    1..2\n    ok 1 - a\n    Bail out! no disk\nnot ok 1 - foo\n1..1\n";
        assert_eq!(parse(text).flaws, ["the suite bailed out: no disk"]);
    }

    #[test]
    fn an_unmet_tap_plan_is_a_flaw() {
        assert!(parse("1..3\nok 1\n").flaws[0].contains("planned 3 cases, and 1 ended"));
        assert!(parse("1..1\nBail out! no disk\n").flaws[0].contains("bailed out: no disk"));
        assert!(
            parse("1..0 # SKIP no driver\n").flaws[0].contains("skipped all its cases: no driver")
        );
        assert_eq!(parse("ok 1\nok 2\n1..2\n").flaws, Vec::<String>::new());
    }
}
