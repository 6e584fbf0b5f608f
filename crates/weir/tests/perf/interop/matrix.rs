//! Every case in both roles, and the table of results.

use super::case::Case;
use super::run::{Outcome, Program, run};
use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use testing::Attempt;

/// The results of all cases with one peer.
pub(crate) struct Matrix {
    peer: &'static str,
    rows: Vec<Row>,
}

struct Row {
    case: Case,
    /// The outcome of the peer's client with Weir's server.
    served: Outcome,
    /// The outcome of Weir's client with the peer's server.
    asked: Outcome,
    /// The outcome of the peer with itself, if the case failed with Weir at one end.
    control: Option<Outcome>,
}

impl Matrix {
    /// Runs all cases; prints the table and writes it beside the build's other files.
    pub(crate) fn run(peer: &Program, cases: &[Case]) -> Self {
        let only = std::env::var("WEIR_INTEROP_ONLY").unwrap_or_default();
        let cases: Vec<&Case> = cases.iter().filter(|case| case.name.contains(&only)).collect();
        let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let row = Row::of(case, peer);
                        rows.lock().unwrap().push(row);
                    }
                });
            }
        });
        let mut rows = rows.into_inner().unwrap();
        rows.sort_by_key(|row| cases.iter().position(|case| case.name == row.case.name));
        let name = peer.name;
        let matrix = Self { peer: name, rows };
        println!("{matrix}");
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("perf_interop_{name}.md"));
        std::fs::write(place, matrix.to_string()).unwrap();
        matrix
    }

    pub(crate) fn holds(&self) -> bool {
        self.failed() == 0
    }

    fn failed(&self) -> usize {
        self.outcomes().filter(|outcome| matches!(outcome, Outcome::Failed(_))).count()
    }

    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.rows.iter().flat_map(|row| [&row.served, &row.asked])
    }
}

impl Row {
    fn of(case: &Case, peer: &Program) -> Self {
        let weir = Program::weir();
        let (served, asked) = (fairly(case, peer, &weir), fairly(case, &weir, peer));
        let failed = [&served, &asked].iter().any(|one| matches!(one, Outcome::Failed(_)));
        let control = failed.then(|| run(case, peer, peer));
        Self { case: case.clone(), served, asked, control }
    }
}

/// Runs a case. Each end computes its rate over its own seconds, so if the machine delays one end,
/// the rates differ. If only rates disagree and the machine was disturbed, the case has further
/// attempts, and the table says so. If bytes or counts disagree, the case has a single attempt.
fn fairly(case: &Case, client: &Program, server: &Program) -> Outcome {
    let mut before = String::new();
    let ended = testing::try_undisturbed("rates of two perf programs", |attempt| {
        match run(case, client, server) {
            Outcome::Failed(why) if why.contains("bit/s") => {
                before.clone_from(&why);
                Attempt::Wrong(format!("{}: {why}", case.name))
            }
            Outcome::Agreed(figures) if attempt > 1 => Attempt::Right(Outcome::Agreed(format!(
                "{figures}; attempt {attempt}, before: {before}"
            ))),
            other => Attempt::Right(other),
        }
    });
    // No attempt is invalid, so each case has an outcome or a failure.
    ended.map_or_else(Outcome::Failed, Option::unwrap)
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = self.peer;
        writeln!(
            f,
            "| case | options | {peer} client, weir server | weir client, {peer} server |"
        )?;
        writeln!(f, "| --- | --- | --- | --- |")?;
        for row in &self.rows {
            let Case { name, client, server, .. } = &row.case;
            let mut words = client.join(" ");
            if !server.is_empty() {
                words = format!("{words} (server: {})", server.join(" "));
            }
            writeln!(f, "| {name} | `{words}` | {} | {} |", row.served, row.asked)?;
            if let Some(control) = &row.control {
                writeln!(f, "| | | {peer} with itself: | {control} |")?;
            }
        }
        let all = self.outcomes().count();
        let left_out = self.outcomes().filter(|one| matches!(one, Outcome::Lacking(_))).count();
        let failed = self.failed();
        write!(f, "\n{} of {all} agree, {failed} failed", all - failed - left_out)?;
        if left_out > 0 { write!(f, ", {left_out} left out") } else { Ok(()) }
    }
}

/// Number of cases that run at once: most are paced and leave two CPUs idle.
const AT_ONCE: usize = 3;
