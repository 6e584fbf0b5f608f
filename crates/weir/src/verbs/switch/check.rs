use crate::exit::{Ending, Unusable};
use crate::output::print;
use clap::Args;
use std::path::PathBuf;
use switch::run::{Config, ConfigError};
use units::visible;

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The file of settings
    file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Check) -> anyhow::Result<Ending> {
    let problems = match Config::read(&arguments.file) {
        Ok(config) => config.problems(),
        // The file could not be read, so nothing was checked.
        Err(ConfigError::Read { path, error }) => {
            return Err(Unusable::argument("read", &path, &error).into());
        }
        Err(error) => vec![error.to_string()],
    };
    if arguments.json {
        let document = serde_json::json!({ "valid": problems.is_empty(), "problems": problems });
        print(format_args!("{document:#}\n"))?;
    } else if problems.is_empty() {
        print(format_args!("{}: valid\n", arguments.file.display()))?;
    } else {
        for problem in &problems {
            print(format_args!("{}\n", visible(problem)))?;
        }
    }
    Ok(if problems.is_empty() { Ending::Fine } else { Ending::Failed })
}

pub(super) const EXAMPLES: &str = "\
Examples:
  weir switch check /etc/weir/switch.toml

Reads captures and rules that the file names, and looks for its interfaces. Exit status 1 if a
switch would not start, or would start without one of its ports; 2 if the file cannot be read.";
