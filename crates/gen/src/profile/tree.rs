use std::collections::HashMap;

use saphyr_parser::{Event, Input, Parser, ScalarStyle, ScanError};

use super::mistakes::Mistakes;

/// A YAML document with the line of each value.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) value: Node,
}

impl Node {
    /// Reads the first document of a text. A mistake in the YAML syntax ends the reading.
    pub(super) fn read(text: &str, mistakes: &mut Mistakes) -> Option<Self> {
        if text.len() > LONGEST_TEXT {
            mistakes.add(1, format!("the file has more than {} MiB", LONGEST_TEXT >> 20));
            return None;
        }
        let mut open: Vec<Open> = Vec::new();
        let mut nodes = 0usize;
        // The values with an anchor (`&name`), by the parser's anchor numbers, which begin at 1.
        let mut anchors: HashMap<usize, Self> = HashMap::new();
        let mut parser = Parser::new_from_str(text);
        while let Some(event) = parser.next_event() {
            let (event, span) = match event {
                Ok(event) => event,
                Err(error) => {
                    mistakes.add(error.marker().line().max(1), not_yaml(&error));
                    return None;
                }
            };
            let line = span.start.line().max(1);
            nodes += 1;
            if open.len() > DEEPEST || nodes > MOST_NODES {
                mistakes.add(line, TOO_MANY);
                return None;
            }
            let (done, anchor) = match event {
                Event::SequenceStart(anchor, _) => {
                    open.push(Open { line, anchor, kind: Kind::List(Vec::new()) });
                    continue;
                }
                Event::MappingStart(anchor, _) => {
                    open.push(Open { line, anchor, kind: Kind::Map(Vec::new(), None) });
                    continue;
                }
                Event::Scalar(text, style, anchor, _) => {
                    let text = match style {
                        ScalarStyle::Plain if matches!(&*text, "~" | "null") => String::new(),
                        _ => text.into_owned(),
                    };
                    (Node { line, value: Value::Scalar(text) }, anchor)
                }
                Event::Alias(name) => match anchors.get(&name) {
                    Some(node) if nodes + node.size() <= MOST_NODES => {
                        nodes += node.size();
                        (node.clone(), NO_ANCHOR)
                    }
                    Some(_) => {
                        mistakes.add(line, TOO_MANY);
                        return None;
                    }
                    None => {
                        mistakes
                            .add(line, "an alias (`*name`) stands inside the value that it names");
                        return None;
                    }
                },
                Event::SequenceEnd | Event::MappingEnd => {
                    let ended = open.pop()?;
                    let anchor = ended.anchor;
                    (ended.close(), anchor)
                }
                Event::DocumentEnd | Event::StreamEnd => break,
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => continue,
            };
            if anchor != NO_ANCHOR {
                // The copy of an anchored value also counts, because anchored values may contain
                // one another.
                nodes += done.size();
                anchors.insert(anchor, done.clone());
            }
            match open.last_mut() {
                None => return is_alone(&mut parser, mistakes).then_some(done),
                Some(parent) => parent.take(done, mistakes),
            }
        }
        mistakes.add(1, "the file is empty");
        None
    }

    /// Counts the values of the tree, the root included. The recursion has a bound: `n` nested
    /// aliases have `n * n / 2` values in total, which count towards the limit.
    fn size(&self) -> usize {
        match &self.value {
            Value::Scalar(_) => 1,
            Value::List(list) => 1 + list.iter().map(Self::size).sum::<usize>(),
            Value::Map(map) => 1 + map.iter().map(|entry| entry.value.size()).sum::<usize>(),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar(text) if text.is_empty() => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a block of keys",
        }
    }
}

/// Whether the first document is the only document. Otherwise, another document or text that is not
/// YAML follows, and a mistake is reported.
fn is_alone(parser: &mut Parser<'_, impl Input>, mistakes: &mut Mistakes) -> bool {
    while let Some(event) = parser.next_event() {
        match event {
            Ok((Event::Scalar(text, ScalarStyle::Plain, ..), _)) if text.is_empty() => {}
            Ok((Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..), span)) => {
                mistakes
                    .add(span.start.line().max(1), "a second document: move it to another file");
                return false;
            }
            Ok(_) => {}
            Err(error) => {
                mistakes.add(error.marker().line().max(1), not_yaml(&error));
                return false;
            }
        }
    }
    true
}

fn not_yaml(error: &ScanError) -> String {
    format!("this is not YAML: {}", units::foreign(error.info()))
}

struct Open {
    line: usize,
    anchor: usize,
    kind: Kind,
}

enum Kind {
    List(Vec<Node>),
    /// The entries so far, and a key whose value is still missing.
    Map(Vec<Entry>, Option<(String, usize)>),
}

impl Open {
    fn close(self) -> Node {
        let value = match self.kind {
            Kind::List(list) => Value::List(list),
            Kind::Map(map, _) => Value::Map(map),
        };
        Node { line: self.line, value }
    }

    fn take(&mut self, node: Node, mistakes: &mut Mistakes) {
        match &mut self.kind {
            Kind::List(list) => list.push(node),
            Kind::Map(map, waiting) => match waiting.take() {
                Some((key, line)) => map.push(Entry { key, line, value: node }),
                None => {
                    let line = node.line;
                    let key = match node.value {
                        Value::Scalar(text) => text,
                        _ => {
                            mistakes.add(line, "a key is a single word");
                            String::new()
                        }
                    };
                    *waiting = Some((key, line));
                }
            },
        }
    }
}

/// The parser's anchor number for a value without an anchor.
const NO_ANCHOR: usize = 0;
const TOO_MANY: &str = "the document has too many or too deeply nested values";
const LONGEST_TEXT: usize = 8 << 20;
const MOST_NODES: usize = 500_000;
const DEEPEST: usize = 32;
