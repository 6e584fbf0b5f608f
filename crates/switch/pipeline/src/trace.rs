//! The translation of a packet as text, for `ofproto/trace`.

use std::fmt::Write as _;

use flow::action::{Action, NatAddresses, NatDirection};
use flow::port_number::PortNumber;
use flow::request::PacketOut;
use flow::step::{Step, Track, Translation, sets_priority};
use flow::{Field, Key, Match, Prerequisite, word};

use super::patch::Neighbor;
use super::recirculation::{Frozen, Recirculations};
use super::rule::Rule;
use super::tables::{Tables, lock};
use super::translate::{Failure, Observe, Translator, is_oversized};

/// Prints matches and actions like ovs-ofctl, and prints steps as datapath actions.
pub trait Print {
    fn matching(&self, matching: &Match) -> String;
    /// Prints the match of a megaflow.
    fn megaflow(&self, matching: &Match) -> String;
    fn actions(&self, actions: &[Action]) -> String;
    /// Prints steps for the packet `key`.
    fn steps(&self, steps: &[Step], key: &Key) -> String;
    /// Prints flags of `ct_state`: `new|trk`.
    fn connection_state(&self, state: u16) -> String;
    /// Tells the printer that the next lines belong to another bridge. `None` means the first
    /// bridge.
    fn enters(&self, _bridge: Option<&str>) {}
}

/// Traces packets through the tables of a bridge.
#[derive(Debug)]
pub struct Trace<'a, P> {
    tables: &'a Tables,
    bridge: &'a str,
    neighbors: &'a [Neighbor<'a>],
    printer: P,
    /// The ct_state flags of the tracked packets, in order. Tracked packets after the end of this
    /// list are new connections.
    pub states: Vec<u16>,
}

impl<'a, P: Print> Trace<'a, P> {
    #[must_use]
    pub fn new(tables: &'a Tables, bridge: &'a str, printer: P) -> Self {
        Self { tables, bridge, neighbors: &[], printer, states: Vec::new() }
    }

    /// Lets traces continue in bridges that patch ports reach.
    #[must_use]
    pub fn with_neighbors(self, neighbors: &'a [Neighbor<'a>]) -> Self {
        Self { neighbors, ..self }
    }

    fn translator(&self) -> Translator<'a> {
        Translator::new(self.tables).with_neighbors(self.neighbors)
    }

    /// Traces a packet, and then each packet that continues after connection tracking, as a new
    /// packet that belongs to a tracked connection.
    #[must_use]
    pub fn run(&self, key: &Key, frame: &[u8], now_ms: u64) -> String {
        let mut text = String::new();
        let waiting = self.run_one(key, frame, now_ms, &mut text);
        self.run_waiting(waiting, frame, now_ms, text)
    }

    /// Like [`Trace::run`], for a packet-out.
    #[must_use]
    pub fn run_packet_out(&self, packet: &PacketOut, key: &Key, now_ms: u64) -> String {
        let mut text = String::new();
        let mut lines = Lines::new(&self.printer);
        let end = self.translator().observe_packet_out(packet, key, now_ms, &mut lines);
        let waiting = self.write(key, &lines, end, false, &mut text);
        self.run_waiting(waiting, &packet.frame, now_ms, text)
    }

    fn run_waiting(
        &self,
        mut waiting: Vec<(u32, Key)>,
        frame: &[u8],
        now_ms: u64,
        mut text: String,
    ) -> String {
        let mut states = self.states.iter();
        let mut seen = Vec::new();
        while let Some((id, mut key)) = (!waiting.is_empty()).then(|| waiting.remove(0)) {
            // A translated address may give a packet the same key as before.
            if seen.contains(&key) || seen.len() >= MAX_RECIRCULATIONS {
                continue;
            }
            seen.push(key.clone());
            let line = "=".repeat(79);
            let resume = match states.as_slice() {
                [] => " - resume conntrack with default ct_state=trk|new (use --ct-next to \
                       customize)"
                    .to_owned(),
                [state, ..] => {
                    states.next();
                    key.write(Field::CtState, (*state).into());
                    format!(
                        " - resume conntrack with ct_state={}",
                        self.printer.connection_state(*state)
                    )
                }
            };
            let _ = write!(text, "\n{line}\nrecirc({id:#x}){resume}\n{line}\n\n");
            waiting.extend(self.run_one(&key, frame, now_ms, &mut text));
        }
        text
    }

    fn run_one(&self, key: &Key, frame: &[u8], now_ms: u64, text: &mut String) -> Vec<(u32, Key)> {
        let mut lines = Lines::new(&self.printer);
        let end = self.translator().observe(key, frame, now_ms, &mut lines);
        self.write(key, &lines, end, self.is_for_lacp(key), text)
    }

    /// `is_consumed`: whether the switch itself takes the packet, for LACP.
    fn write(
        &self,
        key: &Key,
        lines: &Lines<'_, P>,
        (translation, mut end, failure): (Translation, Key, Option<Failure>),
        is_consumed: bool,
        text: &mut String,
    ) -> Vec<(u32, Key)> {
        end.write(Field::RecircId, key.read(Field::RecircId));
        let title = title(self.bridge);
        let underline = "-".repeat(title.len());
        let _ = writeln!(text, "Flow: {}\n\n{title}\n{underline}", self.flow(key));
        lines.print(0..lines.nodes.len(), 0, text);
        let end_text = self.flow(&end);
        let end_text = if end_text == self.flow(key) { "unchanged".to_owned() } else { end_text };
        let steps = self.printer.steps(&translation.steps, key);
        let _ = writeln!(text, "\nFinal flow: {end_text}");
        let _ = writeln!(text, "Megaflow: {}", self.megaflow(key, &translation));
        let _ = writeln!(text, "Datapath actions: {steps}");
        if let Some(failure) = failure {
            let _ = writeln!(text, "Translation failed ({failure}), packet is dropped.");
        } else if lines.is_slow || is_oversized(&translation.steps) {
            text.push_str(SLOW);
            text.push_str("  - Uses action(s) not supported by datapath.\n");
        } else if is_consumed {
            text.push_str(SLOW);
            text.push_str("  - Consists of LACP packets.\n");
        }
        self.continuations(&translation.steps, &end)
    }

    fn is_for_lacp(&self, key: &Key) -> bool {
        let ports = self.tables.port_set();
        let number = PortNumber(key.read(Field::InPort) as u32);
        key.read(Field::RecircId) == 0 && ports.is_for_lacp(number, key.read(Field::EthType) as u16)
    }

    fn flow(&self, key: &Key) -> String {
        let mask = flow_mask(key);
        self.printer.matching(&Match { value: key.masked(&mask), mask })
    }

    fn megaflow(&self, key: &Key, translation: &Translation) -> String {
        let mut mask = translation.mask.clone();
        mask.write(Field::RecircId, u128::MAX);
        mask.remove_metadata();
        let has_tag = key.read(Field::VlanTci) != 0 || key.words[word::VLAN_TPID] & TPID != 0;
        if !has_tag {
            // In Open vSwitch, every megaflow matches the Ethernet type, which already shows that
            // the packet has no tag.
            mask.write(Field::VlanTci, 0);
            mask.words[word::VLAN_TPID] = 0;
        }
        if sets_priority(&translation.steps) {
            mask.write_at(Key::PRIORITY, u128::MAX);
        }
        self.printer.megaflow(&Match { value: key.masked(&mask), mask })
    }

    /// Returns the packets that continue after connection tracking, as in Open vSwitch's traces.
    /// Packets that recirculate for another reason need a separate trace.
    fn continuations(&self, steps: &[Step], end: &Key) -> Vec<(u32, Key)> {
        let mut found = Vec::new();
        let mut end = end.clone();
        for step in steps {
            match step {
                Step::Track(track) => translate_addresses(track, &mut end),
                Step::Clone(nested) => found.extend(self.continuations(nested, &end)),
                Step::CheckLength(check) => {
                    for branch in check.branches() {
                        found.extend(self.continuations(&branch.steps, &end));
                    }
                }
                Step::Recirculate(id) => {
                    let states: &Recirculations = &lock(&self.tables.recirculations);
                    let Some(state) = states.state(*id) else { continue };
                    let Some(zone) = state.zone else { continue };
                    let mut key = end.clone();
                    for index in 0..word::CT {
                        key.words[index] = state.metadata.words[index];
                    }
                    if state.is_hashed {
                        key.write(Field::DpHash, end.read(Field::DpHash));
                    }
                    key.write_at(Key::PRIORITY, state.metadata.read_at(Key::PRIORITY));
                    key.write(Field::RecircId, (*id).into());
                    key.write(Field::CtState, NEW_AND_TRACKED);
                    key.write(Field::CtZone, zone.into());
                    found.push((*id, key));
                }
                _ => {}
            }
        }
        found
    }
}

fn title(bridge: &str) -> String {
    format!("bridge(\"{bridge}\")")
}

/// Gives the packet the first address and port that the translation allows, as in Open vSwitch's
/// traces.
fn translate_addresses(track: &Track, key: &mut Key) {
    let Some(nat) = &track.nat else { return };
    let is_source = match nat.direction {
        None => return,
        Some(NatDirection::Source) => true,
        Some(NatDirection::Destination) => false,
    };
    let pick = |source, destination| if is_source { source } else { destination };
    match &nat.addresses {
        Some(NatAddresses::V4(range)) => {
            let address = range.start().to_bits().into();
            key.write(pick(Field::IpSrc, Field::IpDst), address);
        }
        Some(NatAddresses::V6(range)) => {
            key.write(pick(Field::Ipv6Src, Field::Ipv6Dst), range.start().to_bits());
        }
        None => {}
    }
    if let Some(ports) = &nat.ports {
        key.write(pick(Field::TcpSrc, Field::TcpDst), (*ports.start()).into());
    }
}

/// The lines of a trace from the bridge's name to the final flow. The lines form a tree: the
/// children of a rule are its actions and the tables that these actions search.
struct Lines<'a, P> {
    printer: &'a P,
    nodes: Vec<Node>,
    /// Whether an action keeps the packets out of the datapath's cache.
    is_slow: bool,
    /// The bridges that the packet has entered through patch ports and not left.
    bridges: Vec<String>,
}

struct Node {
    depth: usize,
    text: String,
    /// Whether the line is an action or a note. Otherwise the line is a table, and its indentation
    /// depends on its children.
    is_leaf: bool,
    is_bridge: bool,
}

impl<'a, P: Print> Lines<'a, P> {
    fn new(printer: &'a P) -> Self {
        Self { printer, nodes: Vec::new(), is_slow: false, bridges: Vec::new() }
    }

    fn print(&self, range: std::ops::Range<usize>, level: usize, text: &mut String) {
        let depth = self.nodes.get(range.start).map_or(0, |node| node.depth);
        let mut index = range.start;
        while index < range.end {
            let node = &self.nodes[index];
            let rest = &self.nodes[index + 1..range.end];
            let below = rest.iter().take_while(|node| node.depth > depth).count();
            let end = index + 1 + below;
            let more = usize::from(node.is_leaf || end < range.end);
            let indent = " ".repeat((level + more) * 4);
            if node.is_bridge {
                let underline = "-".repeat(node.text.len());
                let _ = writeln!(text, "\n{indent}{}\n{indent}{underline}", node.text);
            } else {
                let _ = writeln!(text, "{indent}{}", node.text);
            }
            self.print(index + 1..end, level + more * 2, text);
            index = end;
        }
    }

    fn push(&mut self, depth: usize, text: String, is_leaf: bool) {
        self.nodes.push(Node { depth, text, is_leaf, is_bridge: false });
    }
}

impl<P: Print> Observe for Lines<'_, P> {
    fn searched(&mut self, depth: usize, table: u8, rule: Option<&Rule>) {
        let text = match rule {
            Some(rule) => {
                let matching = self.printer.matching(&rule.matching());
                let comma = if matching.is_empty() { "" } else { ", " };
                let priority = rule.priority;
                let cookie = match rule.cookie {
                    0 => String::new(),
                    cookie => format!(", cookie {cookie:#x}"),
                };
                format!("{table:2}. {matching}{comma}priority {priority}{cookie}")
            }
            None => format!("{table:2}. No match."),
        };
        self.push(depth, text, false);
    }

    fn drops_fragment(&mut self, depth: usize, table: u8) {
        let reason = "Packets are IP fragments and the fragment handling mode is \"drop\".";
        self.push(depth, format!("{table:2}. {reason}"), false);
        self.push(depth + 1, "drop".to_owned(), true);
    }

    fn acts(&mut self, depth: usize, action: &Action) {
        let text = self.printer.actions(std::slice::from_ref(action));
        self.push(depth, text, true);
        self.is_slow |= *action == Action::DebugSlow;
        if let Action::Ct(ct) = action
            && ct.nat.is_some()
        {
            let nat = flow::action::Ct { nat: ct.nat.clone(), ..flow::action::Ct::default() };
            let text = self.printer.actions(&[Action::Ct(Box::new(nat))]);
            let inner = text.strip_prefix("ct(").and_then(|text| text.strip_suffix(')'));
            self.push(depth, inner.unwrap_or(&text).to_owned(), true);
        }
    }

    fn restarts(&mut self) {
        self.nodes.clear();
        self.is_slow = false;
        self.bridges.clear();
        self.printer.enters(None);
    }

    fn crosses(&mut self, depth: usize, bridge: &str) {
        self.nodes.push(Node { depth, text: title(bridge), is_leaf: false, is_bridge: true });
        self.bridges.push(bridge.to_owned());
        self.printer.enters(Some(bridge));
    }

    fn returns(&mut self) {
        self.bridges.pop();
        self.printer.enters(self.bridges.last().map(String::as_str));
    }

    fn notes(&mut self, depth: usize, note: &str) {
        let is_marked = note.starts_with("->") || note.starts_with(">>");
        let text = if is_marked { format!(" {note}") } else { note.to_owned() };
        self.push(depth, text, true);
    }

    fn enters(&mut self, depth: usize, bucket: u32) {
        self.push(depth, format!("bucket {bucket}"), false);
    }

    fn thaws(&mut self, depth: usize, state: &Frozen) {
        self.push(depth, "thaw".to_owned(), true);
        let mut lines = vec![format!("Resuming from table {}", state.table.unwrap_or(0))];
        let rest: Vec<_> = state.rest.iter().flat_map(|rest| rest.actions.clone()).collect();
        for (name, actions) in [("action set", &state.action_set), ("actions", &rest)] {
            if !actions.is_empty() {
                lines.push(format!("Restoring {name}: {}", self.printer.actions(actions)));
            }
        }
        let last = lines.len() - 1;
        for (index, line) in lines.iter().enumerate() {
            // The line is indented like the tree's inner nodes.
            let indent = if index < last { 8 } else { 4 };
            self.push(depth, format!("{:indent$}{line}", ""), true);
        }
    }
}

fn is_ip(key: &Key) -> bool {
    matches!(key.read(Field::EthType), 0x0800 | 0x86dd)
}

/// Returns a mask of the fields that a packet of this type has, and of the metadata that is not
/// zero.
fn flow_mask(key: &Key) -> Key {
    let mut mask = Key::ZERO;
    let protocol = key.read(Field::NwProto);
    let is_icmpv6 = key.read(Field::EthType) == 0x86dd && protocol == 58;
    let icmp_type = key.read(Field::Icmpv6Type);
    for field in Field::ALL {
        let eth_type = key.read(Field::EthType);
        let is_present = match field.prerequisite() {
            Prerequisite::Any => !is_metadata(*field) || key.read(*field) != 0,
            Prerequisite::Vlan => false,
            Prerequisite::Mpls => matches!(eth_type, 0x8847 | 0x8848),
            Prerequisite::Arp => matches!(eth_type, 0x0806 | 0x8035),
            Prerequisite::Ipv4 => eth_type == 0x0800,
            Prerequisite::Ipv6 => eth_type == 0x86dd,
            Prerequisite::Ip => is_ip(key),
            Prerequisite::Tcp => is_ip(key) && protocol == 6,
            Prerequisite::Udp => is_ip(key) && protocol == 17,
            Prerequisite::Sctp => is_ip(key) && protocol == 132,
            Prerequisite::Icmpv4 => eth_type == 0x0800 && protocol == 1,
            Prerequisite::Icmpv6 => is_icmpv6,
            Prerequisite::NeighborDiscovery => is_icmpv6 && matches!(icmp_type, 135 | 136),
            Prerequisite::NeighborSolicitation => is_icmpv6 && icmp_type == 135,
            Prerequisite::NeighborAdvertisement => is_icmpv6 && icmp_type == 136,
        };
        // A wide register has the same bits as narrow registers; only the narrow registers are
        // shown.
        if field.name().starts_with('x') {
            continue;
        }
        let is_tracked = usize::from(field.place().word) < word::ETH_SRC;
        if is_present && (!is_tracked || key.read(*field) != 0 || *field == Field::InPort) {
            mask.write(*field, u128::MAX);
        }
    }
    mask.write(Field::ConjId, 0);
    if key.read_at(Key::PRIORITY) != 0 {
        mask.write_at(Key::PRIORITY, u128::MAX);
    }
    mask
}

fn is_metadata(field: Field) -> bool {
    usize::from(field.place().word) < word::ETH_SRC && field != Field::InPort
}

const MAX_RECIRCULATIONS: usize = 64;
/// The bits of the outer VLAN tag's type in its key word.
const TPID: u64 = 0xffff;
const NEW_AND_TRACKED: u128 = 0x21;
/// The message is Open vSwitch's.
const SLOW: &str = "This flow is handled by the userspace slow path because it:\n";
