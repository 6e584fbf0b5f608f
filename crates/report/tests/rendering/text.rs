use report::{html, markdown, read_results, terminal};
use results::{Form, Missing, Results, Samples};

use crate::example_data::{HOSTILE, LAB_FILE, OBEYED, hostile, results};

#[test]
fn wide_and_narrow_terminals_get_the_recorded_text() {
    insta::assert_snapshot!("terminal_140", terminal::render(&results(), 140, false));
    insta::assert_snapshot!("terminal_80", terminal::lines(&results(), 80, false));
    insta::assert_snapshot!("terminal_50", terminal::lines(&results(), 50, false));
}

/// A repeat of a cell failed, so the coverage of this cell's interval differs from other cells.
#[test]
fn intervals_of_different_coverage_fit_a_terminal_of_80_columns() {
    let mut results = results();
    for (place, cell) in results.cells.iter_mut().enumerate() {
        let Some(metric) = cell.metrics.get_mut("goodput_mbit_s") else { continue };
        let ends = [metric.median * 0.97, metric.median * 1.03];
        (metric.ci95, metric.coverage, metric.range, metric.n) = match place % 3 {
            0 => (None, None, Some(ends), 5),
            1 => (Some(ends), Some(0.984375), None, 7),
            _ => (Some(ends), Some(0.96875), None, 6),
        };
    }
    let text = terminal::lines(&results, 80, false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let intervals = text.lines().filter(|line| line.contains('[') && line.contains(']')).count();
    let measured = results.cells.iter().filter(|cell| cell.failed.is_none()).count();
    assert_eq!(intervals, measured, "{text}");
    for label in ["range of 5", "98.4 %", "96.9 %"] {
        assert!(text.contains(label), "no {label}: {text}");
    }
}

/// Six axes leave no room for both their values and the intervals.
#[test]
fn intervals_stay_beside_many_axes_on_a_terminal_of_80_columns() {
    let mut results = results();
    for (place, cell) in results.cells.iter_mut().enumerate() {
        for (axis, value) in [("queue", "max(1bdp,256KiB)"), ("back", "0.1%"), ("streams", "16")] {
            cell.axes.insert(axis.to_owned(), value.to_owned());
        }
        let Some(metric) = cell.metrics.get_mut("goodput_mbit_s") else { continue };
        let ends = [metric.median * 0.97, metric.median * 1.03];
        (metric.ci95, metric.coverage, metric.range, metric.n) = match place % 2 {
            0 => (None, None, Some(ends), 5),
            _ => (Some(ends), Some(0.96875), None, 6),
        };
    }
    let text = terminal::lines(&results, 80, false);
    let intervals = text.lines().filter(|line| line.contains('[') && line.contains(']')).count();
    let measured = results.cells.iter().filter(|cell| cell.failed.is_none()).count();
    assert_eq!(intervals, measured, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [40, 60, 80, 100, 200] {
        for line in terminal::render(&results(), width, false).lines().skip(1) {
            let fits = line.chars().count() <= width.max(58);
            assert!(fits, "{width}: {line}");
        }
    }
}

#[test]
fn the_text_has_colours_only_on_request() {
    assert!(!terminal::render(&results(), 120, false).contains('\u{1b}'));
    assert!(terminal::render(&results(), 120, true).contains("\u{1b}[31mfailed"));
    let mut results = results();
    let cell = results.cells.iter_mut().find(|cell| cell.failed.is_some()).unwrap();
    (cell.failed, cell.not_run) = (None, Some("needs 3 CPUs".to_owned()));
    let text = terminal::render(&results, 120, true);
    assert!(text.contains("not run") && !text.contains("\u{1b}[31mnot run"), "{text}");
}

#[test]
fn escape_sequences_of_a_process_never_reach_a_terminal() {
    let text = terminal::render(&hostile(), 200, false);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    assert!(!text.contains(OBEYED), "{text:?}");
}

#[test]
fn a_run_without_values_is_still_shown() {
    let mut results = Results::new("empty", Form::Smoke);
    assert!(terminal::render(&results, 80, false).contains("0 cells measured"));
    let mut cell = results::Cell::new("a", results::Axes::new());
    cell.failed = Some("no such program".to_owned());
    results.cells.push(cell);
    assert!(terminal::render(&results, 80, false).contains("failed: no such program"));
    assert!(markdown::render(&results, "").contains("no such program"));
}

#[test]
fn the_markdown_of_a_lab_is_as_recorded() {
    insta::assert_snapshot!("markdown", markdown::render(&results(), LAB_FILE));
}

#[test]
fn hostile_text_does_not_break_markdown() {
    let text =
        markdown::render(&hostile(), &format!("a\n```\nb{}", OBEYED.iter().collect::<String>()));
    assert!(!text.contains(OBEYED), "{text:?}");
    assert!(!text.contains(HOSTILE) && !text.contains("<script"), "{text}");
    assert!(text.contains("````toml\na\n```\nb\\x1b\\x07\\x9b\\u{202e}\n````"));
    let rows = text.lines().filter(|line| line.starts_with('|'));
    for row in rows {
        assert!(row.ends_with('|'), "{row}");
    }
}

/// The run's cells have other metrics, so only the answer and the tables can show the missing
/// metric.
#[test]
fn an_unmeasured_metric_is_named_in_the_answer_and_in_the_tables() {
    let mut results = results();
    let cell = results.cells.iter_mut().find(|cell| cell.failed.is_none()).unwrap();
    let place = cell.system.clone();
    cell.metrics.shift_remove("goodput_mbit_s").unwrap();
    let metrics = vec!["goodput_mbit_s".to_owned()];
    cell.missing = vec![Missing { metrics, reason: "it `broke` off".to_owned(), failed: true }];
    let said = format!("Goodput not measured in 1 of {} cells, {place} at", results.cells.len());
    let shown = terminal::render(&results, 400, false);
    assert!(shown.contains(&said), "{shown}");
    assert!(shown.lines().filter(|line| line.contains("not measured")).count() >= 2, "{shown}");
    let text = markdown::render(&results, "");
    assert!(text.contains(&said) && text.contains("## Not measured"), "{text}");
    assert!(text.contains("| not measured") && text.contains("1 incomplete"), "{text}");
    let page = html::render(&results, &Samples::new("x"), &[], "");
    assert!(page.contains(&said) && page.contains("it <code>broke</code> off"), "{page}");
    assert!(page.contains("id=\"missing\"") && page.contains(">not measured</span>"), "{page}");
}

#[test]
fn cells_with_failed_repeats_have_a_mark_and_their_number_in_the_legend() {
    let unmarked = terminal::render(&results(), 140, false);
    assert!(!unmarked.contains('†'), "{unmarked}");
    let mut results = results();
    for cell in &mut results.cells {
        let is_in_part =
            cell.system == "tcp-cubic" && cell.axes["loss"] == "0.1%" && cell.axes["rtt"] == "1ms";
        if is_in_part {
            (cell.failed_repeats, cell.repeats) = (1, 8);
        } else if cell.failed.is_some() {
            (cell.failed_repeats, cell.repeats) = (8, 8);
        }
    }
    let legend =
        "† repeats failed and are not in the number: tcp-cubic at loss 0.1% · rtt 1ms 1 of 8.";
    let text = terminal::render(&results, 140, false);
    let page = markdown::render(&results, "");
    let html = html::render(&results, &Samples::new("x"), &[], "");
    for (shown, figure) in [
        (&text, "298 †  [281, 314]"),
        (&page, "| 298 [281, 314] † (ref 306"),
        (&html, ">298</b> †"),
    ] {
        assert!(shown.contains(figure) && shown.contains(legend), "{figure}: {shown}");
    }
    // The cell without a number says itself that it failed.
    assert_eq!(text.matches('†').count(), 2, "{text}");
}

#[test]
fn names_between_backticks_are_code() {
    let mut results = results();
    results.question = "Does `weir doctor` find *every* cause of a_b ` here?".to_owned();
    results.notes = vec!["`expected` lists causes with `|`.".to_owned()];
    let text = markdown::render(&results, "");
    let question = r"**Question:** Does `weir doctor` find \*every\* cause of a\_b \` here?";
    assert!(text.contains(question), "{text}");
    assert!(text.contains(r"- `expected` lists causes with \`\|\`."), "{text}");
}

#[test]
fn texts_of_a_file_are_bounded_and_escaped() {
    let mut results = hostile();
    results.cells[0].failed = Some("x".repeat(1 << 20));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), results.to_json().unwrap()).unwrap();
    let read = read_results(file.path()).unwrap();
    assert!(!read.to_json().unwrap().contains(OBEYED));
    assert!(read.lab.contains(r"\x1b]0;x\x07\x9b2J\u{202e}"), "{}", read.lab);
    assert!(read.cells[0].failed.as_ref().unwrap().len() < 5000);
    // Harmless text is read back unchanged.
    let written = crate::example_data::results();
    std::fs::write(file.path(), written.to_json().unwrap()).unwrap();
    assert_eq!(read_results(file.path()).unwrap(), written);
}
