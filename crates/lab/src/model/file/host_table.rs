//! `[host.NAME]`: a host of the lab that is a real machine.

use super::ansible::Inventory;
use super::locate::FileError;
use super::schema::Document;
use settings::table;
use std::net::IpAddr;
use toml::Spanned;

table! {
    #[derive(Debug, Clone, Default)]
    pub struct HostSpec {
        /// The destination of ssh: `root@10.0.0.5`, or a name of the user's ssh configuration.
        pub ssh: Option<Spanned<String>>,
        /// Whether the host is this machine itself, without ssh.
        pub here: Option<Spanned<bool>>,
        /// The file that ssh reads instead of the user's configuration (its option `-F`).
        pub config: Option<Spanned<String>>,
        /// Whether the agent becomes root by `sudo -n`, for a login without root.
        pub sudo: Option<Spanned<bool>>,
        /// The host's address on the measured path. By default the address of the ssh connection.
        pub address: Option<Spanned<String>>,
    }
    beside {
        /// The key that ssh uses (its option `-i`), as an inventory names the key.
        pub(crate) key: Option<String>,
        /// The jump host that an inventory names (ssh's `ProxyJump`).
        pub(crate) jump: Option<String>,
    }
}

impl HostSpec {
    /// Builds the settings of a host that ssh reaches by this destination.
    pub(crate) fn by_ssh(destination: &str) -> Self {
        let ssh = Spanned::new(0..0, destination.to_owned());
        Self { ssh: Some(ssh), ..Self::default() }
    }

    pub(crate) fn is_here(&self) -> bool {
        self.here.as_ref().is_some_and(|here| *here.get_ref())
    }

    pub(crate) fn uses_sudo(&self) -> bool {
        self.sudo.as_ref().is_some_and(|sudo| *sudo.get_ref())
    }

    pub(crate) fn is_real(&self) -> bool {
        self.ssh.is_some() || self.is_here()
    }

    /// Returns `ssh root@10.0.0.5`, `ssh admin@10.0.0.5 as root by sudo`, or `this machine`.
    pub(crate) fn place(&self) -> String {
        match &self.ssh {
            Some(ssh) if self.uses_sudo() => format!("ssh {} as root by sudo", ssh.get_ref()),
            Some(ssh) => format!("ssh {}", ssh.get_ref()),
            None => "this machine".to_owned(),
        }
    }
}

/// Returns the URL for a destination such as `root@10.0.0.5:2222`. ssh reads a port only in a URL,
/// and otherwise takes the whole text as a host name.
pub(crate) fn with_port(destination: &str) -> Option<String> {
    let (host, port) = destination.rsplit_once(':')?;
    let name = host.rsplit('@').next().unwrap_or_default();
    // An IPv6 address without brackets has several colons, and no port.
    let is_name = !host.contains([':', '/']) || (name.starts_with('[') && name.ends_with(']'));
    (is_name && port.parse::<u16>().is_ok()).then(|| format!("ssh://{destination}"))
}

impl Document {
    /// Whether the lab's hosts are real machines.
    pub fn has_real_hosts(&self) -> bool {
        self.host.values().any(|host| host.get_ref().is_real())
    }

    /// Returns the settings of a host that is a real machine.
    pub(crate) fn real_host(&self, name: &str) -> Option<&HostSpec> {
        self.host.get(name).map(Spanned::get_ref).filter(|host| host.is_real())
    }

    /// Returns the name and the place of each real host: `client` and `ssh root@10.0.0.5`.
    pub fn places_of_hosts(&self) -> Vec<(String, String)> {
        let real = self.host.iter().filter(|(_, host)| host.get_ref().is_real());
        real.map(|(name, host)| (name.get_ref().clone(), host.get_ref().place())).collect()
    }

    pub(crate) fn check_host_tables(&self) -> Result<(), FileError> {
        for (name, table) in &self.host {
            self.known_at("host", name.get_ref(), name.span(), &self.machines())?;
            let host = table.get_ref();
            let refuse = |place: std::ops::Range<usize>, message: &str| self.refuse(place, message);
            if let Some(ssh) = &host.ssh {
                let text = ssh.get_ref();
                let plain = |c: char| !c.is_whitespace() && !c.is_control();
                if text.is_empty() || text.starts_with('-') || !text.chars().all(plain) {
                    refuse(
                        ssh.span(),
                        "`ssh` is a destination: root@10.0.0.5, or a name of ssh's configuration",
                    )?;
                }
                if let Some(url) = with_port(text) {
                    let message = format!("ssh reads no port in `{text}`: write `ssh = \"{url}\"`");
                    refuse(ssh.span(), &message)?;
                }
                if host.is_here() {
                    refuse(ssh.span(), "`ssh` and `here` both say where the host is: keep one")?;
                }
            }
            if let Some(config) = host.config.as_ref().filter(|_| host.ssh.is_none()) {
                refuse(config.span(), "`config` is for hosts with `ssh`")?;
            }
            if let Some(sudo) = host.sudo.as_ref().filter(|_| host.ssh.is_none()) {
                refuse(
                    sudo.span(),
                    "`sudo` is for hosts with `ssh`: start weir itself by sudo here",
                )?;
            }
            if let Some(address) = &host.address {
                if self.is_middle(name.get_ref()) {
                    refuse(
                        address.span(),
                        "`address` is for hosts with programs: the machine that emulates a link needs none",
                    )?;
                } else if !host.is_real() {
                    refuse(address.span(), "`address` is for real hosts: add `ssh`")?;
                }
                if address.get_ref().parse::<IpAddr>().is_err() {
                    refuse(address.span(), "`address` is an IP address: 10.0.0.5")?;
                }
            }
            if host.is_here() && host.address.is_none() && !self.is_middle(name.get_ref()) {
                refuse(
                    table.span(),
                    "a host that is this machine needs its `address` on the measured path",
                )?;
            }
        }
        if !self.has_real_hosts() {
            return Ok(());
        }
        if let Some(other) = self.hosts.iter().find(|host| self.real_host(host.get_ref()).is_none())
        {
            let message = format!(
                "host `{0}` is a namespace, and others are real machines, which no link reaches from here: add \
                 `[host.{0}]` with `ssh`, or `here = true` for this machine",
                other.get_ref()
            );
            self.refuse(other.span(), message)?;
        }
        Ok(())
    }

    /// Takes the lab's hosts from an Ansible inventory. A host with a table of its own keeps its
    /// table.
    pub(crate) fn add_inventory(&mut self, file: &str, text: &str) -> Result<(), FileError> {
        let wrong = |place: std::ops::Range<usize>, reason: String| {
            self.source.error(place, format!("the inventory {file}: {reason}"))
        };
        let inventory = Inventory::parse(text).map_err(|reason| wrong(0..0, reason))?;
        let mut found = Vec::new();
        let middles = self.link.iter().filter_map(|link| link.get_ref().on.as_ref());
        for host in self.hosts.iter().chain(middles) {
            let name = host.get_ref();
            if self.real_host(name).is_some() {
                continue;
            }
            let place = host.span();
            let reached = inventory.find(name).map_err(|reason| wrong(place.clone(), reason))?;
            let own = self.host.get(name.as_str()).map(Spanned::get_ref).cloned();
            let mut own = own.unwrap_or_default();
            own.ssh = Some(Spanned::new(place.clone(), reached.ssh));
            own.key = reached.key;
            own.jump = reached.jump;
            let sudo = reached.sudo.then(|| Spanned::new(place.clone(), true));
            own.sudo = own.sudo.or(sudo);
            let address = reached.address.map(|address| Spanned::new(place.clone(), address));
            own.address = own.address.or(address).filter(|_| !self.is_middle(name));
            found.push((host.clone(), Spanned::new(place, own)));
        }
        self.host.extend(found);
        Ok(())
    }

    /// Refuses links that real machines cannot have.
    pub(crate) fn check_real_links(&self) -> Result<(), FileError> {
        for link in self.link.iter().map(Spanned::get_ref) {
            if let Some(on) = &link.on {
                let name = on.get_ref();
                if self.real_host(name).is_none() {
                    let message =
                        format!("`{name}` is no real machine: add `[host.{name}]` with `ssh`");
                    return Err(self.source.error(on.span(), message));
                }
                continue;
            }
            let Some((key, setting)) = link.emulated().next() else { continue };
            let message = format!(
                "`{key}` emulates a link, and the path between real machines is as it is: remove the key and write \
                 `direct = true`, name a machine between the ends that emulates the link (`on`), or add --namespaces \
                 to run the lab in namespaces of this machine"
            );
            return Err(self.source.error(setting.span(), message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_host_says_that_its_agent_becomes_root() {
        let mut host = HostSpec::by_ssh("admin@h");
        assert_eq!(host.place(), "ssh admin@h");
        host.sudo = Some(Spanned::new(0..0, true));
        assert_eq!(host.place(), "ssh admin@h as root by sudo");
    }

    #[test]
    fn a_destination_with_a_port_is_a_url() {
        for (destination, url) in [
            ("root@10.0.0.5:2222", Some("ssh://root@10.0.0.5:2222")),
            ("gate:22", Some("ssh://gate:22")),
            ("root@[2001:db8::1]:22", Some("ssh://root@[2001:db8::1]:22")),
            ("ssh://root@10.0.0.5:2222", None),
            ("ssh://[2001:db8::1]:22", None),
            ("root@2001:db8::1", None),
            ("::1", None),
            ("gate", None),
            ("a:b", None),
        ] {
            assert_eq!(with_port(destination).as_deref(), url, "{destination}");
        }
    }
}
