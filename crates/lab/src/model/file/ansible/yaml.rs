//! The YAML form of an inventory: nested groups with `hosts`, `vars` and `children`.

use super::{Inventory, Variables};
use saphyr_parser::{Event, Parser};

pub(super) fn parse(text: &str) -> Result<Inventory, String> {
    let mut reader = Reader { parser: Parser::new_from_str(text), nodes: 0 };
    let mut all = Inventory::default();
    loop {
        match reader.next()? {
            Event::StreamStart | Event::DocumentStart(_) => {}
            Event::StreamEnd => return Ok(all),
            first => {
                let root = reader.node(first, 0)?;
                for (name, group) in root.map("an inventory")? {
                    if name == "_meta" {
                        let text =
                            "it is the output of ansible-inventory --list in JSON: add --yaml";
                        return Err(text.to_owned());
                    }
                    add_group(&mut all, name, group)?;
                }
                return Ok(all);
            }
        }
    }
}

/// A YAML value. The elements of a list are dropped.
enum Node {
    Scalar(String),
    Map(Vec<(String, Node)>),
    List,
}

impl Node {
    fn map(&self, what: &str) -> Result<&[(String, Self)], String> {
        match self {
            Self::Map(entries) => Ok(entries),
            // A key without a value stands for an empty map.
            Self::Scalar(text) if text.is_empty() => Ok(&[]),
            Self::Scalar(_) | Self::List => Err(format!("{what} is a map of names")),
        }
    }
}

fn add_group(all: &mut Inventory, name: &str, group: &Node) -> Result<(), String> {
    let of = |part: &str| format!("`{part}` of the group `{name}`");
    all.groups.entry(name.to_owned()).or_default();
    for (part, value) in group.map(&format!("the group `{name}`"))? {
        match part.as_str() {
            "hosts" => {
                for (host, own) in value.map(&of("hosts"))? {
                    let own = variables(own, &format!("the host `{host}`"))?;
                    all.add(name, host, &own)?;
                }
            }
            "vars" => {
                let own = variables(value, &of("vars"))?;
                all.groups.entry(name.to_owned()).or_default().variables.extend(own);
            }
            "children" => {
                for (child, own) in value.map(&of("children"))? {
                    let group = all.groups.entry(name.to_owned()).or_default();
                    group.children.push(child.clone());
                    add_group(all, child, own)?;
                }
            }
            other => {
                return Err(format!("the group `{name}` has `{other}`: hosts, vars or children"));
            }
        }
    }
    Ok(())
}

/// Returns the variables with a plain text as value. Only plain texts can say how ssh reaches a
/// host.
fn variables(node: &Node, what: &str) -> Result<Variables, String> {
    let plain = |(name, value): &(String, Node)| match value {
        Node::Scalar(text) => Some((name.clone(), text.clone())),
        Node::Map(_) | Node::List => None,
    };
    Ok(node.map(what)?.iter().filter_map(plain).collect())
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>, String> {
        self.nodes += 1;
        match self.parser.next_event() {
            _ if self.nodes > MOST_NODES => Err("it has too many values".to_owned()),
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => {
                let line = error.marker().line().max(1);
                Err(format!("line {line}: it is no YAML: {}", error.info()))
            }
            None => Ok(Event::StreamEnd),
        }
    }

    fn node(&mut self, first: Event<'a>, depth: usize) -> Result<Node, String> {
        if depth > DEEPEST {
            return Err("its values are nested too deeply".to_owned());
        }
        match first {
            Event::Scalar(text, ..) => {
                let is_empty = matches!(&*text, "~" | "null");
                Ok(Node::Scalar(if is_empty { String::new() } else { text.into_owned() }))
            }
            Event::SequenceStart(..) => loop {
                match self.next()? {
                    Event::SequenceEnd => return Ok(Node::List),
                    item => self.node(item, depth + 1)?,
                };
            },
            Event::MappingStart(..) => {
                let mut entries = Vec::new();
                loop {
                    let key = match self.next()? {
                        Event::MappingEnd => return Ok(Node::Map(entries)),
                        key => self.node(key, depth + 1)?,
                    };
                    let value = self.next()?;
                    let value = self.node(value, depth + 1)?;
                    if let Node::Scalar(key) = key {
                        entries.push((key, value));
                    }
                }
            }
            Event::Alias(_) => {
                Err("aliases (`*name`) are not read: write the values out".to_owned())
            }
            _ => Err("it ends early".to_owned()),
        }
    }
}

const DEEPEST: usize = 64;
const MOST_NODES: usize = 1_000_000;
