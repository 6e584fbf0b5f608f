//! OVSDB's values (RFC 7047, section 5.1): atoms, sets and maps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value as Json, json};

/// The UUID of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(u128);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    Integer(i64),
    Boolean(bool),
    Text(String),
    Row(Uuid),
}

/// The value of a column. A scalar is a set with one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Set(BTreeSet<Atom>),
    Map(BTreeMap<Atom, Atom>),
}

/// A JSON value that OVSDB does not allow, or whose type no column of the switch has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a value has no type of OVSDB")]
pub struct WrongValue;

impl Uuid {
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let dashes = [8, 13, 18, 23];
        let is_form = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match dashes.contains(&at) {
                true => byte == b'-',
                false => byte.is_ascii_hexdigit(),
            });
        let digits = text.replace('-', "");
        is_form.then(|| u128::from_str_radix(&digits, 16).ok()).flatten().map(Self)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        f.write_str(&parts.join("-"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Atom {
    fn parse(json: &Json) -> Result<Self, WrongValue> {
        Ok(match json {
            Json::Bool(flag) => Self::Boolean(*flag),
            Json::String(text) => Self::Text(text.clone()),
            Json::Number(number) => Self::Integer(number.as_i64().ok_or(WrongValue)?),
            Json::Array(pair) => match pair.as_slice() {
                [Json::String(word), Json::String(id)] if word == "uuid" => {
                    Self::Row(Uuid::parse(id).ok_or(WrongValue)?)
                }
                _ => return Err(WrongValue),
            },
            Json::Null | Json::Object(_) => return Err(WrongValue),
        })
    }

    fn to_json(&self) -> Json {
        match self {
            Self::Integer(number) => json!(number),
            Self::Boolean(flag) => json!(flag),
            Self::Text(text) => json!(text),
            Self::Row(row) => json!(["uuid", row.to_string()]),
        }
    }

    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Atom {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Atom {
    fn from(flag: bool) -> Self {
        Self::Boolean(flag)
    }
}

impl From<i64> for Atom {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<u32> for Atom {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

/// A counter above the largest integer of the database becomes that largest integer.
impl From<u64> for Atom {
    fn from(number: u64) -> Self {
        Self::Integer(number.try_into().unwrap_or(i64::MAX))
    }
}

impl Value {
    /// Returns the empty set, by which OVSDB expresses a missing value.
    #[must_use]
    pub fn none() -> Self {
        Self::Set(BTreeSet::new())
    }

    #[must_use]
    pub fn of(atom: impl Into<Atom>) -> Self {
        Self::Set([atom.into()].into())
    }

    #[must_use]
    pub fn optional(atom: Option<impl Into<Atom>>) -> Self {
        Self::Set(atom.into_iter().map(Into::into).collect())
    }

    #[must_use]
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    pub fn parse(json: &Json) -> Result<Self, WrongValue> {
        if let Json::Array(pair) = json
            && let [Json::String(word), Json::Array(members)] = pair.as_slice()
        {
            match word.as_str() {
                "set" => {
                    let members = members.iter().map(Atom::parse);
                    return members.collect::<Result<_, _>>().map(Self::Set);
                }
                "map" => {
                    let pair = |json: &Json| match json.as_array().map(Vec::as_slice) {
                        Some([key, value]) => Ok((Atom::parse(key)?, Atom::parse(value)?)),
                        _ => Err(WrongValue),
                    };
                    return members.iter().map(pair).collect::<Result<_, _>>().map(Self::Map);
                }
                _ => {}
            }
        }
        Atom::parse(json).map(|atom| Self::Set([atom].into()))
    }

    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Self::Set(members) if members.len() == 1 => {
                members.first().map_or(Json::Null, Atom::to_json)
            }
            Self::Set(members) => {
                json!(["set", members.iter().map(Atom::to_json).collect::<Vec<_>>()])
            }
            Self::Map(pairs) => {
                let pair = |(key, value): (&Atom, &Atom)| json!([key.to_json(), value.to_json()]);
                json!(["map", pairs.iter().map(pair).collect::<Vec<_>>()])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn atom() -> impl Strategy<Value = Atom> {
        prop_oneof![
            any::<i64>().prop_map(Atom::Integer),
            any::<bool>().prop_map(Atom::Boolean),
            any::<String>().prop_map(Atom::Text),
            any::<u128>().prop_map(|number| Atom::Row(Uuid(number))),
        ]
    }

    proptest! {
        #[test]
        fn printed_ovsdb_values_parse_to_the_same_values(
            members in prop::collection::btree_set(atom(), 0..5),
            pairs in prop::collection::btree_map(atom(), atom(), 0..5),
        ) {
            for value in [Value::Set(members), Value::Map(pairs)] {
                let text = value.to_json().to_string();
                let json: Json = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(Value::parse(&json), Ok(value));
            }
        }
    }

    #[test]
    fn json_outside_rfc_7047_is_no_ovsdb_value() {
        for text in ["null", "1.5", "{}", "[]", r#"["uuid","x"]"#, r#"["map",[["a"]]]"#, "[1,2]"] {
            let json = serde_json::from_str(text).unwrap();
            assert_eq!(Value::parse(&json), Err(WrongValue), "{text}");
        }
        let id = "4a2a6ed5-c59f-4e8a-b922-f54d07efc5ba";
        assert_eq!(Uuid::parse(id).unwrap().to_string(), id);
        assert_eq!(Uuid::parse("4a2a6ed5-c59f-4e8a-b922-f54d07efc5b"), None);
        assert_eq!(Uuid::parse("4a2a6ed5-c59f-4e8a-b922-f54d07efc5é"), None);
    }
}
