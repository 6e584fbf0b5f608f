//! Reads a TOML file into typed tables, and finds all mistakes of the file in one pass.
//!
//! [`table!`] declares a table of a file as a struct: each line names a key, its type and its
//! default. The type of a value implements [`Setting`]; [`leaves!`] implements [`Setting`] for a
//! type that serde reads from a single value.
//!
//! ```
//! use toml::Spanned;
//! use units::Span;
//!
//! settings::table! {
//!     #[derive(Debug)]
//!     struct Form {
//!         duration: Spanned<Span>,
//!         repeats: u32 = 1,
//!         note: Option<String>,
//!     }
//! }
//!
//! let form: Form = settings::parse("duration = \"5s\"").unwrap();
//! assert_eq!((*form.duration.get_ref(), form.repeats), (Span::from_secs(5), 1));
//!
//! let (_, mistakes) = settings::read::<Form>("duration = \"5s\"\nreapets = 6\nnote = 7");
//! let lines: Vec<String> = mistakes
//!     .into_found()
//!     .iter()
//!     .map(|mistake| format!("line {}: {}", mistake.line, mistake.what))
//!     .collect();
//! assert_eq!(
//!     lines,
//!     [
//!         "line 2: unknown key `reapets` (did you mean `repeats`?)",
//!         "line 3: found integer `7`, expected a text in quotes",
//!     ]
//! );
//! ```

mod leaf;
mod mistake;
mod setting;
mod syntax;
mod table;
#[cfg(test)]
mod tests;

pub use leaf::Leaf;
#[doc(hidden)]
pub use leaf::{read_leaf, stand_in};
pub use mistake::{Mistake, Mistakes, What};
pub use setting::{Key, LOST, Node, OneOrMore, Setting, found};
pub use table::Table;
#[doc(hidden)]
pub use table::empty;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads a file without mistakes, or returns its first mistake. A missing key comes last: a mistake
/// in another key may be its cause.
pub fn parse<T: Setting>(text: &str) -> Result<T, Mistake> {
    let (read, mistakes) = read(text);
    let is_missing = |mistake: &Mistake| matches!(mistake.what, What::MissingKey(_));
    match (read, mistakes.into_found().into_iter().min_by_key(is_missing)) {
        (Some(value), None) => Ok(value),
        (_, Some(first)) => Err(first),
        (None, None) => {
            let what = What::Refused("this file cannot be read".to_owned());
            Err(Mistake { place: 0..0, line: 1, what })
        }
    }
}

/// Reads a file that may have mistakes. Stand-ins take the place of values that cannot be read, so
/// that a caller can check the other values. `None`: a value that the file needs has no stand-in.
pub fn read<T: Setting>(text: &str) -> (Option<T>, Mistakes) {
    let mut mistakes = Mistakes::new(text);
    if let Ok(table) = DeTable::parse(text) {
        return (read_root(table, &mut mistakes), mistakes);
    }
    let mended = syntax::mend(text, &mut mistakes);
    let table = mended.as_deref().and_then(|text| DeTable::parse(text).ok());
    (table.and_then(|table| read_root(table, &mut mistakes)), mistakes)
}

/// Returns the line of a position in a text, from 1 on.
pub fn line(text: &str, place: usize) -> usize {
    1 + text.as_bytes()[..place.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

fn read_root<T: Setting>(table: Spanned<DeTable<'_>>, mistakes: &mut Mistakes) -> Option<T> {
    let place = table.span();
    let root = Spanned::new(place, DeValue::Table(table.into_inner()));
    refuse_lost(&root, mistakes);
    T::read(&root, mistakes)
}

/// Refuses the text [`LOST`], which the checks would take for a value that another mistake cost.
fn refuse_lost(root: Node<'_>, mistakes: &mut Mistakes) {
    let reason = || What::Refused("a text of one zero character means nothing here".to_owned());
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        match node.get_ref() {
            DeValue::Table(entries) => {
                for (key, node) in entries.iter() {
                    if **key.get_ref() == *LOST {
                        mistakes.add(key.span(), reason());
                    }
                    open.push(node);
                }
            }
            DeValue::Array(list) => open.extend(list.iter()),
            DeValue::String(text) if **text == *LOST => mistakes.add(node.span(), reason()),
            _ => {}
        }
    }
}
