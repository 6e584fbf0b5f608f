//! The functions of an executable file, by the symbol tables of ELF (gabi, chapter "Symbol Table").
//! Only 64-bit little-endian files are read; other files have no names.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The functions of a file, by their addresses within its memory image.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Segments of the file in memory: a range of offsets in the file, and the address of its
    /// start.
    segments: Vec<(Range<u64>, u64)>,
    /// Address ranges, each with the offset of its name in `names`, sorted by address.
    functions: Vec<(Range<u64>, usize)>,
    /// Names, each terminated by a zero byte.
    names: Vec<u8>,
}

impl Symbols {
    /// Parses the functions in the bytes of a file. Returns `None` without a symbol table.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Self::of_parts(|from, size| {
            let (from, size) = (usize::try_from(from).ok()?, usize::try_from(size).ok()?);
            Some(bytes.get(from..from.checked_add(size)?)?.to_vec())
        })
    }

    /// Reads at most `left` bytes, and subtracts them from `left`. Returns no functions if the file
    /// has no symbol table or cannot be read.
    pub(super) fn read(file: &File, left: &mut u64) -> Self {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let room = Cell::new(*left);
        let part = |from: u64, size: u64| -> Option<Vec<u8>> {
            if size > LARGEST_TABLE.min(room.get()) || from.checked_add(size)? > length {
                return None;
            }
            room.set(room.get() - size);
            let mut bytes = vec![0; usize::try_from(size).ok()?];
            file.read_exact_at(&mut bytes, from).ok()?;
            Some(bytes)
        };
        let symbols = Self::of_parts(part).unwrap_or_default();
        *left = room.get();
        symbols
    }

    /// Parses a file through `part`, which returns the bytes of the file at an offset, and of a
    /// length.
    fn of_parts(part: impl Fn(u64, u64) -> Option<Vec<u8>>) -> Option<Self> {
        let head = part(0, HEADER)?;
        if head.get(..6)? != ELF64_LITTLE {
            return None;
        }
        let table = |offset: usize, entry: usize, count: usize, size: u64| {
            let (entry, count) = (u64::from(half(&head, entry)?), u64::from(half(&head, count)?));
            let bytes = part(long(&head, offset)?, entry * count)?;
            (entry >= size).then_some((bytes, entry as usize))
        };
        let (programs, entry) = table(32, 54, 56, PROGRAM_HEADER)?;
        let segment = |header: &[u8]| {
            let (offset, address) = (long(header, 8)?, long(header, 16)?);
            let end = offset.checked_add(long(header, 32)?)?;
            (word(header, 0)? == LOAD).then_some((offset..end, address))
        };
        let segments = programs.chunks_exact(entry).filter_map(segment);
        let segments = segments.take(MOST_SEGMENTS).collect();
        let (sections, entry) = table(40, 58, 60, SECTION_HEADER)?;
        let sections: Vec<&[u8]> = sections.chunks_exact(entry).collect();
        let of_kind = |kind: u32| sections.iter().find(|header| word(header, 4) == Some(kind));
        // A stripped file has only the symbols that it exports.
        let symbols = of_kind(SYMBOLS).or_else(|| of_kind(DYNAMIC_SYMBOLS))?;
        let names = sections.get(word(symbols, 40)? as usize)?;
        let content = |header: &[u8]| part(long(header, 24)?, long(header, 32)?);
        let (table, names) = (content(symbols)?, content(names)?);
        let function = |symbol: &[u8]| {
            let kind = symbol.get(4)? & 0xf;
            let (address, size) = (long(symbol, 8)?, long(symbol, 16)?);
            if !FUNCTIONS.contains(&kind) || address == 0 {
                return None;
            }
            Some((address..address.checked_add(size)?, word(symbol, 0)? as usize))
        };
        let symbols = table.chunks_exact(SYMBOL).filter_map(function);
        let mut functions: Vec<(Range<u64>, usize)> = symbols.collect();
        // The longest function at an address comes last, where `name` finds it.
        functions.sort_unstable_by_key(|(range, _)| (range.start, range.end));
        Some(Self { segments, functions, names })
    }

    pub fn name(&self, offset: u64) -> Option<String> {
        let (range, start) = self.segments.iter().find(|(range, _)| range.contains(&offset))?;
        let address = (offset - range.start).checked_add(*start)?;
        let after = self.functions.partition_point(|(range, _)| range.start <= address);
        let (range, name) = self.functions.get(after.checked_sub(1)?)?;
        // Functions written in assembler have size 0.
        let is_inside = range.is_empty() || range.contains(&address);
        is_inside.then(|| self.text(*name)).flatten()
    }

    fn text(&self, name: usize) -> Option<String> {
        let name = self.names.get(name..)?;
        let length = name.iter().take(LONGEST_NAME).position(|byte| *byte == 0)?;
        let name = name.get(..length).filter(|name| !name.is_empty())?;
        Some(readable(std::str::from_utf8(name).ok()?))
    }
}

/// Returns the path in a mangled name of Rust (`_ZN3cpu4read17h…E`, `_RNvNtCs…_3cpu4read`), without
/// the hash, or the path in a simple mangled name of C++. Other names stay unchanged.
fn readable(mangled: &str) -> String {
    match rustc_demangle::try_demangle(mangled) {
        Ok(path) => cut(&format!("{path:#}")),
        Err(_) => path_of_cpp(mangled).unwrap_or_else(|| mangled.to_owned()),
    }
}

/// Cuts a name that its mangled form abbreviates, because the full name may be very long.
fn cut(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => name[..end].to_owned(),
        None => name.to_owned(),
    }
}

fn path_of_cpp(mangled: &str) -> Option<String> {
    let mut rest = mangled.strip_prefix("_ZN")?;
    let mut parts: Vec<&str> = Vec::new();
    // Qualifiers of C++: const, volatile.
    rest = rest.trim_start_matches(['K', 'V', 'r']);
    while !rest.starts_with('E') {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let length: usize = rest.get(..digits)?.parse().ok()?;
        parts.push(rest.get(digits..digits.checked_add(length)?)?);
        rest = rest.get(digits + length..)?;
    }
    (!parts.is_empty()).then(|| parts.join("::"))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The magic number, 64 bits, little-endian.
const ELF64_LITTLE: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
const HEADER: u64 = 64;
const PROGRAM_HEADER: u64 = 56;
const SECTION_HEADER: u64 = 64;
const SYMBOL: usize = 24;
/// PT_LOAD.
const LOAD: u32 = 1;
/// SHT_SYMTAB and SHT_DYNSYM.
const SYMBOLS: u32 = 2;
const DYNAMIC_SYMBOLS: u32 = 11;
/// STT_FUNC and STT_GNU_IFUNC.
const FUNCTIONS: [u8; 2] = [2, 10];
/// Maximum size of a table that is read, to bound the memory for a file.
const LARGEST_TABLE: u64 = 128 << 20;
/// Maximum length of a name that is read, to bound the memory.
const LONGEST_NAME: usize = 4_096;
/// Maximum number of segments that are read, to bound the time per address; linkers make four or
/// five.
const MOST_SEGMENTS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mangled_names_become_paths_and_other_names_stay_unchanged() {
        for (mangled, expected) in [
            ("_ZN4perf3web6engine4turn17h0123456789abcdefE", "perf::web::engine::turn"),
            (
                "_ZN47_$LT$perf..web..Tally$u20$as$u20$fmt..Debug$GT$3fmt17h0123456789abcdefE",
                "<perf::web::Tally as fmt::Debug>::fmt",
            ),
            (
                "_RNvMNtNtCs1234_4perf3web6engineNtB2_6Engine4turn",
                "<perf::web::engine::Engine>::turn",
            ),
            ("_RNvNtCs1234_7mycrate3foo3bar.llvm.123", "mycrate::foo::bar"),
            ("_RNvNtCs1234_7mycrate3foo", "_RNvNtCs1234_7mycrate3foo"),
            ("_ZNK3foo3barEv", "foo::bar"),
            ("_ZN3foo3barEPKcj", "foo::bar"),
            ("_ZN3cutE", "cut"),
            ("_ZN9cut", "_ZN9cut"),
            ("_ZN", "_ZN"),
            ("_ZN5a$b$cE", "a$b$c"),
            ("memcpy", "memcpy"),
        ] {
            assert_eq!(readable(mangled), expected);
        }
    }

    /// Reads the test's own program, an ELF file with symbols.
    #[test]
    fn the_functions_of_this_program_are_found_and_cut_files_have_none() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let symbols = Symbols::parse(&bytes).unwrap();
        let (range, name) = symbols
            .functions
            .iter()
            .map(|(range, name)| (range, symbols.text(*name).unwrap()))
            .find(|(range, name)| {
                name.contains("symbols") && name.contains("tests") && range.end - range.start > 1
            })
            .unwrap();
        let (offsets, start) = symbols
            .segments
            .iter()
            .find(|(offsets, start)| {
                (*start..*start + (offsets.end - offsets.start)).contains(&range.start)
            })
            .unwrap();
        let offset = range.start - start + offsets.start;
        assert_eq!(symbols.name(offset + 1), Some(name));
        assert_eq!(symbols.name(u64::MAX), None);
        for length in [0, 5, 63, 64, 200, bytes.len() / 2] {
            let cut = Symbols::parse(&bytes[..length]);
            assert!(cut.is_none_or(|cut| cut.functions.is_empty()), "{length}");
        }
    }

    #[test]
    fn reading_symbols_uses_at_most_the_remaining_bytes() {
        let file = File::open("/proc/self/exe").unwrap();
        let mut left = HEADER + PROGRAM_HEADER;
        assert!(Symbols::read(&file, &mut left).functions.is_empty());
        assert_eq!(left, PROGRAM_HEADER);
        left = u64::MAX;
        assert!(!Symbols::read(&file, &mut left).functions.is_empty());
        assert!(left < u64::MAX);
    }

    #[test]
    fn the_longest_function_at_an_address_gives_the_name() {
        let functions = [(16..16, 1), (16..24, 5)];
        let symbols = Symbols {
            segments: vec![(0..64, 0)],
            functions: functions.to_vec(),
            names: b"\0end\0run\0".to_vec(),
        };
        assert_eq!(symbols.name(20).as_deref(), Some("run"));
        assert_eq!(symbols.name(24), None);
    }

    proptest! {
        /// Writes arbitrary numbers into the header and into all headers of segments and sections.
        #[test]
        fn arbitrary_elf_headers_cause_no_panic(
            places in prop::collection::vec((0_usize..1_024, any::<u64>()), 0..12),
            offset in any::<u64>(),
        ) {
            let mut bytes = vec![0_u8; 1_024];
            bytes[..6].copy_from_slice(&ELF64_LITTLE);
            for (at, value) in [(32, 64_u64), (40, 128)] {
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            for (at, value) in [(54, 56_u16), (56, 1), (58, 64), (60, 4)] {
                bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
            }
            bytes[64] = 1;
            bytes[132] = 2;
            for (at, value) in places {
                let end = bytes.len().min(at + 8);
                bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
            for offset in [offset, offset % 1_024] {
                let _ = Symbols::parse(&bytes).and_then(|symbols| symbols.name(offset));
            }
        }
    }
}
