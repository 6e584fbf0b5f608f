//! `[[population]]`: paths that a generator makes, as links of the lab.

use super::locate::FileError;
use super::schema::{Document, LinkSpec};
use crate::model::population::PopulationKind;
use settings::{leaves, table};
use toml::Spanned;

table! {
    /// A population: the links `NAME1` to `NAMEn`, each from one host to a client with the link's
    /// name. The word `NAME` stands for all these links.
    #[derive(Debug, Clone)]
    pub struct PopulationSpec {
        pub name: Spanned<String>,
        pub kind: PopulationKind,
        pub from: Spanned<String>,
        pub paths: Spanned<u32>,
    }
}

/// The parts of a document that a generator made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Generated {
    links: usize,
    hosts: usize,
    notes: usize,
}

table! {
    struct Links {
        link: Vec<Spanned<LinkSpec>>,
    }
}

leaves!(PopulationKind);

impl Document {
    /// Makes the populations' links and the worlds of the document's seed. The new links and worlds
    /// replace the links and worlds of another seed.
    pub(crate) fn populate(&mut self) -> Result<(), FileError> {
        self.draw_worlds()?;
        let Generated { links, hosts, notes } = self.generated;
        self.link.truncate(self.link.len() - links);
        self.hosts.truncate(self.hosts.len() - hosts);
        self.notes.truncate(self.notes.len() - notes);
        self.generated = Generated::default();
        for spec in self.population.clone() {
            let place = spec.span();
            let spec = spec.into_inner();
            let name = spec.name.get_ref();
            if !(1..=MOST_PATHS).contains(spec.paths.get_ref()) {
                let message = format!("a population has from 1 to {MOST_PATHS} paths");
                return Err(self.source.error(spec.paths.span(), message));
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(plain) {
                let message = format!(
                    "a population's name is made of at most {LONGEST_NAME} letters, digits and `-`"
                );
                return Err(self.source.error(spec.name.span(), message));
            }
            let paths = spec.kind.paths(*spec.paths.get_ref(), self.seed);
            let names: Vec<String> = (1..=paths.len()).map(|n| format!("{name}{n}")).collect();
            let tables = paths.iter().zip(&names);
            let text: String =
                tables.map(|(path, name)| path.as_link(name, spec.from.get_ref())).collect();
            let made: Links = settings::parse(&text).map_err(|mistake| {
                let message = format!("the population failed: {}", mistake.what);
                self.source.error(spec.from.span(), message)
            })?;
            // The generated text has no position in the file, so messages point to the population.
            let placed = |link: Spanned<LinkSpec>| Spanned::new(place.clone(), link.into_inner());
            self.link.extend(made.link.into_iter().map(placed));
            self.hosts.extend(names.iter().map(|name| Spanned::new(place.clone(), name.clone())));
            let word = Spanned::new(place.clone(), names.join(","));
            self.words.insert(Spanned::new(place.clone(), name.clone()), word);
            let seed = match spec.kind.is_random() {
                true => format!(", seed {}", self.seed),
                false => String::new(),
            };
            let described: Vec<String> = names
                .iter()
                .zip(&paths)
                .map(|(n, path)| format!("{n} {}", path.describe()))
                .collect();
            self.notes.push(format!("Population {name}{seed}: {}.", described.join("; ")));
            self.generated.links += paths.len();
            self.generated.hosts += paths.len();
            self.generated.notes += 1;
        }
        Ok(())
    }

    /// Whether another seed makes other paths or worlds.
    pub fn is_drawn(&self) -> bool {
        self.draw.is_some() || self.population.iter().any(|spec| spec.get_ref().kind.is_random())
    }
}

const MOST_PATHS: u32 = 64;
/// Maximum length of a population's name. A longer name of a host does not fit into the name of the
/// host's namespace.
const LONGEST_NAME: usize = 12;

#[cfg(test)]
mod tests {
    use crate::bench::LabFile;

    const LAB: &str = r#"
name = "x"
hosts = ["server"]
seed = 5
[axes]
path = ["drawn", "access"]
[[population]]
name = "drawn"
kind = "drawn"
from = "server"
paths = 3
[[population]]
name = "access"
kind = "access"
from = "server"
paths = 2
[workload]
kind = "download"
from = "server"
via = "{path}"
size = "640KiB"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
repeats = 6
duration = "1s"
"#;

    #[test]
    fn a_population_becomes_links_and_another_seed_draws_other_links() {
        let mut lab = LabFile::parse("x.toml", LAB).unwrap();
        assert_eq!(lab.link.len(), 5);
        assert_eq!(lab.hosts.len(), 6);
        let notes = lab.notes.clone();
        assert!(notes[0].starts_with("Population drawn, seed 5: drawn1 "), "{}", notes[0]);
        lab.set_seed(6).unwrap();
        assert_eq!((lab.link.len(), lab.hosts.len(), lab.notes.len()), (5, 6, 2));
        assert_ne!(lab.notes[0], notes[0]);
        assert_eq!(lab.notes[1], notes[1]);
        lab.set_seed(5).unwrap();
        assert_eq!(lab.notes, notes);
        assert!(lab.is_drawn());
    }

    #[test]
    fn wrong_populations_are_refused() {
        let wrong = |from: &str, to: &str| {
            LabFile::parse("x.toml", &LAB.replacen(from, to, 1)).unwrap_err().to_string()
        };
        assert!(wrong("paths = 3", "paths = 0").contains("from 1 to 64 paths"));
        assert!(wrong("name = \"drawn\"", "name = \"a b\"").contains("letters, digits"));
        assert!(wrong("from = \"server\"", "from = \"sever\"").contains("did you mean `server`?"));
    }
}
