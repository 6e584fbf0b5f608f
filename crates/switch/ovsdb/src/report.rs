//! Columns that the switch writes into the database.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value as Json, json};

use crate::value::{Uuid, Value};

/// A row, named by its table and its UUID.
pub type Place = (&'static str, Uuid);

/// The values that the database should have.
#[derive(Debug, Clone, Default)]
pub struct Report {
    rows: BTreeMap<Place, Vec<(&'static str, Value)>>,
}

/// The values that this process has written during its session.
#[derive(Debug, Default)]
pub struct Written {
    columns: HashMap<Place, HashMap<&'static str, Value>>,
}

impl Report {
    pub fn set(&mut self, place: Place, column: &'static str, value: Value) {
        self.rows.entry(place).or_default().push((column, value));
    }
}

impl Written {
    /// Returns the operations that give the database the values of the report, each as JSON text.
    /// Forgets the written values of rows that the report lacks. After a failed transaction, the
    /// caller starts again with [`Written::default`].
    pub fn operations(
        &mut self,
        report: Report,
        has_column: impl Fn(&str, &str) -> bool,
    ) -> Vec<String> {
        self.columns.retain(|place, _| report.rows.contains_key(place));
        let mut operations = Vec::new();
        for (place, columns) in report.rows {
            let known = self.columns.entry(place).or_default();
            let mut row = Map::new();
            for (column, value) in columns {
                if known.get(column) == Some(&value) || !has_column(place.0, column) {
                    continue;
                }
                row.insert(column.to_owned(), value.to_json());
                known.insert(column, value);
            }
            if !row.is_empty() {
                operations.push(update(place, row).to_string());
            }
        }
        operations
    }
}

/// Builds an operation that sets columns of a row.
fn update((table, row): Place, columns: Map<String, Json>) -> Json {
    let uuid = json!(["uuid", row.to_string()]);
    json!({ "op": "update", "table": table, "where": [["_uuid", "==", uuid]], "row": columns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_columns_are_written_to_the_database() {
        let row = Uuid::parse("4a2a6ed5-c59f-4e8a-b922-f54d07efc5ba").unwrap();
        let report = |ofport: i64| {
            let mut report = Report::default();
            report.set(("Interface", row), "ofport", Value::of(ofport));
            report.set(("Interface", row), "error", Value::none());
            report.set(("Interface", row), "unknown", Value::none());
            report
        };
        let mut written = Written::default();
        let mut operations = |report| -> Vec<Json> {
            let texts = written.operations(report, |_, column| column != "unknown");
            texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
        };
        let first = operations(report(1));
        assert_eq!(first[0]["row"], json!({ "ofport": 1, "error": ["set", []] }));
        assert_eq!(first[0]["where"][0][2][1], row.to_string());
        assert!(operations(report(1)).is_empty());
        assert_eq!(operations(report(2))[0]["row"], json!({ "ofport": 2 }));
        assert!(operations(Report::default()).is_empty());
        assert_eq!(operations(report(2))[0]["row"]["ofport"], 2);
    }
}
