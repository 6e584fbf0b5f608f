//! iperf3's file of users: lines of `name,hash`, where the hash is SHA-256 of `{name}password`.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;
use std::io::Read;
use std::path::Path;

#[derive(Debug)]
pub(super) struct User {
    name: String,
    /// 64 hexadecimal digits.
    hash: String,
}

/// Reads all users; an error is a message for the server's log.
pub(super) fn read(file: &Path) -> Result<Vec<User>, String> {
    let name = file.display();
    let mut text = String::new();
    host::open_regular_file(file)
        .and_then(|file| file.take(LONGEST).read_to_string(&mut text))
        .map_err(|error| format!("{name} cannot be read: {error}: name another file of users"))?;
    let users = parse(&text).map_err(|line| {
        format!("{name}:{line}: is no user: write NAME,HASH, where HASH is SHA-256 of {{NAME}}PASSWORD in hex")
    })?;
    if users.is_empty() {
        return Err(format!("{name} names no user: write a line of NAME,HASH for each"));
    }
    Ok(users)
}

/// True if a user has this name and password. Every line is compared, even after a match.
pub(super) fn has(users: &[User], name: &str, password: &str) -> bool {
    let hash = digest::digest(&digest::SHA256, format!("{{{name}}}{password}").as_bytes());
    let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let same = |a: &str, b: &str| verify_slices_are_equal(a.as_bytes(), b.as_bytes()).is_ok();
    users
        .iter()
        .fold(false, |found, user| found | (same(&user.hash, &hash) & same(&user.name, name)))
}

/// Parses the lines of the file; skips empty lines and comments. `Err` is the number of an invalid
/// line.
fn parse(text: &str) -> Result<Vec<User>, usize> {
    let lines = (1..).zip(text.lines().map(str::trim_end));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(number, line)| user(line).ok_or(number)).collect()
}

fn user(line: &str) -> Option<User> {
    let (name, hash) = line.split_once(',')?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
    let name = (!name.is_empty() && is_hash).then(|| name.to_owned())?;
    Some(User { name, hash: hash.to_ascii_lowercase() })
}

/// Maximum size of a file: the rest of a larger file is not read.
const LONGEST: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf '{mario}rossi' | sha256sum`, from iperf3's manual.
    const MARIO: &str = "mario,bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b";

    #[test]
    fn a_user_is_accepted_with_a_line_in_the_file_and_its_password() {
        let text = format!("# users\r\n\r\n{MARIO}\r\n");
        let users = parse(&text).unwrap();
        assert!(has(&users, "mario", "rossi"));
        for (name, password) in [("mario", "Rossi"), ("mari", "o}rossi"), ("", "")] {
            assert!(!has(&users, name, password), "{name}");
        }
    }

    #[test]
    fn an_invalid_line_is_reported_by_number() {
        assert_eq!(parse(&format!("{MARIO}\nmario,secret\n")).unwrap_err(), 2);
        assert_eq!(parse("mario").unwrap_err(), 1);
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert!(read(empty.path()).unwrap_err().contains("names no user"));
        assert!(read(Path::new("/no/file")).unwrap_err().contains("cannot be read"));
    }
}
