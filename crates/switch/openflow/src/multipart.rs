use super::Version;
use super::message::{Header, begin_message, end_message};
use super::octets::Put;

/// The type of a multipart message: a number, or an experimenter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Standard(u16),
    Experimenter(u32, u32),
}

/// Writes a reply in the number of messages that its length requires.
pub(super) struct Multipart<'a> {
    version: Version,
    xid: u32,
    part: Part,
    /// The offset of the message that is being written.
    start: usize,
    /// The offset of the first entry in the message that is being written.
    entries: usize,
    out: &'a mut Vec<u8>,
}

impl<'a> Multipart<'a> {
    pub(super) fn new(version: Version, xid: u32, part: Part, out: &'a mut Vec<u8>) -> Self {
        let mut multipart = Self { version, xid, part, start: 0, entries: 0, out };
        multipart.begin();
        multipart
    }

    /// Writes an entry, in a new message if the present message is full. An entry too long for any
    /// message is left out.
    pub(super) fn entry(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.out.len();
        write(self.out);
        if self.out.len() - self.start <= MAX_MESSAGE {
            return;
        }
        let entry = self.out.split_off(at);
        if entry.len() + 24 > MAX_MESSAGE {
            return;
        }
        self.end(MORE);
        self.begin();
        self.out.extend_from_slice(&entry);
    }

    /// Returns the length of the buffer to which the reply is written.
    pub(super) fn length(&self) -> usize {
        self.out.len()
    }

    pub(super) fn finish(mut self) {
        self.end(0);
    }

    /// Like [`Multipart::finish`], but writes nothing if there are no entries.
    pub(super) fn finish_unless_empty(self) {
        if self.out.len() == self.entries {
            self.out.truncate(self.start);
        } else {
            self.finish();
        }
    }

    /// Ends the present message. Further messages of the same reply follow; [`Multipart::finish`]
    /// writes the last message.
    pub(super) fn interrupt(mut self) {
        if self.out.len() == self.entries {
            self.out.truncate(self.start);
        } else {
            self.end(MORE);
        }
    }

    fn begin(&mut self) {
        let kind = if self.version == Version::V10 { 17 } else { 19 };
        let header = Header { version: self.version, kind, xid: self.xid };
        self.start = begin_message(header, self.out);
        let is_v10 = self.version == Version::V10;
        match self.part {
            Part::Standard(number) => {
                self.out.put_u16(number);
                self.out.put_zeros(if is_v10 { 2 } else { 6 });
            }
            Part::Experimenter(experimenter, subtype) => {
                self.out.put_u16(0xffff);
                self.out.put_zeros(if is_v10 { 2 } else { 6 });
                self.out.put_u32(experimenter);
                self.out.put_u32(subtype);
                self.out.put_zeros(if is_v10 { 4 } else { 0 });
            }
        }
        self.entries = self.out.len();
    }

    fn end(&mut self, flags: u16) {
        self.out.set_u16(self.start + 10, flags);
        end_message(self.start, self.out);
    }
}

const MORE: u16 = 1;
pub(super) const MAX_MESSAGE: usize = 0xffff;
