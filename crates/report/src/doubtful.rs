//! The reasons for the marks of cells: flaws that made cells invalid, and the users of the CPU that
//! cells were short of.

use crate::answer::counted;
use crate::axis;
use results::{Cell, CpuLimit, Results};

pub(crate) fn invalid(results: &Results) -> Vec<(String, String)> {
    let cells = results.cells.iter().filter(|cell| !cell.valid && cell.is_measured());
    cells.map(|cell| (place(cell), reasons(cell))).collect()
}

fn reasons(cell: &Cell) -> String {
    let reasons: Vec<String> = cell.invalid_reasons.iter().map(ToString::to_string).collect();
    if reasons.is_empty() { "no reason is recorded".to_owned() } else { reasons.join("; ") }
}

/// Returns advice on each type of flaw of the run.
pub(crate) fn mends(results: &Results) -> Vec<String> {
    let mut mends: Vec<String> = Vec::new();
    for reason in results.cells.iter().flat_map(|cell| &cell.invalid_reasons) {
        // Drops a question in brackets, which only explains the reason.
        let what = reason.what.split(" (").next().unwrap_or_default();
        let mend = format!("If {what}: {}.", reason.mend);
        if !reason.mend.is_empty() && !mends.contains(&mend) {
            mends.push(mend);
        }
    }
    mends
}

/// Names the users of the CPU that cells were short of, the user of most cells first.
pub(crate) fn cpu_users(results: &Results) -> Option<String> {
    let mut users: Vec<(&CpuLimit, Vec<&Cell>)> = Vec::new();
    for cell in results.cells.iter().filter(|cell| cell.cpu_limited && cell.is_measured()) {
        let Some(limit) = &cell.cpu_limit else { continue };
        let same = |known: &CpuLimit| known.by == limit.by && known.cpus == limit.cpus;
        match users.iter_mut().find(|(known, _)| same(known)) {
            Some((_, cells)) => cells.push(cell),
            None => users.push((limit, vec![cell])),
        }
    }
    // A stable sort: equal counts keep the order of the cells.
    users.sort_by_key(|(_, cells)| std::cmp::Reverse(cells.len()));
    let more = users.len().saturating_sub(MOST_USERS);
    let mut said: Vec<String> =
        users.iter().take(MOST_USERS).map(|(limit, cells)| sentence(limit, cells)).collect();
    if more > 0 {
        said.push(format!("{} in results.json", counted(more, "more user")));
    }
    (!said.is_empty()).then(|| format!("{}.", said.join("; ")))
}

fn sentence(limit: &CpuLimit, cells: &[&Cell]) -> String {
    if let [one] = cells {
        return format!("{limit} in {}", place(one));
    }
    let shares = cells.iter().filter_map(|cell| Some(cell.cpu_limit.as_ref()?.percent));
    let (low, high) = shares
        .fold((f64::INFINITY, 0.0_f64), |(low, high), share| (low.min(share), high.max(share)));
    let mut systems: Vec<&str> = cells.iter().map(|cell| cell.system.as_str()).collect();
    systems.sort_unstable();
    systems.dedup();
    let share = match format!("{low:.0}") == format!("{high:.0}") {
        true => format!("{high:.0}"),
        false => format!("{low:.0} to {high:.0}"),
    };
    format!(
        "{} used {share} % of {} in {} of {}",
        limit.by,
        limit.place(),
        counted(cells.len(), "cell"),
        systems.join(", ")
    )
}

/// Returns the program that used much CPU beside the cell.
pub(crate) fn disturber(cell: &Cell) -> Option<&CpuLimit> {
    let limit = cell.cpu_limit.iter().filter(|limit| cell.cpu_limited && limit.is_of_others());
    let users = cell.beside.iter().chain(limit);
    let user = users.max_by(|a, b| a.percent.total_cmp(&b.percent))?;
    (user.percent >= MUCH_PERCENT).then_some(user)
}

/// Warns of the programs that used much CPU beside the cells.
pub(crate) fn disturbed(results: &Results) -> Option<String> {
    let measured: Vec<&Cell> = results.cells.iter().filter(|cell| cell.is_measured()).collect();
    let users: Vec<&CpuLimit> = measured.iter().filter_map(|cell| disturber(cell)).collect();
    let most = users.iter().max_by(|a, b| a.percent.total_cmp(&b.percent))?;
    Some(format!(
        "other programs used much CPU in {} of {} (at most {}, {:.0} % of {}): end them, and run the lab again",
        users.len(),
        counted(measured.len(), "cell"),
        most.by,
        most.percent,
        most.place()
    ))
}

/// Formats a cell as `tcp-cubic at loss 1%`.
pub(crate) fn place(cell: &Cell) -> String {
    match axis::describe(&cell.axes) {
        place if place.is_empty() => cell.system.clone(),
        place => format!("{} at {place}", cell.system),
    }
}

const MOST_USERS: usize = 4;
/// Minimum CPU use, in percent of one CPU, of a program that a report names as a disturbance.
const MUCH_PERCENT: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Axes, Form, Reason};

    fn cell(system: &str, loss: &str) -> Cell {
        Cell::new(system, Axes::from([("loss".to_owned(), loss.to_owned())]))
    }

    #[test]
    fn every_invalid_cell_has_its_reason_and_advice_is_not_repeated() {
        let mut results = Results::new("x", Form::Quick);
        for (loss, detail) in [("0%", "300 µs"), ("1%", "200 µs")] {
            let mut one = cell("bbr", loss);
            one.valid = false;
            let mend = "end other programs".to_owned();
            one.invalid_reasons =
                vec![Reason { what: "it was late".to_owned(), detail: detail.to_owned(), mend }];
            results.cells.push(one);
        }
        let mut old = cell("cubic", "0%");
        old.valid = false;
        results.cells.push(old);
        results.cells.push(cell("cubic", "1%"));
        let pair = |place: &str, reason: &str| (place.to_owned(), reason.to_owned());
        assert_eq!(
            invalid(&results),
            [
                pair("bbr at loss 0%", "it was late: 300 µs"),
                pair("bbr at loss 1%", "it was late: 200 µs"),
                pair("cubic at loss 0%", "no reason is recorded"),
            ]
        );
        assert_eq!(mends(&results), ["If it was late: end other programs."]);
    }

    #[test]
    fn the_largest_program_beside_a_run_is_named_with_the_number_of_disturbed_cells() {
        let mut results = Results::new("x", Form::Quick);
        for (loss, percent) in [("0%", 19.0), ("1%", 38.0), ("2%", 134.0)] {
            let mut one = cell("bbr", loss);
            let metric = results::Metric::single(1.0, "");
            one.metrics.insert("goodput_mbit_s".to_owned(), metric);
            one.beside = Some(CpuLimit { by: "rustc".to_owned(), cpus: vec![0, 1], percent });
            results.cells.push(one);
        }
        assert_eq!(
            crate::method::warnings_by_cause(&results),
            [
                "other programs used much CPU in 2 of 3 cells (at most rustc, 134 % of CPUs 0 and 1): end \
              them, and run the lab again"
            ]
        );
        results.cells.truncate(1);
        assert_eq!(disturbed(&results), None);
    }

    #[test]
    fn the_users_of_the_cpu_are_named() {
        let mut results = Results::new("x", Form::Quick);
        assert_eq!(cpu_users(&results), None);
        let users = [
            ("bbr", "weir (client)", 60.0),
            ("bbr", "softirqs", 70.0),
            ("cubic", "weir (client)", 91.4),
        ];
        for (system, by, percent) in users {
            let mut one = cell(system, "1%");
            one.cpu_limited = true;
            one.cpu_limit = Some(CpuLimit { by: by.to_owned(), cpus: vec![0], percent });
            results.cells.push(one);
        }
        assert_eq!(
            cpu_users(&results).unwrap(),
            "weir (client) used 60 to 91 % of CPU 0 in 2 cells of bbr, cubic; softirqs used 70 % of CPU 0 in bbr at \
             loss 1%."
        );
    }
}
