//! LACP (IEEE 802.1AX) on one bond, without I/O and without a clock. The caller passes the time and
//! the received LACPDUs, and sends the LACPDUs that [`Lacp::run`] returns. As in Open vSwitch, the
//! members whose partner has the same system and key carry traffic; Marker PDUs are counted and not
//! answered.

use std::fmt::{self, Write as _};

/// The length in bytes of an LACPDU, without the Ethernet header.
pub const LENGTH: usize = 110;
/// The Ethernet type of LACPDUs, and their destination, a group address.
pub const ETHER_TYPE: u16 = 0x8809;
pub const GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 2];

/// The settings of a bond.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LacpSettings {
    /// Whether the bond sends LACPDUs before a partner does.
    pub is_active: bool,
    /// Whether the partner is asked to send an LACPDU each second instead of every 30 s.
    pub is_fast: bool,
    pub system: [u8; 6],
    pub system_priority: u16,
    /// Whether a member without a partner may carry traffic.
    pub falls_back: bool,
}

/// The settings of a member, and the state of its link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberSettings {
    pub name: String,
    pub port: u16,
    pub priority: u16,
    /// The key of the aggregate; 0 means the member's port number.
    pub key: u16,
    pub has_carrier: bool,
}

/// The result of the negotiation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Status {
    /// The bond does not use LACP.
    #[default]
    Off,
    /// No member has a partner.
    Configured,
    Negotiated,
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Negotiated,
    /// The last member with a partner has lost its partner.
    PartnerLost,
    /// This member is connected to a member of its own bond.
    Loop(String),
    /// This member received its first frame with LACP's Ethernet type that is not an LACPDU.
    Malformed(String),
}

/// The state of LACP on a bond.
#[derive(Debug, Default)]
pub struct Lacp {
    settings: LacpSettings,
    /// The members, sorted by name.
    members: Vec<Member>,
    /// The name of the member whose key all members use. The name stays until the member leaves.
    key_member: String,
    is_negotiated: bool,
    /// Whether the partner that the bond has selected has sent an LACPDU.
    is_answered: bool,
    /// Whether the members that carry traffic have to be selected again.
    must_select: bool,
    events: Vec<Event>,
}

#[derive(Debug)]
struct Member {
    settings: MemberSettings,
    freshness: Freshness,
    is_attached: bool,
    is_looped: bool,
    partner: Information,
    /// The information about this member that the partner repeated last, or that this member sent
    /// last.
    known: Information,
    /// When the partner's information expires, and when the next LACPDU is due, in milliseconds.
    expires_ms: u64,
    due_ms: u64,
    /// The times of the last LACPDUs, the latest first.
    sent_ms: [Option<u64>; MOST_IN_SECOND],
    counts: Counts,
}

/// The age of the partner's information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Current,
    Expired,
    /// The member has no partner.
    Defaulted,
}

#[derive(Debug, Default)]
struct Counts {
    sent: u64,
    received: u64,
    malformed: u64,
    markers: u64,
    expired: u64,
    defaulted: u64,
    carrier_changes: u64,
}

/// The information of an LACPDU about one end of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Information {
    system_priority: u16,
    system: [u8; 6],
    key: u16,
    port_priority: u16,
    port: u16,
    state: u8,
}

/// A frame that arrived with the Ethernet type of LACP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pdu {
    Lacp { actor: Information, partner: Information },
    Marker,
    Malformed,
}

impl Lacp {
    /// Sets the settings of the bond and its members, `members` sorted by name. Keeps the state of
    /// members that stay.
    pub fn configure(&mut self, settings: LacpSettings, members: Vec<MemberSettings>, now_ms: u64) {
        let is_same = |member: &Member| members.iter().any(|m| m.name == member.settings.name);
        let former = self.members.len();
        self.members.retain(is_same);
        self.must_select |= self.members.len() != former || self.settings != settings;
        self.settings = settings;
        for wanted in members {
            let known = self.members.iter_mut().find(|m| m.settings.name == wanted.name);
            let is_new = known.is_none();
            let member = match known {
                Some(member) => member,
                None => {
                    self.members.push(Member::new(wanted.clone()));
                    let Some(member) = self.members.last_mut() else { continue };
                    member
                }
            };
            let has_flipped = member.settings.has_carrier != wanted.has_carrier;
            let is_moved = !is_new && member.settings.identity() != wanted.identity();
            member.counts.carrier_changes += u64::from(has_flipped);
            member.settings = wanted;
            self.must_select |= is_new || is_moved;
            let expires = match has_flipped {
                true => self.settings.is_active || member.freshness == Freshness::Current,
                false => (is_new || is_moved) && (self.settings.is_active || self.is_negotiated),
            };
            if expires {
                member.expire(now_ms);
            }
        }
        self.members.sort_by(|a, b| a.settings.name.cmp(&b.settings.name));
        if !self.members.iter().any(|member| member.settings.name == self.key_member) {
            let first = self.members.first().map(|member| member.settings.name.clone());
            self.key_member = first.unwrap_or_default();
        }
    }

    /// Takes the bytes behind the Ethernet header of a frame with [`ETHER_TYPE`].
    pub fn receive(&mut self, member: &str, payload: &[u8], now_ms: u64) {
        let timeout = TIMEOUT * if self.settings.is_fast { FAST_MS } else { SLOW_MS };
        let Some(member) = self.members.iter_mut().find(|m| m.settings.name == member) else {
            return;
        };
        member.counts.received += 1;
        match Pdu::parse(payload) {
            Pdu::Marker => member.counts.markers += 1,
            Pdu::Malformed => {
                member.counts.malformed += 1;
                if member.counts.malformed == 1 {
                    self.events.push(Event::Malformed(member.settings.name.clone()));
                }
            }
            // As in Open vSwitch, an LACPDU counts only after the link is up.
            Pdu::Lacp { .. } if !member.settings.has_carrier => {}
            Pdu::Lacp { actor, partner } => {
                member.freshness = Freshness::Current;
                member.expires_ms = now_ms + timeout;
                member.known = partner;
                // If a partner changes to the fast rate, do not wait for the next time of the slow
                // rate.
                if actor.state & SHORT_TIMEOUT != 0 {
                    member.due_ms = member.due_ms.min(now_ms + FAST_MS);
                }
                if member.partner != actor {
                    member.partner = actor;
                    self.must_select = true;
                }
            }
        }
    }

    /// Does the work that is due by `now_ms`. Returns the LACPDUs to send, each with its member's
    /// name.
    pub fn run(&mut self, now_ms: u64) -> Vec<(String, [u8; LENGTH])> {
        for member in self.members.iter_mut().filter(|member| member.expires_ms <= now_ms) {
            match member.freshness {
                Freshness::Current => {
                    member.expire(now_ms);
                    member.counts.expired += 1;
                }
                Freshness::Expired => {
                    member.freshness = Freshness::Defaulted;
                    member.partner = Information::default();
                    member.counts.defaulted += 1;
                    self.must_select = true;
                }
                Freshness::Defaulted => {}
            }
        }
        if std::mem::take(&mut self.must_select) {
            self.select();
        }
        let mut due = Vec::new();
        for index in 0..self.members.len() {
            let actor = self.actor(&self.members[index]);
            let member = &mut self.members[index];
            let has_partner = member.freshness != Freshness::Defaulted;
            let may_send = member.settings.has_carrier && (self.settings.is_active || has_partner);
            let is_due = member.due_ms <= now_ms || !actor.is_known_as(&member.known);
            let oldest = member.sent_ms[MOST_IN_SECOND - 1];
            let is_early = oldest.is_some_and(|sent| now_ms < sent + FAST_MS);
            if !may_send || !is_due || is_early {
                continue;
            }
            member.known = actor;
            member.counts.sent += 1;
            member.sent_ms.rotate_right(1);
            member.sent_ms[0] = Some(now_ms);
            let is_fast = member.partner.state & SHORT_TIMEOUT != 0;
            member.due_ms = now_ms + if is_fast { FAST_MS } else { SLOW_MS };
            due.push((member.settings.name.clone(), compose(&actor, &member.partner)));
        }
        due
    }

    /// Selects the members that carry traffic: those with the same partner and key as the member of
    /// the highest priority. As in Open vSwitch, members that work are preferred to all other
    /// members.
    fn select(&mut self) {
        let system = self.settings.system;
        let priority = |member: &&Member| self.priority(member);
        let is_candidate = |member: &&Member| {
            member.partner.system != system && member.freshness != Freshness::Defaulted
        };
        let candidates = || self.members.iter().filter(is_candidate);
        let works = |member: &&Member| member.is_attached && member.freshness == Freshness::Current;
        let lead = candidates().filter(works).min_by_key(priority);
        let lead = lead.or_else(|| candidates().min_by_key(priority)).map(|lead| lead.partner);
        let (was_negotiated, falls_back) = (self.is_negotiated, self.settings.falls_back);
        self.is_negotiated = lead.is_some();
        // A new member counts as expired, so that the bond negotiates even before a partner
        // answers.
        let is_answered = lead.is_some_and(|lead| lead.system != [0; 6]);
        let is_new_partner = is_answered && !self.is_answered;
        self.is_answered = is_answered;
        for member in &mut self.members {
            let has_partner = member.freshness != Freshness::Defaulted;
            let is_looped = has_partner && member.partner.system == system;
            member.is_attached = match lead {
                _ if is_looped => false,
                Some(lead) => {
                    has_partner
                        && (member.partner.system, member.partner.key) == (lead.system, lead.key)
                }
                None => !has_partner && falls_back,
            };
            if is_looped && !member.is_looped {
                self.events.push(Event::Loop(member.settings.name.clone()));
            }
            member.is_looped = is_looped;
        }
        if is_new_partner {
            self.events.push(Event::Negotiated);
        }
        if was_negotiated && !self.is_negotiated {
            self.events.push(Event::PartnerLost);
        }
    }

    /// Returns the rank of a member, from the priorities of the system that decides. The lowest
    /// value is the highest rank.
    fn priority(&self, member: &Member) -> Information {
        let own = (self.settings.system_priority, self.settings.system);
        let is_ours = own < (member.partner.system_priority, member.partner.system);
        let decides = if is_ours { self.actor(member) } else { member.partner };
        Information { key: 0, state: 0, ..decides }
    }

    /// Returns the actor information for LACPDUs that a member of this bond sends.
    fn actor(&self, member: &Member) -> Information {
        let carries = member.is_attached || !self.is_negotiated;
        let state = [
            (self.settings.is_active, ACTIVITY),
            (self.settings.is_fast, SHORT_TIMEOUT),
            (self.members.len() > 1, AGGREGATION),
            (member.is_attached, SYNCHRONIZED),
            (carries, COLLECTING | DISTRIBUTING),
            (member.freshness == Freshness::Defaulted, DEFAULTED),
            (member.freshness == Freshness::Expired, EXPIRED),
        ];
        Information {
            system_priority: self.settings.system_priority,
            system: self.settings.system,
            key: self.key().unwrap_or_default(),
            port_priority: member.settings.priority,
            port: member.settings.port,
            state: state.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, bit)| all | bit),
        }
    }

    fn key(&self) -> Option<u16> {
        let of = self.members.iter().find(|member| member.settings.name == self.key_member)?;
        Some(if of.settings.key == 0 { of.settings.port } else { of.settings.key })
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    #[must_use]
    pub fn status(&self) -> Status {
        if self.is_negotiated { Status::Negotiated } else { Status::Configured }
    }

    /// Whether a member may carry traffic.
    #[must_use]
    pub fn may_enable(&self, member: &str) -> bool {
        self.member(member).is_some_and(|member| self.enables(member))
    }

    fn enables(&self, member: &Member) -> bool {
        let is_alone = self.settings.falls_back && member.freshness == Freshness::Defaulted;
        member.is_attached && (member.partner.state & SYNCHRONIZED != 0 || is_alone)
    }

    /// Whether a member has a partner.
    #[must_use]
    pub fn is_current(&self, member: &str) -> bool {
        self.member(member).is_some_and(|member| member.freshness != Freshness::Defaulted)
    }

    fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.settings.name == name)
    }

    /// Returns the bond's part of the reply to `lacp/show`.
    #[must_use]
    pub fn show(&self, name: &str) -> String {
        let settings = &self.settings;
        let mode = if settings.is_active { "active" } else { "passive" };
        let negotiated = if self.is_negotiated { " negotiated" } else { "" };
        let key = self.key().map_or_else(|| "none".to_owned(), |key| key.to_string());
        let time = if settings.is_fast { "fast" } else { "slow" };
        let mut text = format!(
            "---- {name} ----\n  status: {mode}{negotiated}\n  sys_id: {}\n  sys_priority: {}\n  \
             aggregation key: {key}\n  lacp_time: {time}\n",
            Address(settings.system),
            settings.system_priority
        );
        for member in &self.members {
            let freshness = match member.freshness {
                Freshness::Current => "current",
                Freshness::Expired => "expired",
                Freshness::Defaulted => "defaulted",
            };
            let attached = if member.is_attached { "attached" } else { "detached" };
            let MemberSettings { name, port, priority, .. } = &member.settings;
            let _ = write!(
                text,
                "\nmember: {name}: {freshness} {attached}\n  port_id: {port}\n  port_priority: \
                 {priority}\n  may_enable: {}\n",
                self.enables(member)
            );
            for (end, said) in [("actor", self.actor(member)), ("partner", member.partner)] {
                let _ = write!(
                    text,
                    "\n  {end} sys_id: {}\n  {end} sys_priority: {}\n  {end} port_id: {}\n  {end} \
                     port_priority: {}\n  {end} key: {}\n  {end} state:{}\n",
                    Address(said.system),
                    said.system_priority,
                    said.port,
                    said.port_priority,
                    said.key,
                    state_words(said.state)
                );
            }
        }
        text
    }

    /// Returns the bond's part of the reply to `lacp/show-stats`.
    #[must_use]
    pub fn show_statistics(&self, name: &str) -> String {
        let mut text = format!("---- {name} statistics ----\n");
        for member in &self.members {
            let counts = &member.counts;
            let _ = write!(
                text,
                "\nmember: {}:\n  TX PDUs: {}\n  RX PDUs: {}\n  RX Bad PDUs: {}\n  RX Marker \
                 Request PDUs: {}\n  Link Expired: {}\n  Link Defaulted: {}\n  Carrier Status \
                 Changed: {}\n",
                member.settings.name,
                counts.sent,
                counts.received,
                counts.malformed,
                counts.markers,
                counts.expired,
                counts.defaulted,
                counts.carrier_changes
            );
        }
        text
    }
}

impl Member {
    fn new(settings: MemberSettings) -> Self {
        Self {
            settings,
            freshness: Freshness::Defaulted,
            is_attached: false,
            is_looped: false,
            partner: Information::default(),
            known: Information::default(),
            expires_ms: 0,
            due_ms: 0,
            sent_ms: [None; MOST_IN_SECOND],
            counts: Counts::default(),
        }
    }

    /// Asks the partner for LACPDUs at the fast rate, and waits for these LACPDUs for a short time.
    fn expire(&mut self, now_ms: u64) {
        self.freshness = Freshness::Expired;
        self.partner.state = (self.partner.state | SHORT_TIMEOUT) & !SYNCHRONIZED;
        self.expires_ms = now_ms + TIMEOUT * FAST_MS;
        self.due_ms = self.due_ms.min(now_ms + FAST_MS);
    }
}

impl MemberSettings {
    /// Returns the settings that the partner knows.
    fn identity(&self) -> (u16, u16, u16) {
        (self.port, self.priority, self.key)
    }
}

impl Information {
    /// Whether a partner with the information `known` already knows everything that an LACPDU with
    /// `self` would tell.
    fn is_known_as(&self, known: &Self) -> bool {
        const TOLD: u8 = ACTIVITY | SHORT_TIMEOUT | AGGREGATION | SYNCHRONIZED;
        let told = |of: &Self| Self { state: of.state & TOLD, ..*of };
        told(self) == told(known)
    }

    fn read(bytes: &[u8; 15]) -> Self {
        let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Self {
            system_priority: number(0),
            system: std::array::from_fn(|index| bytes[2 + index]),
            key: number(8),
            port_priority: number(10),
            port: number(12),
            state: bytes[14],
        }
    }

    fn write(&self, bytes: &mut [u8]) {
        bytes[..2].copy_from_slice(&self.system_priority.to_be_bytes());
        bytes[2..8].copy_from_slice(&self.system);
        bytes[8..10].copy_from_slice(&self.key.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.port_priority.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.port.to_be_bytes());
        bytes[14] = self.state;
    }
}

impl Pdu {
    fn parse(payload: &[u8]) -> Self {
        let Some(bytes) = payload.first_chunk::<LENGTH>() else { return Self::Malformed };
        let information = |at: usize| {
            let said = bytes[at..].first_chunk().map(Information::read);
            said.unwrap_or_default()
        };
        match (bytes[0], &bytes[2..4], &bytes[22..24]) {
            (1, [1, 20], [2, 20]) => {
                Self::Lacp { actor: information(ACTOR), partner: information(PARTNER) }
            }
            (2, [1, 16], _) => Self::Marker,
            _ => Self::Malformed,
        }
    }
}

/// Builds an LACPDU. The collector's maximum delay is 0, and the remaining bytes are reserved.
fn compose(actor: &Information, partner: &Information) -> [u8; LENGTH] {
    let mut pdu = [0; LENGTH];
    // The subtype and the version; then the type and the length of each part.
    pdu[..4].copy_from_slice(&[1, 1, 1, 20]);
    actor.write(&mut pdu[ACTOR..ACTOR + 15]);
    pdu[22..24].copy_from_slice(&[2, 20]);
    partner.write(&mut pdu[PARTNER..PARTNER + 15]);
    pdu[42..44].copy_from_slice(&[3, 16]);
    pdu
}

fn state_words(state: u8) -> String {
    let words = STATE_WORDS.iter().enumerate().filter(|(bit, _)| state >> bit & 1 != 0);
    words.map(|(_, word)| format!(" {word}")).collect()
}

struct Address([u8; 6]);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.map(|byte| format!("{byte:02x}")).join(":"))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Configured => "configured",
            Self::Negotiated => "negotiated",
        })
    }
}

/// The periods of LACPDUs. The partner's information expires after `TIMEOUT` periods.
const FAST_MS: u64 = 1_000;
const SLOW_MS: u64 = 30_000;
const TIMEOUT: u64 = 3;
/// Maximum number of LACPDUs that a member sends in a second.
const MOST_IN_SECOND: usize = 3;
/// The offsets in an LACPDU of the actor's and the partner's information.
const ACTOR: usize = 4;
const PARTNER: usize = 24;
/// The bits of a port's state, the lowest bit first.
const ACTIVITY: u8 = 1;
const SHORT_TIMEOUT: u8 = 1 << 1;
const AGGREGATION: u8 = 1 << 2;
const SYNCHRONIZED: u8 = 1 << 3;
const COLLECTING: u8 = 1 << 4;
const DISTRIBUTING: u8 = 1 << 5;
const DEFAULTED: u8 = 1 << 6;
const EXPIRED: u8 = 1 << 7;
const STATE_WORDS: [&str; 8] = [
    "activity",
    "timeout",
    "aggregation",
    "synchronized",
    "collecting",
    "distributing",
    "defaulted",
    "expired",
];

#[cfg(test)]
#[path = "lacp_tests.rs"]
mod tests;
