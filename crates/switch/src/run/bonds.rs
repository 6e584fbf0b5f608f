//! Bonds: ports that NORMAL uses as a single port, and the choice of the member that sends.

use std::collections::BTreeMap;

use flow::port_number::PortNumber;
use indexmap::IndexMap;
use pipeline::{Balance, LacpState};
use serde::Deserialize;
use settings::{leaves, table};

use super::config::{HardwareAddress, PortConfig};
use super::lacp::{self, Event, Lacp, LacpSettings, MemberSettings, Status};

table! {
    /// The settings of a bond.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct BondSettings in kebab {
        /// The names of the bond's members: at least two ports of the bridge.
        pub members: Vec<String> = vec![],
        pub mode: BondMode = BondMode::default(),
        /// The member of an active-backup bond that sends whenever its link is up.
        pub primary: Option<String>,
        /// The milliseconds that a link must be up before its member is enabled, and down before
        /// its member is disabled.
        pub updelay: u64 = 0,
        pub downdelay: u64 = 0,
        /// Seed of the hash that chooses a member for each packet.
        pub hash_basis: u32 = 0,
        /// Whether all members of a balance-slb bond receive multicast.
        pub all_members_active: bool = false,
        /// Whether the bond negotiates with the connected switch by LACP, and whether the bond
        /// begins.
        pub lacp: LacpMode = LacpMode::default(),
        pub lacp_time: LacpTime = LacpTime::default(),
        /// The LACP system ID of this end, by default the address of the bridge's own port.
        pub lacp_system_id: Option<HardwareAddress>,
        /// The end with the lower number decides which members carry traffic; 65534 by default.
        pub lacp_system_priority: Option<u16>,
        /// Whether the bond works as active-backup while no partner answers.
        pub lacp_fallback_ab: bool = false,
    }
    beside {
        /// The address of the last active member if a database has stored it, otherwise zeros.
        pub last_active: [u8; 6],
    }
}

/// How a bond chooses a member for a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BondMode {
    #[default]
    ActiveBackup,
    BalanceSlb,
    BalanceTcp,
}

/// Whether a bond speaks LACP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LacpMode {
    #[default]
    Off,
    /// The bond sends LACPDUs from the start.
    Active,
    /// The bond answers a partner that is active.
    Passive,
}

/// How often the partner of a bond shall send LACPDUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LacpTime {
    /// The partner sends an LACPDU each second.
    Fast,
    /// The partner sends an LACPDU each 30 seconds.
    #[default]
    Slow,
}

leaves! { BondMode, LacpMode, LacpTime }

table! {
    /// The settings of a port as a member of a bond with LACP.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct LacpPort in kebab {
        /// The number of the port in LACPDUs, by default the OpenFlow number.
        pub port_id: Option<u16>,
        /// The port with the lower number carries traffic first.
        pub port_priority: Option<u16>,
        /// The key of the bond, by default the port id of the first member.
        pub aggregation_key: Option<u16>,
    }
}

impl BondMode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ActiveBackup => "active-backup",
            Self::BalanceSlb => "balance-slb",
            Self::BalanceTcp => "balance-tcp",
        }
    }

    /// Returns the mode that Open vSwitch's database calls `name`.
    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [Self::ActiveBackup, Self::BalanceSlb, Self::BalanceTcp];
        all.into_iter().find(|mode| mode.name() == name)
    }

    fn balance(self) -> Balance {
        match self {
            Self::ActiveBackup => Balance::ActiveBackup,
            Self::BalanceSlb => Balance::Slb,
            Self::BalanceTcp => Balance::Tcp,
        }
    }
}

impl BondSettings {
    /// Checks the settings. `is_port` tells whether the bridge has a port with a given name.
    pub(super) fn check(&self, is_port: impl Fn(&str) -> bool) -> Result<(), String> {
        if let Some(unknown) = self.members.iter().find(|name| !is_port(name)) {
            return Err(format!("there is no port {unknown:?}: name ports of the bridge"));
        }
        let mut names: Vec<_> = self.members.iter().collect();
        names.sort();
        names.dedup();
        if names.len() < 2 || names.len() < self.members.len() {
            return Err("members: name two different ports or more".to_owned());
        }
        if self.lacp_system_id.is_some_and(|address| address.0 == [0; 6]) {
            return Err("lacp-system-id: use an address that is not zero".to_owned());
        }
        match [self.updelay, self.downdelay].iter().all(|delay| *delay <= LONGEST_DELAY_MS) {
            true => Ok(()),
            false => Err("updelay and downdelay: use at most 600000 milliseconds".to_owned()),
        }
    }

    /// Whether the bridge has a port that has the bond's name but is no member of the bond.
    pub(super) fn has_name_of_other(
        &self,
        bond: &str,
        ports: &IndexMap<String, PortConfig>,
    ) -> bool {
        ports.contains_key(bond) && !self.members.iter().any(|member| member == bond)
    }
}

/// The present state of a bond.
#[derive(Debug)]
pub(super) struct Bond {
    pub(super) settings: BondSettings,
    /// The members, sorted by name.
    members: Vec<Member>,
    /// The name of the active member, and the address of the last active member, which stays when
    /// all members are down.
    active: Option<String>,
    pub(super) active_address: [u8; 6],
    /// Whether a different member has become active since the last call of [`Bond::take_move`].
    has_moved: bool,
    lacp: Option<Lacp>,
    /// The settings of the members for LACP, by their names.
    pub(super) lacp_ports: BTreeMap<String, LacpPort>,
}

#[derive(Debug)]
struct Member {
    name: String,
    is_enabled: bool,
    /// When the pending change of `is_enabled` takes effect, in milliseconds.
    changes_at: Option<u64>,
}

/// The port of a bond member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemberPort {
    pub(super) name: String,
    pub(super) number: PortNumber,
    pub(super) address: [u8; 6],
    pub(super) has_carrier: bool,
}

impl Bond {
    /// Creates a bond. `active_address`: the address of the last active member; zeros if unknown.
    pub(super) fn new(active_address: [u8; 6]) -> Self {
        let (settings, members) = (BondSettings::default(), Vec::new());
        let lacp_ports = BTreeMap::new();
        Self {
            settings,
            members,
            active: None,
            active_address,
            has_moved: false,
            lacp: None,
            lacp_ports,
        }
    }

    /// Negotiates with the connected switch, before [`Bond::run`]. `system`: the address of the
    /// bridge; `received`: the LACP frames that arrived, each with the number of its port. Returns
    /// frames, each with the number of the port that sends the frame, and lines for the log.
    pub(super) fn negotiate(
        &mut self,
        system: [u8; 6],
        ports: &[MemberPort],
        received: &[(PortNumber, Vec<u8>)],
        now_ms: u64,
    ) -> (Vec<(PortNumber, Vec<u8>)>, Vec<Event>) {
        let settings = &self.settings;
        if settings.lacp == LacpMode::Off {
            self.lacp = None;
            return (Vec::new(), Vec::new());
        }
        let lacp_settings = LacpSettings {
            is_active: settings.lacp == LacpMode::Active,
            is_fast: settings.lacp_time == LacpTime::Fast,
            system: settings.lacp_system_id.map_or(system, |address| address.0),
            system_priority: settings.lacp_system_priority.unwrap_or(USUAL_PRIORITY),
            falls_back: settings.lacp_fallback_ab,
        };
        let member = |port: &MemberPort| {
            let own = self.lacp_ports.get(&port.name).cloned().unwrap_or_default();
            MemberSettings {
                name: port.name.clone(),
                // OpenFlow numbers of ports fit in 16 bits.
                port: own.port_id.unwrap_or(port.number.0 as u16),
                priority: own.port_priority.unwrap_or(u16::MAX),
                key: own.aggregation_key.unwrap_or(0),
                has_carrier: port.has_carrier,
            }
        };
        let members = ports.iter().map(member).collect();
        let lacp = self.lacp.get_or_insert_default();
        lacp.configure(lacp_settings, members, now_ms);
        for (number, frame) in received {
            if let Some(port) = ports.iter().find(|port| port.number == *number) {
                lacp.receive(&port.name, payload(frame), now_ms);
            }
        }
        let frame = |(name, pdu): (String, [u8; lacp::LENGTH])| {
            let port = ports.iter().find(|port| port.name == name)?;
            let ether_type = lacp::ETHER_TYPE.to_be_bytes();
            let frame = [&lacp::GROUP[..], &port.address, &ether_type, &pdu].concat();
            Some((port.number, frame))
        };
        let frames = lacp.run(now_ms).into_iter().filter_map(frame).collect();
        (frames, lacp.take_events())
    }

    pub(super) fn lacp(&self) -> Option<&Lacp> {
        self.lacp.as_ref()
    }

    fn lacp_status(&self) -> Status {
        self.lacp.as_ref().map_or(Status::Off, Lacp::status)
    }

    /// Whether a member may carry frames: its link is up, and LACP permits traffic.
    fn may_enable(&self, port: &MemberPort) -> bool {
        port.has_carrier && self.lacp.as_ref().is_none_or(|lacp| lacp.may_enable(&port.name))
    }

    /// Updates the bond from its settings and the link states. `ports`: the existing ports of
    /// members, sorted by name.
    pub(super) fn run(&mut self, settings: &BondSettings, ports: &[MemberPort], now_ms: u64) {
        if self.settings != *settings {
            self.settings = settings.clone();
        }
        self.members.retain(|member| ports.iter().any(|port| port.name == member.name));
        let may_enable: Vec<_> = ports.iter().map(|port| self.may_enable(port)).collect();
        for (port, may_enable) in ports.iter().zip(&may_enable) {
            if !self.members.iter().any(|member| member.name == port.name) {
                // A new member is enabled without delay if its link is up.
                let (name, is_enabled) = (port.name.clone(), *may_enable);
                self.members.push(Member { name, is_enabled, changes_at: None });
            }
        }
        self.members.sort_by(|a, b| a.name.cmp(&b.name));
        for (member, may_enable) in self.members.iter_mut().zip(may_enable) {
            member.follow(may_enable, &self.settings, now_ms);
        }
        let primary = self.primary().filter(|name| self.is_enabled(name)).map(str::to_owned);
        let is_moved = primary.is_some() && primary != self.active;
        if is_moved || !self.active.as_ref().is_some_and(|name| self.is_enabled(name)) {
            let next = primary.or_else(|| self.next_active(ports));
            self.activate(next, ports);
        }
    }

    /// Returns the member that should become active: the last active member; else another enabled
    /// member; else the member that will be enabled next.
    fn next_active(&self, ports: &[MemberPort]) -> Option<String> {
        let last = ports.iter().find(|port| port.address == self.active_address);
        let last = last.filter(|port| self.is_enabled(&port.name)).map(|port| port.name.clone());
        let enabled = || self.members.iter().find(|member| member.is_enabled);
        let waiting = || {
            let waiting = self.members.iter().filter(|member| member.changes_at.is_some());
            waiting.min_by_key(|member| member.changes_at)
        };
        last.or_else(|| enabled().or_else(waiting).map(|member| member.name.clone()))
    }

    fn activate(&mut self, name: Option<String>, ports: &[MemberPort]) {
        if let Some(member) =
            self.members.iter_mut().find(|member| Some(&member.name) == name.as_ref())
        {
            // If no other member is enabled, this member is enabled at once, without its delay.
            (member.is_enabled, member.changes_at) = (true, None);
        }
        if let Some(port) = ports.iter().find(|port| Some(&port.name) == name.as_ref()) {
            self.active_address = port.address;
        }
        self.has_moved |= name.is_some() && name != self.active;
        self.active = name;
    }

    /// Returns whether a different member has become active since the last call.
    pub(super) fn take_move(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    /// Makes a member active until its link goes down.
    pub(super) fn set_active(
        &mut self,
        name: &str,
        ports: &[MemberPort],
    ) -> Result<bool, &'static str> {
        if !self.members.iter().any(|member| member.name == name) {
            return Err("no such member");
        }
        if !self.is_enabled(name) {
            return Err("cannot make disabled member active");
        }
        if self.active.as_deref() == Some(name) {
            return Ok(false);
        }
        self.activate(Some(name.to_owned()), ports);
        Ok(true)
    }

    /// Enables or disables a member at once.
    pub(super) fn set_enabled(&mut self, name: &str, is_enabled: bool) -> Result<(), &'static str> {
        let member = self.members.iter_mut().find(|member| member.name == name);
        let member = member.ok_or("no such member")?;
        (member.is_enabled, member.changes_at) = (is_enabled, None);
        Ok(())
    }

    fn primary(&self) -> Option<&str> {
        let is_used = self.settings.mode == BondMode::ActiveBackup;
        self.settings.primary.as_deref().filter(|_| is_used)
    }

    fn is_enabled(&self, name: &str) -> bool {
        self.members.iter().any(|member| member.name == name && member.is_enabled)
    }

    /// Converts the bond to the type that the bridge's tables store.
    pub(super) fn for_tables(&self, ports: &[MemberPort]) -> pipeline::Bond {
        let number = |name: &str| {
            let port = ports.iter().find(|port| port.name == name);
            port.map(|port| port.number)
        };
        let enabled = self.members.iter().filter(|member| member.is_enabled);
        pipeline::Bond {
            members: ports.iter().map(|port| port.number).collect(),
            enabled: enabled.filter_map(|member| number(&member.name)).collect(),
            active: self.active.as_deref().and_then(number),
            balance: self.settings.mode.balance(),
            basis: self.settings.hash_basis,
            all_active: self.settings.all_members_active,
            lacp: match self.lacp_status() {
                Status::Off => LacpState::Off,
                Status::Negotiated => LacpState::Negotiated,
                Status::Configured if self.settings.lacp_fallback_ab => LacpState::FallenBack,
                Status::Configured => LacpState::Waiting,
            },
        }
    }

    /// Returns the reply to `bond/show`.
    pub(super) fn show(&self, name: &str, ports: &[MemberPort], now_ms: u64) -> String {
        use std::fmt::Write as _;
        let settings = &self.settings;
        let mut text = format!(
            "---- {name} ----\nbond_mode: {}\nbond may use recirculation: no, Recirc-ID : -1\n\
             bond-hash-basis: {}\nlb_output action: disabled, bond-id: -1\n",
            settings.mode.name(),
            settings.hash_basis
        );
        if settings.mode == BondMode::BalanceSlb {
            let _ = writeln!(text, "all members active: {}", settings.all_members_active);
        }
        let (updelay, downdelay) = (settings.updelay, settings.downdelay);
        let _ = write!(
            text,
            "updelay: {updelay} ms\ndowndelay: {downdelay} ms\nlacp_status: {}\n\
             lacp_fallback_ab: {}\nactive-backup primary: ",
            self.lacp_status(),
            settings.lacp != LacpMode::Off && settings.lacp_fallback_ab
        );
        let _ = match self.primary() {
            None => writeln!(text, "<none>"),
            Some(primary) if self.members.iter().any(|member| member.name == primary) => {
                writeln!(text, "{primary}")
            }
            Some(primary) => writeln!(text, "{primary} (no such member)"),
        };
        let address = self.active_address.map(|byte| format!("{byte:02x}")).join(":");
        let of_address = ports.iter().find(|port| port.address == self.active_address);
        let active = of_address.map_or("none", |port| port.name.as_str());
        let _ = writeln!(text, "active member mac: {address}({active})");
        for member in &self.members {
            let state = if member.is_enabled { "enabled" } else { "disabled" };
            let _ = writeln!(text, "\nmember {}: {state}", member.name);
            if self.active.as_ref() == Some(&member.name) {
                text.push_str("  active member\n");
            }
            if let Some(at) = member.changes_at {
                let delay = if member.is_enabled { "downdelay" } else { "updelay" };
                let _ = writeln!(text, "  {delay} expires in {} ms", at.saturating_sub(now_ms));
            }
            let port = ports.iter().find(|port| port.name == member.name);
            let may_enable = port.is_some_and(|port| self.may_enable(port));
            let _ = writeln!(text, "  may_enable: {may_enable}");
        }
        text.push('\n');
        text
    }

    /// Returns the bond's line in `bond/list`.
    pub(super) fn line(&self, name: &str) -> String {
        let members: Vec<_> = self.members.iter().map(|member| member.name.as_str()).collect();
        format!("{name}\t{}\t0\t{}\n", self.settings.mode.name(), members.join(", "))
    }
}

impl Member {
    /// Enables or disables the member when `may_enable` has kept its new value for the delay. With
    /// LACP, there is no delay.
    fn follow(&mut self, may_enable: bool, settings: &BondSettings, now_ms: u64) {
        if may_enable == self.is_enabled {
            self.changes_at = None;
            return;
        }
        let delay = match settings.lacp {
            LacpMode::Off if may_enable => settings.updelay,
            LacpMode::Off => settings.downdelay,
            LacpMode::Active | LacpMode::Passive => 0,
        };
        let at = *self.changes_at.get_or_insert(now_ms + delay);
        if now_ms >= at {
            (self.is_enabled, self.changes_at) = (may_enable, None);
        }
    }
}

/// Returns the bytes after the Ethernet header of an LACP frame. Returns no bytes for a tagged
/// frame, which cannot be an LACP frame.
fn payload(frame: &[u8]) -> &[u8] {
    match frame.split_at_checked(14) {
        Some((header, payload)) if header[12..] == lacp::ETHER_TYPE.to_be_bytes() => payload,
        _ => &[],
    }
}

/// As in Open vSwitch, a bond is preferred to a single port, whose priority is 65535: lower numbers
/// are preferred.
const USUAL_PRIORITY: u16 = 65_534;
const LONGEST_DELAY_MS: u64 = 600_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(up: [bool; 3]) -> Vec<MemberPort> {
        let port = |(index, has_carrier): (usize, bool)| MemberPort {
            name: format!("p{}", index + 1),
            number: PortNumber(index as u32 + 1),
            address: [2, 0, 0, 0, 0, index as u8 + 1],
            has_carrier,
        };
        up.into_iter().enumerate().map(port).collect()
    }

    fn settings(primary: Option<&str>, updelay: u64, downdelay: u64) -> BondSettings {
        let members = vec!["p1".to_owned(), "p2".to_owned(), "p3".to_owned()];
        let primary = primary.map(str::to_owned);
        BondSettings { members, primary, updelay, downdelay, ..BondSettings::default() }
    }

    #[test]
    fn the_active_bond_member_changes_with_the_carrier_and_returns_only_to_a_primary() {
        let mut bond = Bond::new([0; 6]);
        let mut active = |settings: &BondSettings, up: [bool; 3]| {
            bond.run(settings, &ports(up), 0);
            bond.for_tables(&ports(up)).active.map(|number| number.0)
        };
        let none = settings(None, 0, 0);
        assert_eq!(active(&none, [true; 3]), Some(1));
        assert_eq!(active(&none, [false, true, true]), Some(2));
        assert_eq!(active(&none, [true; 3]), Some(2));
        assert_eq!(active(&settings(Some("p1"), 0, 0), [true; 3]), Some(1));
        assert_eq!(active(&none, [false; 3]), None);
        assert_eq!(active(&none, [true, true, true]), Some(1), "the last one");
    }

    #[test]
    fn a_bond_waits_for_its_delays_unless_no_other_member_is_up() {
        let mut bond = Bond::new([0; 6]);
        let delays = settings(None, 200, 100);
        let mut run = |up: [bool; 3], now_ms: u64| {
            bond.run(&delays, &ports(up), now_ms);
            let bond = bond.for_tables(&ports(up));
            (bond.active.map(|number| number.0), bond.enabled.len())
        };
        assert_eq!(run([true; 3], 0), (Some(1), 3));
        assert_eq!(run([false, true, true], 10), (Some(1), 3));
        assert_eq!(run([false, true, true], 110), (Some(2), 2));
        assert_eq!(run([true; 3], 150), (Some(2), 2));
        assert_eq!(run([false, true, true], 200), (Some(2), 2), "the up delay starts again");
        assert_eq!(run([true; 3], 300), (Some(2), 2));
        assert_eq!(run([true; 3], 500), (Some(2), 3));
        assert_eq!(run([false; 3], 600), (Some(2), 3));
        assert_eq!(run([false; 3], 700), (None, 0));
        assert_eq!(run([false, false, true], 710), (Some(3), 1), "no other member is up");
    }

    #[test]
    fn a_command_chooses_the_active_member_that_bond_show_prints() {
        let mut bond = Bond::new([2, 0, 0, 0, 0, 2]);
        let up = ports([true, true, false]);
        bond.run(&settings(Some("p9"), 7, 0), &up, 0);
        assert_eq!(bond.set_active("p2", &up), Ok(false));
        assert_eq!(bond.set_active("p1", &up), Ok(true));
        assert_eq!(bond.set_active("p3", &up), Err("cannot make disabled member active"));
        assert_eq!(bond.set_active("p4", &up), Err("no such member"));
        let text = bond.show("bond0", &up, 0);
        for part in [
            "bond_mode: active-backup\n",
            "updelay: 7 ms\n",
            "active-backup primary: p9 (no such member)\n",
            "active member mac: 02:00:00:00:00:01(p1)\n",
            "\nmember p1: enabled\n  active member\n  may_enable: true\n\nmember p2: enabled\n",
            "\nmember p3: disabled\n  may_enable: false\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }

    #[test]
    fn lacp_enables_the_members_that_have_a_partner() {
        let ports = ports([true, true, false]);
        let fast = LacpTime::Fast;
        let mut ours = settings(None, 500, 500);
        (ours.lacp, ours.lacp_time) = (LacpMode::Active, fast);
        let theirs = BondSettings { lacp: LacpMode::Passive, ..ours.clone() };
        let mut bonds = [&ours, &theirs].map(|settings| {
            let mut bond = Bond::new([0; 6]);
            bond.settings = settings.clone();
            bond
        });
        bonds[1].lacp_ports.insert(
            "p1".to_owned(),
            LacpPort { port_id: Some(9), port_priority: None, aggregation_key: Some(8) },
        );
        let mut waiting = [Vec::new(), Vec::new()];
        for now_ms in (0..2_000).step_by(100) {
            for index in [0, 1] {
                let (bond, received) = (&mut bonds[index], std::mem::take(&mut waiting[index]));
                let system = [2, 0, 0, 0, 9, index as u8];
                let (frames, _) = bond.negotiate(system, &ports, &received, now_ms);
                let settings = bond.settings.clone();
                bond.run(&settings, &ports, now_ms);
                // Only port p1 is connected, so the other frames get lost.
                let cable = frames.into_iter().filter(|(port, _)| port.0 == 1);
                waiting[1 - index].extend(cable);
            }
        }
        let table = bonds[0].for_tables(&ports);
        assert_eq!((table.enabled, table.lacp), (vec![PortNumber(1)], LacpState::Negotiated));
        let text = bonds[0].show("bond0", &ports, 2_000);
        for part in [
            "lacp_status: negotiated\nlacp_fallback_ab: false\n",
            "\nmember p1: enabled\n  active member\n  may_enable: true\n",
            "\nmember p2: disabled\n  may_enable: false\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        let seen = bonds[0].lacp().unwrap().show("bond0");
        assert!(seen.contains("partner sys_id: 02:00:00:00:09:01\n"), "{seen}");
        assert!(seen.contains("partner sys_priority: 65534\n"), "{seen}");
        assert!(seen.contains("partner port_id: 9\n") && seen.contains("partner key: 8\n"));
        // A tagged frame is not an LACPDU.
        let (port, frame) = waiting[1].pop().unwrap_or((PortNumber(1), vec![0; 124]));
        let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
        bonds[1].negotiate([2; 6], &ports, &[(port, tagged)], 2_000);
        let counts = bonds[1].lacp().unwrap().show_statistics("bond0");
        assert!(counts.contains("RX Bad PDUs: 1\n"), "{counts}");
        ours.lacp = LacpMode::Off;
        bonds[0].settings = ours;
        bonds[0].negotiate([2; 6], &ports, &[], 2_000);
        assert_eq!(bonds[0].for_tables(&ports).lacp, LacpState::Off);
    }

    #[test]
    fn a_bond_needs_two_ports_that_exist() {
        let check = |members: &[&str]| {
            let members = members.iter().map(|name| (*name).to_owned()).collect();
            let settings = BondSettings { members, ..BondSettings::default() };
            settings.check(|name| name.starts_with('p'))
        };
        assert_eq!(check(&["p1", "p2"]), Ok(()));
        assert!(check(&["p1", "p1"]).unwrap_err().contains("two different"));
        assert!(check(&["p1", "q"]).unwrap_err().contains("no port \"q\""));
    }
}
