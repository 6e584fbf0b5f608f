use crate::UnitError;

/// A setting that is on or off. Written `on` or `off`, `true` or `false`, `1` or `0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switch(pub bool);

impl std::str::FromStr for Switch {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "on" | "true" | "1" => Ok(Self(true)),
            "off" | "false" | "0" => Ok(Self(false)),
            _ => Err(UnitError::NoSwitch { text: text.to_owned() }),
        }
    }
}

impl std::fmt::Display for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(if self.0 { "on" } else { "off" })
    }
}

/// Reads a string, a boolean or a number in a file.
impl<'de> serde::Deserialize<'de> for Switch {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyForm;
        impl serde::de::Visitor<'_> for AnyForm {
            type Value = Switch;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true or false")
            }
            fn visit_bool<E: serde::de::Error>(self, on: bool) -> Result<Switch, E> {
                Ok(Switch(on))
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Switch, E> {
                number.to_string().parse().map_err(E::custom)
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Switch, E> {
                number.to_string().parse().map_err(E::custom)
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Switch, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(AnyForm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_parses_from_three_spellings_of_each_value() {
        for (on, off) in [("on", "off"), ("true", "false"), ("1", "0"), (" On", "OFF ")] {
            assert_eq!((on.parse(), off.parse()), (Ok(Switch(true)), Ok(Switch(false))), "{on}");
        }
        for text in ["", "yes", "2", "-1", "onoff"] {
            let message = text.parse::<Switch>().unwrap_err().to_string();
            assert!(message.ends_with("write on or off"), "{message}");
        }
    }
}
