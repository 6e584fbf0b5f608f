//! Completions and manual pages, made from the definitions of the commands.

use crate::destination;
use crate::exit::Ending;
use crate::output;
use anyhow::Context;
use clap::{Command, ValueEnum};
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};
use clap_mangen::Man;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn print(shell: Shell, command: &Command) -> anyhow::Result<Ending> {
    let (mut command, mut text) = (command.clone(), Vec::new());
    match shell {
        Shell::Bash => generate(Bash, &mut command, NAME, &mut text),
        Shell::Zsh => generate(Zsh, &mut command, NAME, &mut text),
        Shell::Fish => generate(Fish, &mut command, NAME, &mut text),
    }
    output::print(String::from_utf8_lossy(&text))?;
    Ok(Ending::Fine)
}

/// Writes a page for each command: `weir.1`, `weir-lab.1`, `weir-lab-run.1`, …
pub(crate) fn man(directory: &Path, command: &Command) -> anyhow::Result<Ending> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("creating {}", directory.display()))?;
    let mut root = command.clone();
    root.build();
    write_pages(directory, &root, NAME)?;
    Ok(Ending::Fine)
}

fn write_pages(directory: &Path, command: &Command, name: &str) -> anyhow::Result<()> {
    let mut page = Vec::new();
    Man::new(command.clone().display_name(name.to_owned())).render(&mut page)?;
    let path = directory.join(format!("{name}.1"));
    destination::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
    for inner in command.get_subcommands() {
        if !inner.is_hide_set() && inner.get_name() != "help" {
            write_pages(directory, inner, &format!("{name}-{}", inner.get_name()))?;
        }
    }
    Ok(())
}

const NAME: &str = "weir";
pub(crate) const EXAMPLES: &str = "\
Examples:
  weir completions bash > /usr/share/bash-completion/completions/weir
  weir completions zsh > /usr/share/zsh/vendor-completions/_weir
  weir completions fish > /usr/share/fish/vendor_completions.d/weir.fish
The Debian package installs them.";
