//! The types of the running kernel, from its BTF. One walk over the records finds the few types
//! that a caller needs. libbpf checks and indexes every type first, which takes five times the
//! CPU time.

use crate::file_bytes::FileBytes;
use std::path::Path;

/// The kernel's BTF. Offsets of records are counted in words of 32 bits.
#[derive(Debug)]
pub(crate) struct Types {
    file: FileBytes,
    /// The offset of the first record, in words.
    first: usize,
    end: usize,
    /// The offsets of the types 1, 1 + [`APART`], 1 + 2 · [`APART`], and so on.
    marks: Vec<u32>,
    /// The offset of the names in bytes.
    names: usize,
}

/// A kind of a named type (include/uapi/linux/btf.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Struct = 4,
    Enum = 6,
    Typedef = 8,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Type<'a> {
    types: &'a Types,
    start: usize,
}

/// A member of a struct or union.
#[derive(Debug, Clone, Copy)]
struct Member<'a> {
    name: &'a str,
    holds: Option<Type<'a>>,
    /// The offset in bytes from the start of the struct; `None` for a bit field within a byte.
    offset: Option<u32>,
}

impl Types {
    /// Reads the kernel's BTF; `None` if the file cannot be read, or is not BTF in this machine's
    /// byte order.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        Self::of(FileBytes::of(path).ok()?)
    }

    fn of(file: FileBytes) -> Option<Self> {
        let (bytes, words) = (file.bytes(), file.words());
        if u16::from_ne_bytes(*bytes.first_chunk()?) != MAGIC {
            return None;
        }
        let header = |at: usize| words.get(at).map(|word| *word as usize);
        let length = header(1)?;
        let start = length.checked_add(header(2)?)?;
        let end = start.checked_add(header(3)?)?;
        let names = length.checked_add(header(4)?)?;
        if end > bytes.len() || names > bytes.len() || start % 4 != 0 || end % 4 != 0 {
            return None;
        }
        let (first, end) = (start / 4, end / 4);
        let (mut at, mut marks, mut until_mark) = (first, Vec::new(), 0);
        while at < end {
            if until_mark == 0 {
                marks.push(u32::try_from(at).ok()?);
                until_mark = APART;
            }
            until_mark -= 1;
            at += record(*words.get(at + 1)?)?;
        }
        Some(Self { file, first, end, marks, names })
    }

    /// Finds types by kind and name in one walk.
    pub(crate) fn named<const N: usize>(&self, wanted: [(Kind, &str); N]) -> [Option<Type<'_>>; N] {
        let (mut found, words) = ([None; N], self.file.words());
        let mut is_wanted = [false; 32];
        for (kind, _) in &wanted {
            is_wanted[*kind as usize] = true;
        }
        let mut at = self.first;
        while at < self.end {
            let (Some(information), Some(name)) = (words.get(at + 1), words.get(at)) else { break };
            let kind = kind_of(*information);
            if is_wanted[kind as usize] {
                for ((of, wanted), found) in wanted.iter().zip(&mut found) {
                    if *of as u32 == kind && found.is_none() && self.is_named(*name, wanted) {
                        *found = Some(Type { types: self, start: at });
                    }
                }
            }
            let Some(length) = record(*information) else { break };
            at += length;
        }
        found
    }

    fn by_id(&self, id: u32) -> Option<Type<'_>> {
        let place = (id as usize).checked_sub(1)?;
        let mut at = *self.marks.get(place / APART)? as usize;
        for _ in 0..place % APART {
            at += record(*self.file.words().get(at + 1)?)?;
        }
        (at < self.end).then_some(Type { types: self, start: at })
    }

    fn is_named(&self, offset: u32, wanted: &str) -> bool {
        let at = self.names.saturating_add(offset as usize);
        let rest = self.file.bytes().get(at..).unwrap_or_default();
        rest.starts_with(wanted.as_bytes()) && rest.get(wanted.len()) == Some(&0)
    }

    fn name_at(&self, offset: u32) -> &[u8] {
        let at = self.names.saturating_add(offset as usize);
        let rest = self.file.bytes().get(at..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        &rest[..end]
    }
}

impl<'a> Type<'a> {
    /// The constants of an enumeration.
    pub(crate) fn constants(self) -> impl Iterator<Item = (&'a str, u32)> {
        let count = if self.kind() == Kind::Enum as u32 { self.count() } else { 0 };
        (0..count).filter_map(move |place| {
            let at = RECORD + place * 2;
            Some((self.text(self.word(at)?)?, self.word(at + 1)?))
        })
    }

    /// Whether a struct or union has the member, directly or in an anonymous part: Linux 6.19
    /// moved `ancestors` of a control group into a union.
    pub(crate) fn has(self, member: &str) -> bool {
        self.find(member, DEEPEST).is_some()
    }

    /// Returns the offset in bytes of a member of a member, as `dev` or `__sk_common.skc_net.net`.
    pub(crate) fn offset_of(self, path: &str) -> Option<u32> {
        let (mut holder, mut sum) = (Some(self), 0_u32);
        for name in path.split('.') {
            let (offset, holds) = holder?.find(name, DEEPEST)?;
            sum = sum.checked_add(offset?)?;
            holder = holds;
        }
        Some(sum)
    }

    /// Returns the number of arguments of a function behind a pointer: a member of a struct, or a
    /// typedef.
    pub(crate) fn arguments(self, member: Option<&str>) -> Option<usize> {
        let pointer = match member {
            Some(member) => self.find(member, DEEPEST)?.1?,
            None => self.resolved()?,
        };
        let function = (pointer.kind() == POINTER).then(|| pointer.refers_to())??.resolved()?;
        (function.kind() == FUNCTION).then(|| function.count())
    }

    /// Returns the member's offset and type. Looks into anonymous structs and unions.
    fn find(self, name: &str, depth: u32) -> Option<(Option<u32>, Option<Type<'a>>)> {
        let depth = depth.checked_sub(1)?;
        self.members().find_map(|member| {
            if member.name == name {
                return Some((member.offset, member.holds));
            }
            if !member.name.is_empty() {
                return None;
            }
            let (offset, holds) = member.holds?.find(name, depth)?;
            let sum = member.offset.zip(offset).and_then(|(outer, inner)| outer.checked_add(inner));
            Some((sum, holds))
        })
    }

    /// Returns the members of a struct or union; no members for another kind of type.
    fn members(self) -> impl Iterator<Item = Member<'a>> {
        let count = if matches!(self.kind(), STRUCT | UNION) { self.count() } else { 0 };
        // The upper byte of an offset is the width of a bit field if this flag is set.
        let has_widths = self.information() >> 31 == 1;
        (0..count).filter_map(move |place| {
            let at = RECORD + place * 3;
            let bits = self.word(at + 2)?;
            let (bits, width) = if has_widths { (bits & 0xff_ffff, bits >> 24) } else { (bits, 0) };
            let is_whole = bits.is_multiple_of(8) && width == 0;
            Some(Member {
                name: self.text(self.word(at)?)?,
                holds: self.types.by_id(self.word(at + 1)?).and_then(Type::resolved),
                offset: is_whole.then_some(bits / 8),
            })
        })
    }

    /// Follows typedefs and qualifiers to the type itself.
    fn resolved(self) -> Option<Type<'a>> {
        let mut one = self;
        for _ in 0..DEEPEST {
            if !matches!(one.kind(), TYPEDEF..=RESTRICT | TYPE_TAG) {
                return Some(one);
            }
            one = one.refers_to()?;
        }
        None
    }

    fn refers_to(self) -> Option<Type<'a>> {
        self.types.by_id(self.word(2)?)
    }

    fn kind(self) -> u32 {
        kind_of(self.information())
    }

    fn count(self) -> usize {
        count_of(self.information())
    }

    fn information(self) -> u32 {
        self.word(1).unwrap_or(0)
    }

    fn text(self, name: u32) -> Option<&'a str> {
        str::from_utf8(self.types.name_at(name)).ok()
    }

    fn word(self, at: usize) -> Option<u32> {
        self.types.file.words().get(self.start + at).copied()
    }
}

fn kind_of(information: u32) -> u32 {
    (information >> 24) & 31
}

fn count_of(information: u32) -> usize {
    (information & 0xffff) as usize
}

/// Returns the length of a record in words; `None` for a kind that this version does not know.
fn record(information: u32) -> Option<usize> {
    let count = count_of(information);
    Some(match kind_of(information) {
        1 | 14 | 17 => RECORD + 1,
        3 => RECORD + 3,
        STRUCT | UNION | 15 | 19 => RECORD + 3 * count,
        6 | FUNCTION => RECORD + 2 * count,
        POINTER | 7..=12 | 16 | TYPE_TAG => RECORD,
        _ => return None,
    })
}

const MAGIC: u16 = 0xeb9f;
/// The shortest record, in words.
const RECORD: usize = 3;
/// The types from one mark to the next: a search walks over less than this many records.
const APART: usize = 16;
const POINTER: u32 = 2;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const RESTRICT: u32 = 11;
const FUNCTION: u32 = 13;
const TYPE_TAG: u32 = 18;
/// Maximum depth of anonymous parts, and of typedefs of typedefs.
const DEEPEST: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds BTF from records and names.
    #[derive(Default)]
    struct Sketch {
        records: Vec<u8>,
        names: Vec<u8>,
    }

    impl Sketch {
        fn new() -> Self {
            Self { records: Vec::new(), names: vec![0] }
        }

        fn name(&mut self, name: &str) -> u32 {
            if name.is_empty() {
                return 0;
            }
            let at = self.names.len() as u32;
            self.names.extend_from_slice(name.as_bytes());
            self.names.push(0);
            at
        }

        /// Adds a record. `word` is the size of the type, or the id of another type.
        fn add(&mut self, kind: u32, name: &str, count: u32, word: u32, rest: &[u32]) {
            let name = self.name(name);
            let words = [name, (kind << 24) | count, word];
            let words = words.iter().chain(rest);
            self.records.extend(words.flat_map(|word| word.to_ne_bytes()));
        }

        fn bytes(&self) -> Vec<u8> {
            let (types, names) = (self.records.len() as u32, self.names.len() as u32);
            let mut bytes = MAGIC.to_ne_bytes().to_vec();
            bytes.extend([1, 0]);
            bytes.extend([24, 0, types, types, names].iter().flat_map(|one| one.to_ne_bytes()));
            bytes.extend(&self.records);
            bytes.extend(&self.names);
            bytes
        }
    }

    fn structure<'a>(types: &'a Types, name: &str) -> Option<Type<'a>> {
        let [found] = types.named([(Kind::Struct, name)]);
        found
    }

    fn sketch() -> Vec<u8> {
        let mut sketch = Sketch::new();
        sketch.add(1, "int", 0, 4, &[32]);
        // A union without a name: `first` and `second` begin at offset 0.
        let members = [sketch.name("first"), 1, 0, sketch.name("second"), 1, 0];
        sketch.add(5, "", 2, 4, &members);
        // The flag 1 << 31 in `kind << 24` makes the upper byte of an offset a width.
        let members =
            [0, 2, 64, sketch.name("bits"), 1, (3 << 24) | 96, sketch.name("part"), 6, 128];
        sketch.add(4 | 128, "whole", 3, 32, &members);
        let members = [sketch.name("deep"), 1, 32];
        sketch.add(4, "part_t_itself", 1, 8, &members);
        let members = [sketch.name("NONE"), 0, sketch.name("SECOND"), 7];
        sketch.add(6, "reasons", 2, 4, &members);
        sketch.add(8, "part_t", 0, 4, &[]);
        sketch.add(13, "", 2, 0, &[0, 1, 0, 1]);
        sketch.add(2, "", 0, 7, &[]);
        sketch.add(8, "call_t", 0, 8, &[]);
        sketch.bytes()
    }

    #[test]
    fn members_in_anonymous_parts_and_behind_typedefs_have_offsets() {
        let types = Types::of(FileBytes::Read(sketch())).unwrap();
        let whole = structure(&types, "whole").unwrap();
        assert_eq!(whole.offset_of("second"), Some(8));
        assert_eq!(whole.offset_of("part.deep"), Some(20));
        assert_eq!((whole.offset_of("bits"), whole.has("bits")), (None, true));
        assert_eq!((whole.offset_of("third"), whole.has("third")), (None, false));
        assert_eq!(whole.offset_of("second.deep"), None);
        assert!(structure(&types, "reasons").is_none());
    }

    #[test]
    fn one_walk_finds_types_of_several_kinds() {
        let types = Types::of(FileBytes::Read(sketch())).unwrap();
        let [reasons, call, none] = types.named([
            (Kind::Enum, "reasons"),
            (Kind::Typedef, "call_t"),
            (Kind::Struct, "call_t"),
        ]);
        let reasons: Vec<_> = reasons.unwrap().constants().collect();
        assert_eq!(reasons, [("NONE", 0), ("SECOND", 7)]);
        assert_eq!(call.unwrap().arguments(None), Some(2));
        assert!(none.is_none());
    }

    #[test]
    fn btf_with_any_byte_changed_or_cut_off_is_read_without_a_panic() {
        let good = sketch();
        let read = |bytes: Vec<u8>| {
            let Some(types) = Types::of(FileBytes::Read(bytes)) else { return };
            for name in ["whole", "part_t_itself"] {
                let found = structure(&types, name);
                let _ = found.and_then(|one| one.offset_of("part.deep"));
                let _ = found.and_then(|one| one.arguments(Some("part")));
            }
            let [call] = types.named([(Kind::Typedef, "call_t")]);
            let _ = call.and_then(|one| one.arguments(None));
        };
        for length in 0..good.len() {
            read(good[..length].to_vec());
        }
        for (at, value) in (0..good.len()).flat_map(|at| [0, 2, 5, 0xff].map(|value| (at, value))) {
            let mut bytes = good.clone();
            bytes[at] = value;
            read(bytes);
        }
    }

    #[test]
    fn a_struct_that_holds_itself_has_no_endless_search() {
        let mut sketch = Sketch::new();
        sketch.add(4, "ring", 2, 8, &[0, 1, 0, 0, 1, 0]);
        sketch.add(8, "loop_t", 0, 2, &[]);
        let types = Types::of(FileBytes::Read(sketch.bytes())).unwrap();
        assert!(!structure(&types, "ring").unwrap().has("missing"));
        let [alias] = types.named([(Kind::Typedef, "loop_t")]);
        assert_eq!(alias.unwrap().arguments(None), None);
    }
}
