//! The rows of the monitored tables, and their changes.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value as Json;

use crate::value::{Atom, Uuid, Value, WrongValue};

/// The monitored columns of a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    columns: HashMap<String, Value>,
}

/// The monitored rows of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Database {
    tables: HashMap<String, BTreeMap<Uuid, Row>>,
}

impl Database {
    /// Applies all changes of a `<table-updates>` (RFC 7047, section 4.1.6). If a change is
    /// malformed, applies no change.
    pub fn apply(&mut self, updates: &Json) -> Result<(), WrongValue> {
        let mut changes = Vec::new();
        for (table, rows) in updates.as_object().ok_or(WrongValue)? {
            for (id, change) in rows.as_object().ok_or(WrongValue)? {
                let id = Uuid::parse(id).ok_or(WrongValue)?;
                let new = change.as_object().ok_or(WrongValue)?.get("new");
                let new = new.filter(|new| !new.is_null()).map(columns).transpose()?;
                changes.push((table, id, new));
            }
        }
        for (table, id, new) in changes {
            let rows = self.tables.entry(table.clone()).or_default();
            match new {
                // The update lacks the columns that the session reads only once. These columns keep
                // their values.
                Some(new) => rows.entry(id).or_default().columns.extend(new),
                None => drop(rows.remove(&id)),
            }
        }
        Ok(())
    }

    /// Adds columns to existing rows. `rows` is the result of a `select` with the column `_uuid`
    /// (RFC 7047, section 5.2.2).
    pub fn complete(&mut self, table: &str, rows: &Json) -> Result<(), WrongValue> {
        for row in rows.as_array().ok_or(WrongValue)? {
            let mut columns = columns(row)?;
            let id = match columns.remove("_uuid") {
                Some(Value::Set(members)) => members.into_iter().next(),
                _ => None,
            };
            let Some(Atom::Row(id)) = id else { return Err(WrongValue) };
            if let Some(known) = self.tables.get_mut(table).and_then(|rows| rows.get_mut(&id)) {
                known.columns.extend(columns);
            }
        }
        Ok(())
    }

    pub fn rows(&self, table: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        self.tables.get(table).into_iter().flatten().map(|(id, row)| (*id, row))
    }

    #[must_use]
    pub fn row(&self, table: &str, id: Uuid) -> Option<&Row> {
        self.tables.get(table)?.get(&id)
    }

    /// Returns the row of a table that has at most one row.
    #[must_use]
    pub fn single(&self, table: &str) -> Option<(Uuid, &Row)> {
        self.rows(table).next()
    }

    /// Returns the rows of `table` that a column of a row refers to, with their UUIDs.
    pub fn referred<'a>(
        &'a self,
        row: &'a Row,
        column: &'a str,
        table: &'a str,
    ) -> impl Iterator<Item = (Uuid, &'a Row)> {
        row.rows(column).filter_map(move |id| Some((id, self.row(table, id)?)))
    }
}

impl Row {
    #[must_use]
    pub fn text(&self, column: &str) -> Option<&str> {
        self.first(column)?.text()
    }

    #[must_use]
    pub fn integer(&self, column: &str) -> Option<i64> {
        match self.first(column)? {
            Atom::Integer(number) => Some(*number),
            _ => None,
        }
    }

    #[must_use]
    pub fn flag(&self, column: &str) -> bool {
        self.first(column) == Some(&Atom::Boolean(true))
    }

    /// Returns the members of a set.
    pub fn members(&self, column: &str) -> impl Iterator<Item = &Atom> {
        match self.columns.get(column) {
            Some(Value::Set(members)) => Some(members),
            _ => None,
        }
        .into_iter()
        .flatten()
    }

    pub fn integers(&self, column: &str) -> impl Iterator<Item = i64> {
        self.members(column).filter_map(|member| match member {
            Atom::Integer(number) => Some(*number),
            _ => None,
        })
    }

    /// Returns the UUIDs of the rows that a set, or the values of a map, refer to.
    pub fn rows(&self, column: &str) -> impl Iterator<Item = Uuid> {
        let members = self.members(column);
        members.chain(self.pairs(column).map(|(_, value)| value)).filter_map(|atom| match atom {
            Atom::Row(id) => Some(*id),
            _ => None,
        })
    }

    pub fn pairs(&self, column: &str) -> impl Iterator<Item = (&Atom, &Atom)> {
        match self.columns.get(column) {
            Some(Value::Map(pairs)) => Some(pairs),
            _ => None,
        }
        .into_iter()
        .flatten()
    }

    /// Returns the value of `key` in a column that maps strings to strings.
    #[must_use]
    pub fn entry(&self, column: &str, key: &str) -> Option<&str> {
        match self.columns.get(column) {
            Some(Value::Map(pairs)) => pairs.get(&Atom::from(key))?.text(),
            _ => None,
        }
    }

    fn first(&self, column: &str) -> Option<&Atom> {
        self.members(column).next()
    }
}

fn columns(row: &Json) -> Result<HashMap<String, Value>, WrongValue> {
    let columns = row.as_object().ok_or(WrongValue)?;
    columns.iter().map(|(name, value)| Ok((name.clone(), Value::parse(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "4a2a6ed5-c59f-4e8a-b922-f54d07efc5ba";

    #[test]
    fn updates_insert_change_and_delete_rows() {
        let mut database = Database::default();
        let mut apply = |row: Json| {
            database.apply(&json!({ "Bridge": { ID: row } })).unwrap();
            database.clone()
        };
        let first = apply(json!({ "new": { "name": "br0", "ports": ["set", []] } }));
        let (id, row) = first.single("Bridge").unwrap();
        assert_eq!((id.to_string().as_str(), row.text("name")), (ID, Some("br0")));
        let changed = apply(json!({ "old": { "ports": ["set", []] }, "new": {
            "name": "br0", "ports": ["uuid", ID], "other_config": ["map", [["a", "b"]]] } }));
        let row = changed.single("Bridge").unwrap().1;
        assert_eq!(row.rows("ports").count(), 1);
        assert_eq!(row.entry("other_config", "a"), Some("b"));
        assert_eq!(apply(json!({ "old": { "name": "br0" } })).single("Bridge"), None);
    }

    #[test]
    fn a_malformed_update_changes_nothing() {
        let mut database = Database::default();
        database.apply(&json!({ "Bridge": { ID: { "new": { "name": "br0" } } } })).unwrap();
        let before = database.clone();
        for updates in [
            json!([]),
            json!({ "Bridge": 1 }),
            json!({ "Bridge": { "x": {} } }),
            json!({ "Bridge": { ID: { "old": {} } }, "Port": { ID: { "new": { "name": null } } } }),
        ] {
            assert_eq!(database.apply(&updates), Err(WrongValue), "{updates}");
            assert_eq!(database, before);
        }
    }
}
