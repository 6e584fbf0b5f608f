use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use std::collections::HashMap;

/// The names and passwords with which applications log in to a proxy: one `NAME:PASSWORD` per line.
#[derive(Clone, PartialEq, Eq)]
pub struct Users(HashMap<Vec<u8>, Vec<u8>>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UsersError {
    #[error("line {0} is not NAME:PASSWORD with 1 to 255 bytes each")]
    Line(usize),
    #[error("line {0} names a user of an earlier line: remove one of the lines")]
    Again(usize),
    #[error("the file names no user: write one NAME:PASSWORD a line")]
    Nobody,
}

impl Users {
    /// Parses a users file. Empty lines, and lines that begin with `#`, are ignored.
    pub fn parse(text: &str) -> Result<Self, UsersError> {
        let mut all = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, password) = line.split_once(':').ok_or(UsersError::Line(number))?;
            // RFC 1929: a name and a password have 1 to 255 bytes each.
            if [name, password].iter().any(|text| !(1..=255).contains(&text.len())) {
                return Err(UsersError::Line(number));
            }
            if all.insert(name.as_bytes().to_owned(), hash(password.as_bytes())).is_some() {
                return Err(UsersError::Again(number));
            }
        }
        if all.is_empty() { Err(UsersError::Nobody) } else { Ok(Self(all)) }
    }

    /// Whether this is the name's password. The check takes the same time for every password, and
    /// for names that do not exist.
    pub fn admit(&self, name: &[u8], password: &[u8]) -> bool {
        let (given, nobody) = (hash(password), hash(b""));
        let listed = self.0.get(name);
        let is_equal = verify_slices_are_equal(&given, listed.unwrap_or(&nobody)).is_ok();
        is_equal && listed.is_some()
    }
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} users", self.0.len())
    }
}

fn hash(password: &[u8]) -> Vec<u8> {
    digest(&SHA256, password).as_ref().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listed_name_with_its_own_password_is_admitted() {
        let users = Users::parse("# comment\n\nme:x:y\nyou:z\r\n").unwrap();
        assert!(users.admit(b"me", b"x:y") && users.admit(b"you", b"z"));
        for (name, password) in [("me", "z"), ("me", ""), ("", ""), ("he", ""), ("me:x", "y")] {
            assert!(!users.admit(name.as_bytes(), password.as_bytes()), "{name} {password}");
        }
        assert_eq!(format!("{users:?}"), "2 users");
    }

    #[test]
    fn the_error_of_a_users_file_names_the_line() {
        let long = format!("a:{}", "x".repeat(256));
        for (text, error) in [
            ("", UsersError::Nobody),
            ("a:1\nb", UsersError::Line(2)),
            ("a:", UsersError::Line(1)),
            (":b", UsersError::Line(1)),
            (&long, UsersError::Line(1)),
            ("a:1\n#\na:2", UsersError::Again(3)),
        ] {
            assert_eq!(Users::parse(text), Err(error));
        }
    }
}
