//! Writes a report from invented example data, for work on the report's design: `cargo run -p
//! weir-report --example demo_report -- DIRECTORY`

#[path = "../tests/rendering/example_data.rs"]
#[allow(dead_code)]
mod example_data;

fn main() -> Result<(), report::ReportError> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "runs/example".to_owned());
    let results = example_data::results();
    let files = report::write_run(
        directory.as_ref(),
        &results,
        &example_data::samples(),
        &example_data::series(),
        example_data::LAB_FILE,
        None,
    )?;
    print!("{}", report::terminal::render(&results, 120, false));
    println!("{}", files.html.display());
    Ok(())
}
