//! The full data of a run in one file, a compressed tar archive.

use flate2::{Compression, GzBuilder};
use std::io;

/// Packs files, given as names and bytes. The same files in any order give the same archive, which
/// has no times and no owners.
pub fn pack(files: &[(&str, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let mut files: Vec<_> = files.iter().collect();
    files.sort();
    let compressed = GzBuilder::new().write(Vec::new(), Compression::best());
    let mut archive = tar::Builder::new(compressed);
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, bytes.as_slice())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_same_files_give_the_same_bytes_in_any_order() {
        let (a, b) = (("a", b"1".to_vec()), ("b", vec![0; 100_000]));
        let packed = pack(&[a.clone(), b.clone()]).unwrap();
        assert_eq!(packed, pack(&[b, a]).unwrap());
        assert!(packed.len() < 1_000, "{}", packed.len());
        // The header has no time and no file name (RFC 1952, 2.3.1).
        assert_eq!(packed[3..8], [0; 5]);
    }

    #[test]
    fn an_archive_holds_each_file_whole() {
        let packed = pack(&[("results.json", b"{}".to_vec()), ("lab.toml", Vec::new())]).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let read = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (entry.path().unwrap().to_string_lossy().into_owned(), text)
        });
        let expected = [("lab.toml", ""), ("results.json", "{}")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(read.collect::<Vec<_>>(), expected);
    }
}
