//! The CPU profile of a run: stacks by system, as text, as flame graphs and as folded stacks.

mod flame;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use maud::{Markup, html};
use probe::profile::SOFTIRQS;
use units::{Span, foreign};

use crate::ReportError;
use crate::run::replace;
use flame::Flame;

/// The profile of a run.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// The stacks of each system, in the order of the report.
    pub systems: Vec<SystemProfile>,
    /// The cost of sampling, or the reason why the run does not know the cost.
    pub cost: String,
}

/// The stacks of a system's measured windows.
#[derive(Debug, Clone, Default)]
pub struct SystemProfile {
    /// The system's name, unescaped.
    pub system: String,
    /// A thread and its functions from the outermost to the innermost, and the number of samples.
    pub stacks: HashMap<Vec<Arc<str>>, u64>,
    /// The samples of each CPU.
    pub cores: BTreeMap<usize, CoreSamples>,
    /// The length of all measured windows together.
    pub observed: Span,
    /// CPU time between two samples.
    pub interval: Span,
    /// The number of stacks that the kernel or Weir had no room to keep.
    pub lost: u64,
}

/// The samples of a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoreSamples {
    /// All samples of this CPU.
    pub busy: u64,
    /// The samples inside a softirq.
    pub softirq: u64,
}

/// The shares of a function in all samples of a system, in percent.
#[derive(Debug)]
struct Function<'a> {
    name: &'a str,
    own: f64,
    with_callees: f64,
}

impl SystemProfile {
    /// Adds a sample.
    pub fn add(&mut self, cpu: usize, frames: &[Arc<str>]) {
        let core = self.cores.entry(cpu).or_default();
        core.busy += 1;
        core.softirq += u64::from(is_softirq(frames));
        match self.stacks.get_mut(frames) {
            Some(count) => *count += 1,
            None => {
                self.stacks.insert(frames.to_vec(), 1);
            }
        }
    }

    /// Returns the number of samples in all stacks.
    pub fn samples(&self) -> u64 {
        self.stacks.values().sum()
    }

    /// Formats the stacks as text for flamegraph.pl: a line for each stack, with the number of its
    /// samples.
    pub fn folded(&self) -> String {
        let mut lines: Vec<String> = self
            .stacks
            .iter()
            .map(|(frames, count)| {
                let names: Vec<String> =
                    frames.iter().map(|name| clean(name).replace(';', ":")).collect();
                format!("{} {count}\n", names.join(";"))
            })
            .collect();
        lines.sort_unstable();
        lines.concat()
    }

    /// Renders the flame graph as an SVG document.
    pub fn flame_graph(&self) -> String {
        Flame::of(self).render().into_string()
    }

    /// Returns the functions with the most time of their own.
    fn functions(&self, most: usize) -> Vec<Function<'_>> {
        let mut times: HashMap<&str, (u64, u64)> = HashMap::new();
        for (frames, count) in &self.stacks {
            // The first frame is the thread.
            let called = frames.get(1..).unwrap_or_default();
            if let Some(last) = called.last() {
                times.entry(last).or_default().0 += count;
            }
            let each: HashSet<&str> = called.iter().map(AsRef::as_ref).collect();
            for name in each {
                times.entry(name).or_default().1 += count;
            }
        }
        let all = self.samples().max(1) as f64;
        let percent = |count: u64| count as f64 / all * 100.0;
        let mut functions: Vec<Function<'_>> = times
            .into_iter()
            .map(|(name, (own, with))| Function {
                name,
                own: percent(own),
                with_callees: percent(with),
            })
            .collect();
        functions.sort_by(|a, b| b.own.total_cmp(&a.own).then_with(|| a.name.cmp(b.name)));
        functions.truncate(most);
        functions
    }

    /// Returns the share of a CPU's time in percent.
    fn share(&self, samples: u64) -> f64 {
        let observed = self.observed.secs_f64();
        if observed <= 0.0 {
            return 0.0;
        }
        (samples as f64 * self.interval.secs_f64() / observed * 100.0).min(100.0)
    }

    /// Formats the load of each CPU: `CPU 0: 96 % busy, 31 % in softirqs`.
    fn core_lines(&self) -> Vec<String> {
        let line = |(cpu, core): (&usize, &CoreSamples)| {
            let (busy, softirq) = (self.share(core.busy), self.share(core.softirq));
            format!("CPU {cpu}: {busy:.0} % busy, {softirq:.0} % in softirqs")
        };
        self.cores.iter().map(line).collect()
    }

    fn file_stem(&self) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
        self.system.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
    }
}

impl Profile {
    /// Formats the profile as text for a terminal.
    pub fn text(&self) -> String {
        let mut text = "CPU profile\n".to_owned();
        for one in &self.systems {
            let name = foreign(&one.system).to_string();
            let _ = writeln!(
                text,
                "{name}: {} stacks in {:.1} s",
                one.samples(),
                one.observed.secs_f64()
            );
            for line in one.core_lines() {
                let _ = writeln!(text, "  {line}");
            }
            let _ = writeln!(text, "  {:<46} {:>8} {:>14}", "function", "own", "with callees");
            for function in one.functions(MOST_LINES) {
                let name: String = clean(function.name).chars().take(46).collect();
                let _ = writeln!(
                    text,
                    "  {name:<46} {:>6.1} % {:>12.1} %",
                    function.own, function.with_callees
                );
            }
            if one.lost > 0 {
                let _ = writeln!(text, "  {} further stacks were lost", one.lost);
            }
        }
        let mut length = 0;
        for word in self.cost.split(' ') {
            let between = match length {
                0 => "",
                length if length + word.len() < WIDTH => " ",
                _ => "\n",
            };
            length = if between == "\n" { word.len() } else { length + between.len() + word.len() };
            text.extend([between, word]);
        }
        text.push('\n');
        text
    }

    /// Writes `profile/SYSTEM.folded` and `profile/SYSTEM.svg` into a run's directory.
    pub fn write(&self, directory: &Path) -> Result<(), ReportError> {
        let folder: PathBuf = directory.join(FOLDER);
        // If the folder is a symbolic link, this removes the link and does not follow it.
        let removed = match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => std::fs::create_dir(&folder),
        };
        removed.map_err(|source| ReportError::Write { file: folder.clone(), source })?;
        for one in &self.systems {
            let stem = one.file_stem();
            replace(&folder.join(format!("{stem}.folded")), one.folded().as_bytes())?;
            replace(&folder.join(format!("{stem}.svg")), one.flame_graph().as_bytes())?;
        }
        Ok(())
    }

    pub(crate) fn section(&self) -> Markup {
        html! {
            h2 id="profile" { "Where the CPU time goes" }
            @for one in &self.systems {
                h3 { (foreign(&one.system)) }
                p class="note" {
                    (one.samples()) " stacks in " (format!("{:.1}", one.observed.secs_f64())) " s. "
                    (one.core_lines().join("; ")) "."
                }
                div class="scroll" { (Flame::of(one).render()) }
                div class="scroll" { table {
                    thead { tr {
                        th scope="col" { "function" }
                        th scope="col" { "own, %" }
                        th scope="col" { "with callees, %" }
                    } }
                    tbody {
                        @for function in one.functions(MOST_ROWS) {
                            tr {
                                th scope="row" { code { (clean(function.name)) } }
                                td { (format!("{:.1}", function.own)) }
                                td { (format!("{:.1}", function.with_callees)) }
                            }
                        }
                    }
                } }
            }
            p class="note" {
                "The width of a function is its share of the stacks. " (self.cost) " The stacks are in "
                code { (FOLDER) } " beside this page."
            }
        }
    }
}

/// Cleans a thread's name, which may contain any characters.
fn clean(name: &str) -> String {
    foreign(name).to_string()
}

fn is_softirq(frames: &[Arc<str>]) -> bool {
    frames.iter().any(|name| SOFTIRQS.contains(&name.as_ref()))
}

/// The folder of the profile's files within a run's directory.
pub const FOLDER: &str = "profile";
/// Width of the text, in columns.
const WIDTH: usize = 80;
const MOST_LINES: usize = 12;
const MOST_ROWS: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> SystemProfile {
        let mut one = SystemProfile {
            system: "after it".to_owned(),
            observed: Span::from_millis(100),
            interval: Span::from_millis(1),
            ..SystemProfile::default()
        };
        let stacks: [(usize, &[&str], usize); 3] = [
            (0, &["weir", "[weir]", "do_syscall_64", "udp_sendmsg"], 30),
            (0, &["weir", "[weir]", "do_syscall_64", "udp_sendmsg", "copy"], 10),
            (1, &["ksoftirqd;1", "handle_softirqs", "tcp_gro_receive"], 20),
        ];
        for (cpu, frames, count) in stacks {
            let frames: Vec<Arc<str>> = frames.iter().map(|name| Arc::from(*name)).collect();
            for _ in 0..count {
                one.add(cpu, &frames);
            }
        }
        one
    }

    #[test]
    fn functions_have_their_own_share_and_the_share_of_their_callees() {
        let one = profile();
        let functions = one.functions(2);
        let first = &functions[0];
        let shares = [first.own, first.with_callees].map(f64::round);
        assert_eq!((first.name, shares), ("udp_sendmsg", [50.0, 67.0]));
        assert_eq!(functions[1].name, "tcp_gro_receive");
        assert_eq!(
            one.core_lines(),
            ["CPU 0: 40 % busy, 0 % in softirqs", "CPU 1: 20 % busy, 20 % in softirqs"]
        );
        assert!(one.folded().contains("\nweir;[weir];do_syscall_64;udp_sendmsg 30\n"));
        assert!(one.folded().starts_with("ksoftirqd:1;handle_softirqs;tcp_gro_receive 20\n"));
    }

    #[test]
    fn the_text_fits_80_columns_and_the_files_are_beside_the_report() {
        let run = Profile { systems: vec![profile()], cost: "a sentence of words ".repeat(9) };
        let text = run.text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let directory = tempfile::tempdir().unwrap();
        run.write(directory.path()).unwrap();
        let svg = std::fs::read_to_string(directory.path().join("profile/after_it.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("udp_sendmsg") && svg.ends_with("</svg>"));
    }
}
