//! The verdict in the document of `weir doctor --json`.

use super::expected::NOTHING;
use serde_json::Value;
use units::Rate;

/// The doctor's verdict, with the names that a lab file can expect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// The first cause, `nothing` if nothing is wrong, or `unclear` if there is not enough
    /// evidence.
    pub(super) first: String,
    /// All causes after the first cause, the most important first.
    pub(super) others: Vec<String>,
    pub(super) sentence: String,
    /// The share that each cause of the busiest flow and of the machine explains.
    pub(super) shares: String,
    /// Each cause that was ruled out or not seen, and why.
    pub(super) against: Vec<(String, String)>,
    /// The rate of the busiest connection.
    pub(super) rate: Option<Rate>,
}

impl Told {
    pub(super) fn read(document: &str) -> Result<Self, String> {
        let document: Value = serde_json::from_str(document).map_err(|error| error.to_string())?;
        let verdict = &document["verdict"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = verdict["kind"].as_str().ok_or("it has no verdict")?;
        let first = match kind {
            "limited" => text(&verdict["cause"]),
            "nothing_wrong" => NOTHING.to_owned(),
            _ => UNCLEAR.to_owned(),
        };
        let others = verdict["causes"].as_array().into_iter().flatten().map(text);
        Ok(Self {
            others: others.filter(|one| *one != first).collect(),
            first,
            sentence: text(&verdict["sentence"]),
            shares: shares(&document),
            against: against(&document),
            rate: document["periods"][0]["flows"][0]["rate"]
                .as_str()
                .and_then(|rate| rate.parse().ok()),
        })
    }
}

fn shares(document: &Value) -> String {
    let periods = || document["periods"].as_array().into_iter().flatten();
    let flow = periods().filter_map(|period| period["flows"].get(0));
    let causes = flow.flat_map(|flow| flow["causes"].as_array()).flatten();
    let machine = periods().filter_map(|period| period["machine"].as_array()).flatten();
    let each = causes.chain(machine).filter_map(|found| {
        let share = found["explains"].as_f64()?;
        Some(format!("{} {share:.2}", found["cause"].as_str()?))
    });
    each.collect::<Vec<_>>().join(", ")
}

fn against(document: &Value) -> Vec<(String, String)> {
    let period = &document["periods"][0];
    let places = [&period["flows"][0], period];
    let lists = places.into_iter().flat_map(|place| [&place["ruled_out"], &place["not_seen"]]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = lists.filter_map(Value::as_array).flatten();
    all.map(|one| (text(&one["cause"]), text(&one["by"]))).collect()
}

const UNCLEAR: &str = "unclear";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limited_healthy_and_unclear_verdicts_are_parsed() {
        let read = |verdict: &str| Told::read(&format!("{{\"verdict\": {verdict}}}"));
        let limited = r#"{"kind": "limited", "cause": "loss", "causes": ["loss", "path"]}"#;
        let told = read(limited).unwrap();
        assert_eq!((told.first.as_str(), told.others), ("loss", vec!["path".to_owned()]));
        let healthy = r#"{"kind": "nothing_wrong", "cause": "application", "causes": []}"#;
        assert_eq!(read(healthy).unwrap().first, NOTHING);
        assert_eq!(read(r#"{"kind": "not_enough_evidence"}"#).unwrap().first, UNCLEAR);
        assert!(read("3").is_err() && Told::read("").is_err());
    }
}
