//! Names of functions by address.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;

use super::symbols::Symbols;
use crate::ProbeError;
use crate::error::read_text;

#[derive(Debug, Default)]
pub struct KernelNames {
    /// Addresses and names, sorted by address.
    functions: Vec<(u64, Box<str>)>,
}

/// The mappings of executable files in a process.
#[derive(Debug, Default)]
pub(super) struct Maps(Vec<Mapping>);

/// A mapping of a file, or of a part of it, in the memory of a process.
#[derive(Debug)]
struct Mapping {
    addresses: Range<u64>,
    /// The first address's offset in the file.
    offset: u64,
    /// The file's name in brackets, as frames show it.
    name: String,
    /// The file; `None` for code that belongs to no file.
    file: Option<FileId>,
}

/// Device and inode.
type FileId = (u64, u64);

/// The executable files of the sampled processes. The files stay open until their functions are
/// read, because a program may end, and its file may be removed, before the functions are read.
#[derive(Debug, Default)]
pub(super) struct Files {
    open: HashMap<FileId, Option<File>>,
}

/// The functions of the files, read when an address needs them.
#[derive(Debug)]
pub(super) struct FileNames {
    files: Files,
    read: HashMap<FileId, Symbols>,
    /// Bytes of symbol tables that may still be read, to bound the memory.
    tables: u64,
    /// The names of frames, by file and offset; `None` if the file has no function at the offset.
    frames: HashMap<(FileId, u64), Option<String>>,
    /// Bytes that may still be used for function names.
    texts: usize,
}

impl KernelNames {
    pub fn read() -> Result<Self, ProbeError> {
        Ok(Self::parse(&read_text("/proc/kallsyms")?))
    }

    /// Parses lines of an address, a type, a name and perhaps a module. The kernel shows zero
    /// addresses to users without permission; such a table is empty.
    fn parse(text: &str) -> Self {
        let function = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok().filter(|a| *a != 0)?;
            let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
            let name = words.next()?;
            // Drops the suffix of a function variant that the compiler made, as in
            // tcp_ack.constprop.0.
            let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
            (is_code && !name.starts_with("__pfx_") && !stem.is_empty())
                .then(|| (address, Box::from(stem)))
        };
        let mut functions: Vec<(u64, Box<str>)> = text.lines().filter_map(function).collect();
        functions.sort_by_key(|(address, _)| *address);
        Self { functions }
    }

    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the code ranges of the functions that handle soft interrupts.
    pub(super) fn softirqs(&self) -> Vec<Range<u64>> {
        let pairs = self.functions.iter().zip(self.functions.iter().skip(1));
        let found = pairs.filter(|((_, name), _)| SOFTIRQS.contains(&&**name));
        found.map(|((start, _), (end, _))| *start..*end).collect()
    }

    pub(super) fn name(&self, address: u64) -> &str {
        let after = self.functions.partition_point(|(start, _)| *start <= address);
        let found = after.checked_sub(1).and_then(|before| self.functions.get(before));
        found.map_or("[kernel]", |(_, name)| name)
    }
}

impl Maps {
    /// Reads the mappings of a process; empty if the process has ended.
    pub(super) fn of(pid: u32) -> Self {
        read_text(format!("/proc/{pid}/maps")).map(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(text: &str) -> Self {
        let mapping = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let (from, to) = words.next()?.split_once('-')?;
            let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).ok());
            let is_code = words.next()?.contains('x');
            let offset = u64::from_str_radix(words.next().unwrap_or("0"), 16).ok()?;
            let (major, minor) = words.next().unwrap_or("0:0").split_once(':')?;
            let [major, minor] = [major, minor].map(|text| u32::from_str_radix(text, 16).ok());
            let device = u64::from(major?) << 32 | u64::from(minor?);
            let inode: u64 = words.next().unwrap_or("0").parse().ok()?;
            let file = (inode != 0).then_some((device, inode));
            let path = words.next().unwrap_or("anonymous");
            let name = path.rsplit('/').next().unwrap_or(path);
            let name = format!("[{}]", name.trim_matches(['[', ']']));
            is_code.then_some(Mapping { addresses: from?..to?, offset, name, file })
        };
        Self(text.lines().filter_map(mapping).collect())
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        self.at(address).is_some()
    }

    /// Adds mappings that were found later. A mapping replaces an earlier mapping at the same
    /// address.
    pub(super) fn extend(&mut self, later: Self) {
        if !later.0.is_empty() {
            self.0.retain(|old| later.0.iter().all(|new| new.addresses != old.addresses));
            self.0.splice(..0, later.0);
            self.0.truncate(MOST_FILES);
        }
    }

    /// Returns the name of the file at an address, as `[NAME]`.
    #[cfg(test)]
    fn name(&self, address: u64) -> &str {
        self.at(address).map_or("[user]", |mapping| &mapping.name)
    }

    fn at(&self, address: u64) -> Option<&Mapping> {
        self.0.iter().find(|mapping| mapping.addresses.contains(&address))
    }
}

impl Files {
    /// Opens the files of a process that are not open yet.
    pub(super) fn open(&mut self, pid: u32, maps: &Maps) {
        for mapping in &maps.0 {
            let Some(id) = mapping.file else { continue };
            if self.open.contains_key(&id) || self.open.len() >= MOST_OPEN {
                continue;
            }
            let Range { start, end } = mapping.addresses;
            // Unlike the path, this link leads to the file even if the file was removed, or the
            // process has other mounts.
            let place = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
            self.open.insert(id, regular(&place));
        }
    }
}

/// Opens regular files only: a mapped device may have side effects when it is opened.
fn regular(place: &str) -> Option<File> {
    std::fs::metadata(place).ok().filter(std::fs::Metadata::is_file)?;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(place).ok()
}

impl FileNames {
    pub(super) fn new(files: Files) -> Self {
        let (tables, texts) = (MOST_TABLES, MOST_TEXTS);
        Self { files, read: HashMap::new(), tables, frames: HashMap::new(), texts }
    }

    /// Returns `[FILE] FUNCTION`, or `[FILE]` if the file has no function at the address.
    pub(super) fn name<'a>(&'a mut self, maps: &'a Maps, address: u64) -> &'a str {
        let Some(mapping) = maps.at(address) else { return "[user]" };
        let Some(id) = mapping.file else { return &mapping.name };
        let offset = (address - mapping.addresses.start).saturating_add(mapping.offset);
        let Self { files, read, tables, frames, texts } = self;
        let known = frames.entry((id, offset)).or_insert_with(|| {
            let symbols = read.entry(id).or_insert_with(|| {
                let file = files.open.get(&id).and_then(Option::as_ref);
                file.map(|file| Symbols::read(file, tables)).unwrap_or_default()
            });
            let name = format!("{} {}", mapping.name, symbols.name(offset)?);
            *texts = texts.checked_sub(name.len())?;
            Some(name)
        });
        known.as_deref().unwrap_or(mapping.name.as_str())
    }
}

/// The functions that handle soft interrupts, by their names in older and newer kernels.
pub const SOFTIRQS: [&str; 3] = ["handle_softirqs", "__do_softirq", "__softirqentry_text_start"];
/// Maximum number of mappings kept per process: a process may map new files all the time.
const MOST_FILES: usize = 4_096;
/// Maximum number of files open at once. The usual limit of a process is 1,024.
const MOST_OPEN: usize = 256;
/// Maximum memory for the symbol tables of all files together, in bytes. Any user may own a file,
/// and make its table large.
const MOST_TABLES: u64 = 512 << 20;
/// Maximum memory for function names, in bytes.
const MOST_TEXTS: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_preceding_function_and_data_to_none() {
        let names = KernelNames::parse(
            "ffff10 T tcp_ack.constprop.0\nffff00 t udp_sendmsg\nffff18 D jiffies\n\
             0 T hidden\nffff20 t __pfx_x\nffff30 t run\t[veth]\nno line\n",
        );
        let found =
            [0x00ff_ff05, 0x00ff_ff10, 0x00ff_ff2f, 0x00ff_ff30, 1].map(|at| names.name(at));
        assert_eq!(found, ["udp_sendmsg", "tcp_ack", "tcp_ack", "run", "[kernel]"]);
        assert!(KernelNames::parse("0000000000000000 T tcp_ack\n").is_empty());
    }

    #[test]
    fn frames_of_user_code_have_the_name_of_their_file() {
        let maps = Maps::parse(
            "5500-5600 r-xp 00000000 08:01 17 /usr/bin/weir\n5600-5700 r--p 0 08:01 17 /usr/bin/x\n\
             7f00-7f10 r-xp 00000000 00:00 0\n7f20-7f30 r-xp 00000000 00:00 0 [vdso]\nbad\n",
        );
        let found = [0x5580, 0x5680, 0x7f01, 0x7f21].map(|at| maps.name(at));
        assert_eq!(found, ["[weir]", "[user]", "[anonymous]", "[vdso]"]);
    }
}
