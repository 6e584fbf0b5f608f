use std::collections::HashMap;
use std::path::Path;

use flow::request::{FlowCommand, FlowEntry, FlowFilter, FlowMod};
use text::{PortNames, parse_flow_line};

use super::bridge::BridgeState;
use super::error::SwitchError;

/// Adds all rules of a file to a bridge. If a rule is refused, adds no rule.
pub(super) fn load(path: &Path, bridge: &BridgeState) -> Result<usize, SwitchError> {
    let text = host::read_regular_file(path)
        .map_err(|error| SwitchError::ReadFlows { path: path.to_owned(), error })?;
    change(&text, bridge).map_err(|(line, problem)| SwitchError::Flows {
        path: path.to_owned(),
        line,
        problem,
    })
}

/// Returns the first problem in a file of rules.
pub(super) fn check(path: &Path, names: &PortNames) -> Option<String> {
    let text = match host::read_regular_file(path) {
        Ok(text) => text,
        Err(error) => {
            let error = SwitchError::ReadFlows { path: path.to_owned(), error };
            return Some(error.to_string());
        }
    };
    let (line, problem) = parse(&text, names).err()?;
    Some(format!("{}:{line}: {problem}", path.display()))
}

/// Applies all changes in a text. If a change is refused, applies no change, and the error has the
/// number of its line.
pub(super) fn change(text: &str, bridge: &BridgeState) -> Result<usize, (usize, String)> {
    let names = bridge.port_names();
    let (lines, changes) = parse(text, &names)?;
    let count = changes.len();
    let now_ms = bridge.clock.now_ms();
    let changed = bridge.tables_mut().change_all(changes, now_ms);
    changed.map_err(|(index, refusal)| (lines[index], refusal.to_string()))?;
    bridge.waker.wake();
    Ok(count)
}

/// Replaces all rules by the rules of a text. Rules that stay unchanged keep their counts.
pub(super) fn replace(text: &str, bridge: &BridgeState) -> Result<usize, (usize, String)> {
    let names = bridge.port_names();
    let (lines, additions) = parse(text, &names)?;
    let now_ms = bridge.clock.now_ms();
    let mut tables = bridge.tables_mut();
    let mut former = HashMap::new();
    for flow in
        tables.flows(&FlowFilter::all(), now_ms).map_err(|refusal| (0, refusal.to_string()))?
    {
        let place = (flow.table, flow.priority, flow.matching.clone());
        former.insert(place, flow);
    }
    let mut wanted = Vec::new();
    let mut places = Vec::new();
    for (line, addition) in lines.iter().zip(additions) {
        let place = (addition.table.unwrap_or(0), addition.priority, addition.matching.clone());
        if former.remove(&place).is_none_or(|flow| !is_same(&flow, &addition)) {
            wanted.push(addition);
            places.push(*line);
        }
    }
    let count = lines.len();
    // Deletions come first, because they make room in tables with a rule limit.
    let mut changes = Vec::new();
    for (table, priority, matching) in former.into_keys() {
        let mut deletion = FlowMod::new(FlowCommand::DeleteStrict);
        deletion.table = Some(table);
        deletion.priority = priority;
        deletion.matching = matching;
        changes.push(deletion);
    }
    let deletions = changes.len();
    changes.extend(wanted);
    let changed = tables.change_all(changes, now_ms);
    drop(tables);
    changed.map_err(|(index, refusal)| {
        let place = index.checked_sub(deletions).and_then(|index| places.get(index));
        (place.copied().unwrap_or(0), refusal.to_string())
    })?;
    bridge.waker.wake();
    Ok(count)
}

fn is_same(flow: &FlowEntry, wanted: &FlowMod) -> bool {
    flow.cookie == wanted.cookie.unwrap_or(0)
        && flow.idle_timeout == wanted.idle_timeout
        && flow.hard_timeout == wanted.hard_timeout
        && flow.importance == wanted.importance
        && flow.flags.lasting() == wanted.flags.lasting()
        && flow.actions == wanted.actions
}

type Numbered = (Vec<usize>, Vec<FlowMod>);

/// Parses the changes of a text, with their line numbers. Large texts are parsed on several CPUs.
fn parse(text: &str, names: &PortNames) -> Result<Numbered, (usize, String)> {
    let lines: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, without_comment(line)))
        .filter(|(_, line)| !line.is_empty())
        .collect();
    let threads = if lines.len() < MANY_LINES { 1 } else { host::online_cpus().len().max(1) };
    let share = lines.len().div_ceil(threads).max(1);
    let parsed: Vec<Result<Vec<FlowMod>, (usize, String)>> = std::thread::scope(|scope| {
        let running: Vec<_> = lines
            .chunks(share)
            .map(|lines| scope.spawn(move || parse_lines(lines, names)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err((0, "cannot parse".to_owned()))))
            .collect()
    });
    let mut changes = Vec::with_capacity(lines.len());
    for part in parsed {
        changes.extend(part?);
    }
    Ok((lines.iter().map(|(number, _)| *number).collect(), changes))
}

fn parse_lines(
    lines: &[(usize, &str)],
    names: &PortNames,
) -> Result<Vec<FlowMod>, (usize, String)> {
    let parse = |(number, line): &(usize, &str)| {
        parse_flow_line(line, names).map_err(|error| (*number, error.to_string()))
    };
    lines.iter().map(parse).collect()
}

fn without_comment(line: &str) -> &str {
    line.split_once('#').map_or(line, |(rule, _)| rule).trim()
}

const MANY_LINES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_flow_file_names_the_line() {
        let names = PortNames::none();
        let text = "# rules\n\nip actions=drop # all\nip,foo=1 actions=drop\n";
        let error = parse(text, &names).unwrap_err();
        assert_eq!(error.0, 4);
        assert!(error.1.contains("unknown keyword foo"), "{error:?}");
        let (lines, changes) = parse("\nip actions=drop\n\narp actions=drop", &names).unwrap();
        assert_eq!(lines, [2, 4]);
        assert_eq!(changes.len(), 2);
    }
}
