//! `on` and `interfaces` of `[[link]]`: the real machine between the ends of a link that emulates
//! the link.

use super::locate::FileError;
use super::schema::{Document, LinkSpec};
use emu::Endpoint;
use std::collections::HashSet;
use toml::Spanned;

/// The machine between the ends of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Middle {
    pub host: String,
    /// The interfaces that lead to the first and to the second end of the link.
    pub interfaces: [String; 2],
}

impl LinkSpec {
    /// Returns the machine that emulates the link between real machines.
    pub(crate) fn middle(&self) -> Option<Middle> {
        let host = self.on.as_ref()?.get_ref().clone();
        let names: Vec<String> = self.interfaces.iter().map(|one| one.get_ref().clone()).collect();
        Some(Middle { host, interfaces: names.try_into().ok()? })
    }
}

impl Document {
    /// Returns the names of the machines that emulate links, each once.
    pub(crate) fn middles(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for on in self.link.iter().filter_map(|link| link.get_ref().on.as_ref()) {
            if !names.contains(&on.get_ref().as_str()) {
                names.push(on.get_ref());
            }
        }
        names
    }

    pub(crate) fn is_middle(&self, host: &str) -> bool {
        self.middles().contains(&host)
    }

    /// Returns the names of all real machines: the hosts, and then the machines that emulate links.
    pub(crate) fn machines(&self) -> Vec<&str> {
        let hosts = self.hosts.iter().map(|host| host.get_ref().as_str());
        hosts.chain(self.middles()).collect()
    }

    /// Returns the interfaces that the links use on the machine `host`, and the MTU of each link.
    pub(crate) fn interfaces_on(&self, host: &str) -> Vec<(String, u32)> {
        let of_host = |link: &LinkSpec| {
            let middle = link.middle().filter(|middle| middle.host == host)?;
            let mtu = link.mtu.as_ref().map_or(super::link::USUAL_MTU, |mtu| *mtu.get_ref());
            Some(middle.interfaces.map(|interface| (interface, mtu)))
        };
        self.link.iter().filter_map(|link| of_host(link.get_ref())).flatten().collect()
    }

    pub(crate) fn check_middles(&self) -> Result<(), FileError> {
        let mut used: HashSet<(&str, &str)> = HashSet::new();
        for link in self.link.iter().map(Spanned::get_ref) {
            let Some(on) = &link.on else {
                if let Some(first) = link.interfaces.first() {
                    let message = "`interfaces` are those of the machine that emulates the link: name it with `on`";
                    self.refuse(first.span(), message)?;
                }
                continue;
            };
            let name = on.get_ref();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
            if name.is_empty() || !name.chars().all(plain) {
                let message = "a name is made of letters, digits and `-`, `_`, `.`, `+`";
                self.refuse(on.span(), message)?;
            }
            if link.is_direct() {
                let message = "`on` names the machine that emulates the link, and `direct = true` is a plain cable: \
                               remove one of them";
                self.refuse(on.span(), message)?;
            }
            if self.hosts.iter().any(|host| host.get_ref() == name) {
                let message = format!(
                    "`{name}` is one of `hosts`, and the machine that emulates a link runs no program of the lab: name \
                     another machine, and give it a table `[host.NAME]` only"
                );
                self.refuse(on.span(), message)?;
            }
            let is_given = self.host.is_empty() || self.host.contains_key(name.as_str());
            if self.has_real_hosts() && !is_given {
                let message =
                    format!("`{name}` is no machine of the file: add `[host.{name}]` with `ssh`");
                self.refuse(on.span(), message)?;
            }
            let [near, far] = link.interfaces.as_slice() else {
                let message = "`on` needs `interfaces = [\"eth1\", \"eth2\"]`: the interface of that machine that leads to \
                               the first host of `between`, and the interface that leads to the second host";
                self.refuse(on.span(), message)?;
                continue;
            };
            for interface in [near, far] {
                let text = interface.get_ref();
                let is_plain = text.parse().is_ok_and(|end: Endpoint| end.interface == *text);
                if !is_plain {
                    self.refuse(interface.span(), format!("`{text}` does not name an interface"))?;
                } else if !used.insert((name, text)) {
                    let message = format!(
                        "`{text}` of `{name}` is named twice: each end of a link has its own interface"
                    );
                    self.refuse(interface.span(), message)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::bench::LabFile;
    use crate::bench::lab_file::tests::LAB;

    const ON: &str = "on = \"middle\"\ninterfaces = [\"eth1\", \"eth2\"]";

    fn lab(link: &str) -> String {
        LAB.replace("rtt = \"20ms\"", &format!("rtt = \"20ms\"\n{link}"))
    }

    fn mistakes(text: &str) -> Vec<String> {
        let parsed = LabFile::parse("lab.toml", text);
        parsed
            .err()
            .map_or(Vec::new(), |error| error.each().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_file_names_the_machine_that_emulates_a_link_and_its_two_interfaces() {
        let parsed = LabFile::parse("lab.toml", &lab(ON)).unwrap();
        assert_eq!(parsed.machines(), ["client", "server", "middle"]);
        let expected = [("eth1".to_owned(), 1500), ("eth2".to_owned(), 1500)];
        assert_eq!(parsed.interfaces_on("middle"), expected);
        assert!(parsed.interfaces_on("client").is_empty());
        let links = parsed.links_at(&crate::bench::lab_file::tests::axes()).unwrap();
        let turned = links[0].clone().seen_from("server");
        assert_eq!(turned.middle.unwrap().interfaces, ["eth2", "eth1"]);
    }

    #[test]
    fn an_inconsistent_machine_in_the_middle_is_refused() {
        for (link, reason) in [
            ("on = \"middle\"", "`on` needs `interfaces"),
            ("on = \"middle\"\ninterfaces = [\"eth1\"]", "`on` needs `interfaces"),
            ("interfaces = [\"eth1\", \"eth2\"]", "name it with `on`"),
            ("on = \"client\"\ninterfaces = [\"eth1\", \"eth2\"]", "is one of `hosts`"),
            ("on = \"middle\"\ninterfaces = [\"eth1\", \"eth1\"]", "is named twice"),
            ("on = \"middle\"\ninterfaces = [\"a:eth1\", \"eth2\"]", "does not name an interface"),
            ("on = \"a b\"\ninterfaces = [\"eth1\", \"eth2\"]", "a name is made of"),
        ] {
            let found = mistakes(&lab(link));
            assert!(found.len() == 1 && found[0].contains(reason), "{link}: {found:?}");
        }
        let cable = lab(ON)
            .replace("rate = \"10mbit\"\nloss = \"{loss}\"\nrtt = \"20ms\"", "direct = true");
        let found = mistakes(&cable);
        assert!(found.iter().any(|line| line.contains("plain cable")), "{found:?}");
        let real = "[host.client]\nssh = \"a\"\n[host.server]\nssh = \"b\"\n[workload]";
        let found = mistakes(&lab(ON).replace("[workload]", real));
        assert!(found[0].contains("add `[host.middle]` with `ssh`"), "{found:?}");
        let found = mistakes(
            &lab("").replace("[workload]", &real.replace("[host.server]", "[host.other]")),
        );
        assert!(found.iter().any(|line| line.contains("no host `other`")), "{found:?}");
    }
}
