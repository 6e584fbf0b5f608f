//! A check of a Kubernetes manifest: the fields of a Job and of a ConfigMap that an exported job
//! has, with their types and limits (the API reference of batch/v1 and core/v1, release 1.30).
//! Every other field is a mistake, because the API server drops or refuses a field that it does not
//! know.

use saphyr_parser::{Event, Parser, ScalarStyle};

/// Returns the mistakes of all documents, each with its path.
pub(super) fn mistakes(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    for document in documents(manifest) {
        match document.field("kind").and_then(Node::text) {
            Some("Job") => {
                object(&document, "Job", JOB, &mut found);
                job(&document, &mut found);
            }
            Some("ConfigMap") => object(&document, "ConfigMap", CONFIG_MAP, &mut found),
            other => found.push(format!("kind: {other:?}")),
        }
    }
    found
}

/// A value of a YAML document.
#[derive(Debug)]
enum Node {
    /// The text of a scalar, and whether the scalar is quoted or a block.
    Scalar(String, bool),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

/// The name of a field, its kind, and whether the object needs the field.
type Field = (&'static str, Kind, bool);

#[derive(Clone, Copy)]
enum Kind {
    /// A text of this list.
    Word(&'static [&'static str]),
    Text,
    Count,
    /// A quantity of Kubernetes: a number of CPUs or bytes.
    Quantity,
    /// A name of RFC 1123: a label, or labels with dots between them.
    Label,
    Subdomain,
    /// An absolute path without a colon.
    Path,
    /// Texts of any name: the files of a ConfigMap.
    Files,
    Texts,
    Object(&'static [Field]),
    Objects(&'static [Field]),
}

const JOB: &[Field] = &[
    ("apiVersion", Kind::Word(&["batch/v1"]), true),
    ("kind", Kind::Word(&["Job"]), true),
    ("metadata", Kind::Object(&[("name", Kind::Label, true)]), true),
    ("spec", Kind::Object(JOB_SPEC), true),
];
const JOB_SPEC: &[Field] = &[
    ("completionMode", Kind::Word(&["NonIndexed", "Indexed"]), false),
    ("completions", Kind::Count, false),
    ("parallelism", Kind::Count, false),
    ("backoffLimit", Kind::Count, false),
    ("template", Kind::Object(&[("spec", Kind::Object(POD_SPEC), true)]), true),
];
const POD_SPEC: &[Field] = &[
    ("restartPolicy", Kind::Word(&["Never", "OnFailure"]), true),
    ("containers", Kind::Objects(CONTAINER), true),
    ("volumes", Kind::Objects(VOLUME), false),
];
const CONTAINER: &[Field] = &[
    ("name", Kind::Label, true),
    ("image", Kind::Text, true),
    ("command", Kind::Texts, false),
    ("resources", Kind::Object(&[("requests", Kind::Object(REQUESTS), false)]), false),
    ("volumeMounts", Kind::Objects(MOUNT), false),
];
const REQUESTS: &[Field] = &[("cpu", Kind::Quantity, false), ("memory", Kind::Quantity, false)];
const MOUNT: &[Field] = &[("name", Kind::Label, true), ("mountPath", Kind::Path, true)];
const VOLUME: &[Field] = &[
    ("name", Kind::Label, true),
    ("persistentVolumeClaim", Kind::Object(&[("claimName", Kind::Subdomain, true)]), false),
    ("configMap", Kind::Object(&[("name", Kind::Subdomain, true)]), false),
];
const CONFIG_MAP: &[Field] = &[
    ("apiVersion", Kind::Word(&["v1"]), true),
    ("kind", Kind::Word(&["ConfigMap"]), true),
    ("metadata", Kind::Object(&[("name", Kind::Subdomain, true)]), true),
    ("data", Kind::Files, false),
];

impl Node {
    fn field(&self, name: &str) -> Option<&Self> {
        let Self::Map(fields) = self else { return None };
        fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// Returns a text. A plain scalar may also be a number, a truth value or nothing.
    fn text(&self) -> Option<&str> {
        let Self::Scalar(text, is_quoted) = self else { return None };
        let is_other = text.parse::<f64>().is_ok()
            || ["", "~", "null", "true", "false", "yes", "no", "on", "off"]
                .contains(&text.to_lowercase().as_str());
        (*is_quoted || !is_other).then_some(text)
    }

    fn count(&self) -> Option<u32> {
        match self {
            Self::Scalar(text, false) => text.parse().ok(),
            _ => None,
        }
    }

    fn list(&self) -> &[Self] {
        if let Self::List(all) = self { all } else { &[] }
    }
}

impl Kind {
    fn is_met(self, value: &Node) -> bool {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let label = |text: &str| {
            (1..=63).contains(&text.len())
                && text.chars().all(plain)
                && !text.starts_with('-')
                && !text.ends_with('-')
        };
        let text = value.text();
        match self {
            Self::Word(words) => text.is_some_and(|text| words.contains(&text)),
            Self::Text => text.is_some_and(|text| !text.trim().is_empty()),
            Self::Count => value.count().is_some(),
            Self::Quantity => {
                let Node::Scalar(text, _) = value else { return false };
                let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let unit = &text[number.len()..];
                number.parse::<f64>().is_ok_and(|number| number > 0.0)
                    && ["", "m", "k", "M", "G", "Ki", "Mi", "Gi"].contains(&unit)
            }
            Self::Label => text.is_some_and(label),
            Self::Subdomain => text.is_some_and(|t| t.len() <= 253 && t.split('.').all(label)),
            Self::Path => text.is_some_and(|text| text.starts_with('/') && !text.contains(':')),
            Self::Files => {
                let Node::Map(files) = value else { return false };
                let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                let named = |name: &str| name.chars().all(plain) && (1..=253).contains(&name.len());
                let size: usize =
                    files.iter().filter_map(|(_, file)| file.text()).map(str::len).sum();
                let all_texts =
                    files.iter().all(|(name, file)| named(name) && file.text().is_some());
                all_texts && size <= 1 << 20
            }
            Self::Texts => {
                !value.list().is_empty() && value.list().iter().all(|one| one.text().is_some())
            }
            Self::Object(_) => matches!(value, Node::Map(_)),
            Self::Objects(_) => value.list().iter().all(|one| matches!(one, Node::Map(_))),
        }
    }
}

fn object(value: &Node, at: &str, fields: &[Field], found: &mut Vec<String>) {
    let Node::Map(entries) = value else { return };
    for (name, _, is_needed) in fields {
        if *is_needed && value.field(name).is_none() {
            found.push(format!("{at}.{name} is missing"));
        }
    }
    for (place, (name, entry)) in entries.iter().enumerate() {
        let at = format!("{at}.{name}");
        if entries[..place].iter().any(|(former, _)| former == name) {
            found.push(format!("{at} appears twice"));
        }
        let Some((_, kind, _)) = fields.iter().find(|(known, ..)| known == name) else {
            found.push(format!("{at} is no field"));
            continue;
        };
        if !kind.is_met(entry) {
            found.push(format!("{at} has the wrong value {entry:?}"));
        }
        match kind {
            Kind::Object(fields) => object(entry, &at, fields, found),
            Kind::Objects(fields) => {
                entry.list().iter().for_each(|one| object(one, &at, fields, found));
            }
            _ => {}
        }
    }
}

/// Checks the limits that concern several fields of a Job.
fn job(job: &Node, found: &mut Vec<String>) {
    let Some(spec) = job.field("spec") else { return };
    let count = |name: &str| spec.field(name).and_then(Node::count);
    if spec.field("completionMode").and_then(Node::text) == Some("Indexed") {
        let (completions, parallelism) = (count("completions"), count("parallelism").unwrap_or(1));
        match completions {
            None => found.push("an Indexed Job needs completions".to_owned()),
            Some(completions) => {
                if completions > 100_000 && parallelism > 10_000 {
                    found.push("too many pods at once".to_owned());
                }
                let name =
                    job.field("metadata").and_then(|metadata| metadata.field("name")?.text());
                // The host name of a pod is the name of the job and the index of the pod.
                let host =
                    format!("{}-{}", name.unwrap_or_default(), completions.saturating_sub(1));
                if !Kind::Label.is_met(&Node::Scalar(host.clone(), true)) {
                    found.push(format!("`{host}` is no host name"));
                }
            }
        }
    }
    let Some(pod) = spec.field("template").and_then(|template| template.field("spec")) else {
        return;
    };
    let names = |list: Option<&Node>| -> Vec<String> {
        let all = list.map(Node::list).unwrap_or_default().iter();
        all.filter_map(|one| Some(one.field("name")?.text()?.to_owned())).collect()
    };
    let volumes = names(pod.field("volumes"));
    for volume in pod.field("volumes").map(Node::list).unwrap_or_default() {
        let sources = ["persistentVolumeClaim", "configMap"];
        if sources.iter().filter(|source| volume.field(source).is_some()).count() != 1 {
            found.push("a volume has one source".to_owned());
        }
    }
    if pod.field("containers").is_some_and(|all| all.list().is_empty()) {
        found.push("a pod has a container".to_owned());
    }
    for container in pod.field("containers").map(Node::list).unwrap_or_default() {
        for mounted in names(container.field("volumeMounts")) {
            if !volumes.contains(&mounted) {
                found.push(format!("no volume `{mounted}`"));
            }
        }
    }
}

fn documents(text: &str) -> Vec<Node> {
    let mut events = Parser::new_from_str(text).map(|event| event.unwrap().0);
    let mut all = Vec::new();
    while let Some(event) = events.next() {
        if !matches!(
            event,
            Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd
        ) {
            all.push(node(event, &mut events));
        }
    }
    all
}

fn node<'a>(first: Event<'a>, events: &mut impl Iterator<Item = Event<'a>>) -> Node {
    match first {
        Event::Scalar(text, style, ..) => {
            Node::Scalar(text.into_owned(), style != ScalarStyle::Plain)
        }
        Event::SequenceStart(..) => {
            let mut all = Vec::new();
            loop {
                match events.next().unwrap() {
                    Event::SequenceEnd => return Node::List(all),
                    event => all.push(node(event, events)),
                }
            }
        }
        Event::MappingStart(..) => {
            let mut all = Vec::new();
            loop {
                match events.next().unwrap() {
                    Event::MappingEnd => return Node::Map(all),
                    event => {
                        let Node::Scalar(key, _) = node(event, events) else {
                            panic!("a key is a text")
                        };
                        let value = events.next().unwrap();
                        all.push((key, node(value, events)));
                    }
                }
            }
        }
        other => panic!("{other:?}"),
    }
}
