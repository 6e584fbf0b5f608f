use flow::{Key, word};

use super::helpers::Splice;
use super::tuple::{Kind, Ports, Tuple};
use crate::{Packet, flag};

/// A packet as connection tracking sees it: its fields, its bytes and the positions of its headers.
#[derive(Debug)]
pub struct View<'a> {
    /// Tracking writes the packet's connection fields here, and the fields that a translation
    /// changes.
    pub key: &'a mut Key,
    pub frame: &'a mut [u8],
    pub headers: Headers,
    /// Whether the TCP or UDP checksum is only the pseudo-header's sum, which the network card
    /// completes.
    pub(super) is_unfinished: bool,
    /// Whether the tracker may change the packet's length.
    pub(super) is_resizable: bool,
    /// A replacement of text that the caller has to apply.
    pub(super) splice: Option<Splice>,
}

/// Offsets within a frame. Offsets outside the frame make a packet invalid and never cause a panic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Headers {
    /// The IP header.
    pub network: usize,
    /// The transport header, after all extension headers. 0 for an incomplete header.
    pub transport: usize,
    /// The end of the IP packet; padding follows.
    pub end: usize,
}

impl Headers {
    #[inline]
    pub(super) fn of(packet: &Packet) -> Self {
        let layout = packet.layout;
        if layout.flags & (flag::IPV4 | flag::IPV6) == 0 {
            return Self::default();
        }
        Self {
            network: layout.network as usize,
            transport: layout.transport as usize,
            end: layout.end as usize,
        }
    }
}

impl<'a> View<'a> {
    /// Builds a view of a packet that keeps its length.
    #[must_use]
    #[inline]
    pub fn new(key: &'a mut Key, frame: &'a mut [u8], headers: Headers) -> Self {
        Self { key, frame, headers, is_unfinished: false, is_resizable: false, splice: None }
    }

    /// Builds a view of any packet. A packet that is not IP, or no longer IP, has no headers to
    /// track.
    #[inline]
    pub(super) fn of(packet: &'a mut Packet) -> Self {
        let headers = Headers::of(packet);
        let is_unfinished = packet.layout.has(flag::UNFINISHED);
        let view = Self::new(&mut packet.key, packet.frame.bytes_mut(), headers);
        Self { is_unfinished, ..view }
    }

    pub(super) fn state(&self) -> u16 {
        self.key.words[word::CT] as u16
    }

    pub(super) fn zone(&self) -> u16 {
        (self.key.words[word::CT] >> 16) as u16
    }

    /// Sets the fields of connection tracking. `original`: the connection's original tuple.
    #[inline]
    pub(super) fn set_connection(&mut self, shown: &Shown, original: Option<&Tuple>) {
        let words = &mut self.key.words;
        words[word::CT] =
            u64::from(shown.state) | u64::from(shown.zone) << 16 | u64::from(shown.mark) << 32;
        words[word::CT_LABEL] = (shown.label >> 64) as u64;
        words[word::CT_LABEL + 1] = shown.label as u64;
        words[word::CT_NW..=word::CT_TP].fill(0);
        let Some(tuple) = original else {
            return;
        };
        let ports = tuple.shown_ports();
        words[word::CT_TP] = u64::from(tuple.protocol) << 32
            | u64::from(ports.source) << 16
            | u64::from(ports.destination);
        if tuple.kind.is_v6() {
            write_wide(words, word::CT_IPV6_SRC, tuple.source);
            write_wide(words, word::CT_IPV6_DST, tuple.destination);
        } else {
            words[word::CT_NW] = (tuple.source as u64) << 32 | tuple.destination as u64;
        }
    }

    /// Whether the packet's connection fields show `tuple` as the original tuple.
    pub(super) fn shows(&self, tuple: &Tuple) -> bool {
        let words = &self.key.words;
        let ports = tuple.shown_ports();
        let rest = u64::from(tuple.protocol) << 32
            | u64::from(ports.source) << 16
            | u64::from(ports.destination);
        let wide = |at: usize| u128::from(words[at]) << 64 | u128::from(words[at + 1]);
        words[word::CT_TP] == rest
            && match tuple.kind.is_v6() {
                true => {
                    wide(word::CT_IPV6_SRC) == tuple.source
                        && wide(word::CT_IPV6_DST) == tuple.destination
                }
                false => {
                    words[word::CT_NW] == (tuple.source as u64) << 32 | tuple.destination as u64
                }
            }
    }

    pub(super) fn set_addresses(&mut self, kind: Kind, source: u128, destination: u128) {
        if kind.is_v6() {
            write_wide(&mut self.key.words, word::IPV6_SRC, source);
            write_wide(&mut self.key.words, word::IPV6_DST, destination);
        } else {
            self.key.words[word::IPV4] = (source as u64) << 32 | destination as u64;
        }
    }

    pub(super) fn set_ports(&mut self, ports: Ports) {
        let rest = self.key.words[word::TP] & 0xffff_ffff;
        self.key.words[word::TP] =
            u64::from(ports.source) << 48 | u64::from(ports.destination) << 32 | rest;
    }
}

/// The connection state, zone, mark and label that rules see.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shown {
    pub(super) state: u16,
    pub(super) zone: u16,
    pub(super) mark: u32,
    pub(super) label: u128,
}

fn write_wide(words: &mut [u64], at: usize, value: u128) {
    words[at] = (value >> 64) as u64;
    words[at + 1] = value as u64;
}

/// Bits of ct_state.
pub(super) mod state {
    pub(in super::super) const NEW: u16 = 1;
    pub(in super::super) const ESTABLISHED: u16 = 1 << 1;
    pub(in super::super) const RELATED: u16 = 1 << 2;
    pub(in super::super) const REPLY: u16 = 1 << 3;
    pub(in super::super) const INVALID: u16 = 1 << 4;
    pub(in super::super) const TRACKED: u16 = 1 << 5;
    pub(in super::super) const SOURCE_NAT: u16 = 1 << 6;
    pub(in super::super) const DESTINATION_NAT: u16 = 1 << 7;
    pub(in super::super) const TRANSLATED: u16 = SOURCE_NAT | DESTINATION_NAT;
}
