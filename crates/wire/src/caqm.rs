//! The tag of CAQM (Confined Active Queue Management): four bytes after the MAC addresses, or after
//! at most two VLAN tags. On a data packet the tag requests a change of the window, and on an
//! acknowledgement the tag carries the answer.
//!
//! ```text
//! | TPID (16) | kind (3) | last hop | - | request | C | I | hint (8) | EtherType of what follows
//! ```
//!
//! The TPID is a setting of the network. With the default, 0x88a8, the offloads of a stock kernel
//! carry the tag. Service tags of 802.1ad have the same TPID, so a network with service tags uses
//! another TPID for CAQM.

pub mod offer;

use crate::headers::{MAC_HEADER, TAG, is_tag, word};
use std::fmt;

/// The information in a tag: the 16 bits after the tag's TPID.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Info(u16);

/// The meaning of the hint. The bits C and I of the tag select the meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// An increase of the window by this number of units.
    More(u8),
    /// The units of a refused request, or the units that an answer removes from the window.
    Fewer(u8),
    /// No change: the answer 0, a request that is neither approved nor refused, or a go-ahead.
    Nothing,
}

impl Info {
    /// Decodes a tag from the word after its TPID: the kind is in the upper three bits, the hint in
    /// the lower eight.
    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the word after the TPID.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Creates the tag of a data packet that requests `hint` units.
    pub fn request(hint: u8) -> Self {
        Self(REQUEST | VALID | u16::from(hint))
    }

    /// Creates an [`offer`]'s question whether a port on the path supports CAQM.
    pub fn question() -> Self {
        Self(QUESTION)
    }

    /// Returns a port's reply to a [`Self::question`]; all other bits stay the same.
    pub fn answered(self) -> Self {
        Self(self.0 & !(CONGESTION | VALID))
    }

    /// Marks the offer of a SYN-ACK: a port has answered the question in the SYN's offer.
    pub fn echoed(self) -> Self {
        Self(self.0 | ECHO)
    }

    /// Creates the tag of the handshake's last packet: a data packet if `request` is true, and
    /// otherwise an acknowledgement. The tag reports that a port on the path of the other end's
    /// data supports CAQM, and that tags may follow. A go-ahead has no meaning in other packets.
    pub fn go_ahead(request: bool) -> Self {
        Self(if request { QUESTION } else { CONGESTION | VALID })
    }

    /// Creates the tag of an acknowledgement that reports `units`, at most as many units as a hint
    /// can hold.
    pub fn answer(units: i16) -> Self {
        let hint = units.unsigned_abs().min(255);
        match units {
            0 => Self(0),
            1.. => Self(VALID | hint),
            _ => Self(CONGESTION | hint),
        }
    }

    /// Whether the tag is of CAQM's kind. A port ignores packets of another kind.
    pub fn is_caqm(self) -> bool {
        self.0 & KIND == 0
    }

    /// Whether the tag is the request of a data packet; otherwise, it is the answer of an
    /// acknowledgement.
    pub fn is_request(self) -> bool {
        self.0 & REQUEST != 0
    }

    /// Whether the tag is an offer's question that no port has answered.
    pub fn is_question(self) -> bool {
        self.0 & QUESTION == QUESTION
    }

    /// Whether the SYN-ACK's offer reports that a port has answered the question of the SYN's
    /// offer.
    pub fn is_echoed(self) -> bool {
        self.0 & ECHO != 0
    }

    /// Whether the tag is the go-ahead of the handshake's last packet.
    pub fn is_go_ahead(self) -> bool {
        self.0 & (CONGESTION | VALID) == CONGESTION | VALID
    }

    /// Returns the tag with another kind, from 1 to 7; CAQM's own is kind 0 ([`Self::is_caqm`]).
    pub fn of_kind(self, kind: u8) -> Self {
        Self(self.0 & !KIND | u16::from(kind) << KIND.trailing_zeros())
    }

    /// Returns the kind, 0 to 7. CAQM has kind 0.
    pub fn kind(self) -> u8 {
        (self.0 >> KIND.trailing_zeros()) as u8
    }

    /// Returns the hint with the meaning that the bits C and I give it.
    pub fn meaning(self) -> Meaning {
        let hint = self.0 as u8;
        match (self.0 & CONGESTION != 0, self.0 & VALID != 0) {
            (false, true) => Meaning::More(hint),
            (true, false) => Meaning::Fewer(hint),
            _ => Meaning::Nothing,
        }
    }

    /// Returns the request, marked as refused because of congestion.
    pub fn refused(self) -> Self {
        Self(self.0 & !VALID | CONGESTION)
    }

    /// Returns the request, reduced to this number of units.
    pub fn with_hint(self, hint: u8) -> Self {
        Self(self.0 & !HINT | u16::from(hint))
    }

    /// Returns the request, marked as neither approved nor refused.
    pub fn without_hint(self) -> Self {
        Self(self.0 & !(CONGESTION | VALID))
    }
}

impl fmt::Debug for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Info({self})")
    }
}

/// Formats the tag as captures show it: `request +255`, `answer -3`, `kind 2`.
impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_caqm() {
            return write!(f, "kind {}", self.kind());
        }
        f.write_str(if self.is_request() { "request" } else { "answer" })?;
        match self.meaning() {
            Meaning::More(hint) => write!(f, " +{hint}"),
            Meaning::Fewer(_) if self.is_request() => f.write_str(" refused"),
            Meaning::Fewer(hint) => write!(f, " -{hint}"),
            Meaning::Nothing if self.is_go_ahead() => f.write_str(" go ahead"),
            Meaning::Nothing => f.write_str(" 0"),
        }?;
        if self.0 & LAST_HOP != 0 { f.write_str(", last hop") } else { Ok(()) }
    }
}

/// Returns the CAQM tag of a frame: the first tag with this TPID, if the tag is complete, has
/// CAQM's kind, and is followed by a header.
#[inline]
pub fn read(frame: &[u8], tpid: u16) -> Option<Info> {
    let bits = word(frame, find(frame, tpid)?)?;
    Some(Info(bits)).filter(|info| info.is_caqm())
}

/// Overwrites the tag that [`read`] returns. If the frame has no such tag, returns false and
/// changes nothing.
#[inline]
pub fn write(frame: &mut [u8], tpid: u16, info: Info) -> bool {
    if read(frame, tpid).is_none() {
        return false;
    }
    let place = find(frame, tpid).and_then(|at| frame.get_mut(at..at + 2));
    place.is_some_and(|place| {
        place.copy_from_slice(&info.0.to_be_bytes());
        true
    })
}

/// Whether CAQM may use the TPID: the number is not a length, and no other protocol uses it. 0x8100
/// is allowed in networks without VLANs.
pub fn is_free(tpid: u16) -> bool {
    !matches!(tpid, 0..=0x05ff | 0x0800 | 0x0806 | 0x86dd)
}

/// Returns the offset of the word after the tag's TPID.
#[inline]
fn find(frame: &[u8], tpid: u16) -> Option<usize> {
    let mut at = MAC_HEADER - 2;
    for _ in 0..=MOST_VLANS {
        let ether_type = word(frame, at)?;
        if ether_type == tpid {
            // A complete tag includes the EtherType of the encapsulated packet.
            return word(frame, at + TAG).map(|_| at + 2);
        }
        if !is_tag(ether_type) {
            return None;
        }
        at += TAG;
    }
    None
}

/// The default TPID, which is also the TPID of service tags (IEEE 802.1ad).
pub const TPID: u16 = 0x88a8;

const KIND: u16 = 0xe000;
const LAST_HOP: u16 = 1 << 12;
const REQUEST: u16 = 1 << 10;
const CONGESTION: u16 = 1 << 9;
const VALID: u16 = 1 << 8;
const HINT: u16 = 0xff;
const QUESTION: u16 = REQUEST | CONGESTION | VALID;
/// The bit of the hint field that marks an echoed offer.
const ECHO: u16 = 1;
const MOST_VLANS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a frame that consists of MAC addresses and these words.
    fn frame(words: &[u16]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        frame
    }

    #[test]
    fn the_bits_of_a_caqm_tag_match_the_documented_format() {
        assert_eq!(Info::request(8).bits(), 0x0508);
        assert_eq!(Info::request(8).refused().bits(), 0x0608);
        assert_eq!(Info::request(8).without_hint().bits(), 0x0408);
        assert_eq!(Info::request(255).with_hint(8), Info::request(8));
        assert_eq!(Info::answer(3).bits(), 0x0103);
        assert_eq!(Info::answer(-3).bits(), 0x0203);
        assert_eq!(Info::answer(0).bits(), 0);
        assert_eq!(Info::answer(-300).meaning(), Meaning::Fewer(255));
        assert_eq!(Info::from_bits(0x0701).meaning(), Meaning::Nothing);
        assert!(!Info::from_bits(0x2508).is_caqm());
        let shown = |bits| Info::from_bits(bits).to_string();
        assert_eq!(shown(0x0508), "request +8");
        assert_eq!(shown(0x0608), "request refused");
        assert_eq!(shown(0x1203), "answer -3, last hop");
        assert_eq!(shown(0x4000), "kind 2");
        assert_eq!(shown(0x0700), "request go ahead");
        assert_eq!(shown(0x0300), "answer go ahead");
        for request in [true, false] {
            let ahead = Info::go_ahead(request);
            assert_eq!((ahead.meaning(), ahead.is_request()), (Meaning::Nothing, request));
            assert!(ahead.is_go_ahead() && !Info::request(8).is_go_ahead());
        }
        assert_eq!(Info::question().echoed().answered().bits(), 0x0401);
        assert_eq!(Info::request(8).of_kind(3).kind(), 3);
        assert_eq!(Info::request(8).of_kind(3).of_kind(0), Info::request(8));
    }

    #[test]
    fn a_caqm_tag_is_found_after_at_most_two_vlan_tags() {
        let request = Info::request(7);
        for vlans in [&[][..], &[0x8100, 5], &[0x9100, 5, 0x8100, 6]] {
            let whole = [vlans, &[TPID, request.bits(), 0x0800, 0x4500]].concat();
            let mut bytes = frame(&whole);
            assert_eq!(read(&bytes, TPID), Some(request), "{vlans:x?}");
            assert!(write(&mut bytes, TPID, request.refused()));
            assert_eq!(read(&bytes, TPID), Some(request.refused()));
            assert!(read(&bytes, 0x88b5).is_none() && !write(&mut bytes, 0x88b5, request));
        }
        let three = [0x8100, 1, 0x9100, 2, 0x8100, 3, TPID, request.bits(), 0x0800];
        assert_eq!(read(&frame(&three), TPID), None);
        let twice = [TPID, request.bits(), TPID, 0x0101, 0x0800];
        assert_eq!(read(&frame(&twice), TPID), Some(request));
        let of_another_kind = [TPID, 0x2000 | request.bits(), 0x0800];
        assert_eq!(read(&frame(&of_another_kind), TPID), None);
    }

    #[test]
    fn a_truncated_caqm_tag_is_ignored() {
        let whole = frame(&[0x8100, 5, TPID, 0x0508, 0x0800]);
        for length in 0..=whole.len() {
            let mut cut = whole[..length].to_vec();
            assert_eq!(read(&cut, TPID).is_some(), length == whole.len(), "{length}");
            assert_eq!(write(&mut cut, TPID, Info::from_bits(0)), length == whole.len());
        }
    }

    proptest! {
        #[test]
        fn writing_a_caqm_tag_changes_no_other_byte(
            mut bytes in proptest::collection::vec(prop_oneof![Just(0x81), Just(0), Just(0x88), Just(0xa8), any::<u8>()], 0..40),
            bits: u16,
        ) {
            let before = bytes.clone();
            let info = Info::from_bits(bits);
            let had = read(&bytes, TPID);
            prop_assert_eq!(write(&mut bytes, TPID, info), had.is_some());
            let changed = before.iter().zip(&bytes).filter(|(a, b)| a != b).count();
            prop_assert!(changed <= 2);
            if had.is_some() && info.is_caqm() {
                prop_assert_eq!(read(&bytes, TPID), Some(info));
            }
        }

        #[test]
        fn a_caqm_answer_holds_the_given_units(units in -255_i16..=255) {
            let reported = match Info::answer(units).meaning() {
                Meaning::More(hint) => i16::from(hint),
                Meaning::Fewer(hint) => -i16::from(hint),
                Meaning::Nothing => 0,
            };
            prop_assert_eq!(reported, units);
            prop_assert!(Info::answer(units).is_caqm() && !Info::answer(units).is_request());
        }
    }
}
