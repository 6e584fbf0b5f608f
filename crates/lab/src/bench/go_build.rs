//! The versions that the Go linker writes into a program, as `go version -m` prints them. A program
//! without a version command still tells which libraries it was built with.

use serde_json::{Map, Value};

/// Reads the compiler, the main module and the libraries that carry the data. `None` for a program
/// that is not written in Go, or that was built before Go 1.18.
pub fn versions(program: &[u8]) -> Option<Map<String, Value>> {
    let (blocks, _) = program.as_chunks::<ALIGNMENT>();
    let place = blocks.iter().position(|block| block.starts_with(MAGIC))? * ALIGNMENT;
    let flags = *program.get(place + ALIGNMENT - 1)?;
    if flags & INLINE == 0 {
        return None;
    }
    let (go, rest) = text(program.get(place + HEADER..)?)?;
    let (modules, _) = text(rest)?;
    let mut found = Map::new();
    found.insert("go".to_owned(), String::from_utf8_lossy(go).into());
    // Cut off the 16 bytes that the Go linker puts before and after the list of modules.
    let modules = modules.get(FRAME..modules.len().checked_sub(FRAME)?)?;
    let modules = String::from_utf8_lossy(modules);
    let mut libraries = Vec::new();
    for line in modules.lines() {
        let mut words = line.split('\t');
        let (kind, name, version) = (words.next(), words.next(), words.next());
        match (kind, name, version) {
            (Some("mod"), Some(name), Some(version)) => {
                found.insert("module".to_owned(), format!("{name} {version}").into());
            }
            (Some("dep"), Some(name), Some(version)) if name.contains("quic") => {
                libraries.push(Value::from(format!("{name} {version}")));
            }
            _ => {}
        }
    }
    if !libraries.is_empty() {
        found.insert("libraries".to_owned(), libraries.into());
    }
    Some(found)
}

/// Reads a length in base 128 with the lowest digit first (encoding/binary, `Uvarint`), and then a
/// string of this length. Returns the string and the bytes after the string.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0_usize;
    for (place, byte) in bytes.iter().take(MOST_DIGITS).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return bytes.get(place + 1..)?.split_at_checked(length);
        }
    }
    None
}

// Magic bytes that debug/buildinfo of the Go library looks for.
const MAGIC: &[u8] = b"\xff Go buildinf:";
const ALIGNMENT: usize = 16;
const HEADER: usize = 32;
const INLINE: u8 = 2;
const FRAME: usize = 16;
/// Maximum number of digits of a length. Four digits hold 28 bits, which is more than the length of
/// any list.
const MOST_DIGITS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn program(modules: &str) -> Vec<u8> {
        let modules = [&[7; FRAME][..], modules.as_bytes(), &[7; FRAME]].concat();
        let length = modules.len();
        let digits = [(length & 0x7f) as u8 | 0x80, (length >> 7) as u8];
        let header = [MAGIC, &[8, INLINE], &[0; 16]].concat();
        [&[0; 48][..], &header, &[6], b"go1.22", &digits, &modules].concat()
    }

    const MODULES: &str = "path\texample/cmd\nmod\texample\tv1.2.0\th1:x\n\
                           dep\tgithub.com/quic-go/quic-go\tv0.65.0\th1:y\ndep\tother\tv1\th1:z\n";

    #[test]
    fn a_go_program_reports_its_compiler_and_its_quic_library() {
        let found = versions(&program(MODULES)).unwrap();
        assert_eq!(found["go"], "go1.22");
        assert_eq!(found["module"], "example v1.2.0");
        assert_eq!(found["libraries"], serde_json::json!(["github.com/quic-go/quic-go v0.65.0"]));
    }

    #[test]
    fn damaged_and_non_go_programs_have_no_versions() {
        assert_eq!(versions(b"\x7fELF and no more"), None);
        let whole = program(MODULES);
        for length in 0..whole.len() {
            assert_eq!(versions(&whole[..length]), None, "{length}");
        }
        for place in 48..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] = 0xff;
            let _ = versions(&damaged);
        }
    }
}
