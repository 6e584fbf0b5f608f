//! Bonds: ports that NORMAL uses as a single port, and the choice of the member that sends.

use indexmap::IndexMap;
use pipeline::Balance;
use serde::Deserialize;
use settings::{leaves, table};

use super::config::PortConfig;

table! {
    /// The settings of a bond.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct BondSettings in kebab {
        /// Two ports of the bridge or more.
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

leaves! { BondMode }

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
        match [self.updelay, self.downdelay].iter().all(|delay| *delay <= LONGEST_DELAY_MS) {
            true => Ok(()),
            false => Err("updelay and downdelay: use at most 600000 milliseconds".to_owned()),
        }
    }

    /// Whether the bridge has a port with the bond's name that is not a member of the bond.
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
    /// Whether another member has become active since the last call of [`Bond::take_move`].
    has_moved: bool,
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
    pub(super) number: flow::port_number::PortNumber,
    pub(super) address: [u8; 6],
    pub(super) has_carrier: bool,
}

impl Bond {
    /// Creates a bond. `active_address`: the address of the last active member; zeros if unknown.
    pub(super) fn new(active_address: [u8; 6]) -> Self {
        let (settings, members) = (BondSettings::default(), Vec::new());
        Self { settings, members, active: None, active_address, has_moved: false }
    }

    /// Updates the bond from its settings and the link states. `ports`: the existing ports of
    /// members, sorted by name.
    pub(super) fn run(&mut self, settings: &BondSettings, ports: &[MemberPort], now_ms: u64) {
        if self.settings != *settings {
            self.settings = settings.clone();
        }
        self.members.retain(|member| ports.iter().any(|port| port.name == member.name));
        for port in ports {
            if !self.members.iter().any(|member| member.name == port.name) {
                // A new member is enabled without delay if its link is up.
                let (name, is_enabled) = (port.name.clone(), port.has_carrier);
                self.members.push(Member { name, is_enabled, changes_at: None });
            }
        }
        self.members.sort_by(|a, b| a.name.cmp(&b.name));
        for (member, port) in self.members.iter_mut().zip(ports) {
            member.follow(port.has_carrier, &self.settings, now_ms);
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
            // If no other member is enabled, this member is enabled without waiting for its delay.
            (member.is_enabled, member.changes_at) = (true, None);
        }
        if let Some(port) = ports.iter().find(|port| Some(&port.name) == name.as_ref()) {
            self.active_address = port.address;
        }
        self.has_moved |= name.is_some() && name != self.active;
        self.active = name;
    }

    /// Returns whether another member has become active since the last call.
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
            "updelay: {updelay} ms\ndowndelay: {downdelay} ms\nlacp_status: off\n\
             lacp_fallback_ab: false\nactive-backup primary: "
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
            text.push_str("  may_enable: true\n");
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
    /// Enables or disables the member once its link has been up or down for the delay.
    fn follow(&mut self, has_carrier: bool, settings: &BondSettings, now_ms: u64) {
        if has_carrier == self.is_enabled {
            self.changes_at = None;
            return;
        }
        let delay = if has_carrier { settings.updelay } else { settings.downdelay };
        let at = *self.changes_at.get_or_insert(now_ms + delay);
        if now_ms >= at {
            (self.is_enabled, self.changes_at) = (has_carrier, None);
        }
    }
}

const LONGEST_DELAY_MS: u64 = 600_000;

#[cfg(test)]
mod tests {
    use super::*;
    use flow::port_number::PortNumber;

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
            "\nmember p3: disabled\n  may_enable: true\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
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
