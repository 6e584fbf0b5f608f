//! Writes JSON for reading and diffs: each entry on its own line, an array of numbers on one line.

use serde_json::Value;
use std::fmt::Write;

pub(super) fn lines(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, 0);
    out.push('\n');
    out
}

fn write(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('{');
            for (place, (key, value)) in map.iter().enumerate() {
                start(out, place, depth + 1);
                let _ = write!(out, "{}: ", Value::from(key.as_str()));
                write(out, value, depth + 1);
            }
            start(out, 0, depth);
            out.push('}');
        }
        Value::Array(values)
            if values.iter().any(|value| value.is_object() || value.is_array()) =>
        {
            out.push('[');
            for (place, value) in values.iter().enumerate() {
                start(out, place, depth + 1);
                write(out, value, depth + 1);
            }
            start(out, 0, depth);
            out.push(']');
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
}

fn start(out: &mut String, place: usize, depth: usize) {
    if place > 0 {
        out.push(',');
    }
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn arrays_of_numbers_stay_on_one_line() {
        let text = lines(&json!({"a": [1, null, 2.5], "b": [{"c": "x\"y"}], "d": {}, "e": []}));
        let expected = "{\n  \"a\": [1,null,2.5],\n  \"b\": [\n    {\n      \"c\": \"x\\\"y\"\n    }\n  ],\n  \
                        \"d\": {},\n  \"e\": []\n}\n";
        assert_eq!(text, expected);
    }

    proptest! {
        #[test]
        fn the_layout_does_not_change_the_json(texts in proptest::collection::vec(".*", 0..5), number in any::<i64>()) {
            let value = json!({"t": texts, "n": [{"x": number}, [number, [number]]]});
            prop_assert_eq!(serde_json::from_str::<Value>(&lines(&value)).unwrap(), value);
        }
    }
}
