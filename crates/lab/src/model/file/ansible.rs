//! Hosts of an Ansible inventory, in its INI form or its YAML form.
//!
//! The parser reads hosts, groups, their children and the variables that say how ssh reaches a
//! host. The parser reads no templates, vaults or inventory plugins.

mod yaml;

use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

/// The hosts and groups of an Ansible inventory.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    hosts: IndexMap<String, Variables>,
    groups: IndexMap<String, Group>,
}

type Variables = BTreeMap<String, String>;

#[derive(Debug, Default)]
struct Group {
    hosts: Vec<String>,
    children: Vec<String>,
    variables: Variables,
}

/// The settings by which ssh reaches one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) ssh: String,
    pub(crate) key: Option<String>,
    /// The variable `weir_address`: the address on the measured path.
    pub(crate) address: Option<String>,
    /// The jump host in the variables for ssh's arguments.
    pub(crate) jump: Option<String>,
    /// Whether `ansible_become` asks for root by sudo.
    pub(crate) sudo: bool,
}

impl Inventory {
    /// Parses an inventory. The error names the line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST_TEXT {
            return Err(format!("it has more than {} MiB", LONGEST_TEXT >> 20));
        }
        let mut lines = text.lines().map(str::trim).filter(|line| !is_comment(line));
        let is_yaml = lines.find(|line| !line.is_empty()).is_some_and(|line| {
            // A comment, or a map in braces, may follow the first key.
            let first = line.split_whitespace().next().unwrap_or_default();
            first == "---"
                || line.starts_with('{')
                || (first.ends_with(':') && !line.starts_with('['))
        });
        if is_yaml { yaml::parse(text) } else { Self::parse_ini(text) }
    }

    /// Finds the host `name`, or the only host of the group `name`. A `name` such as `servers-2` is
    /// also the second host of the group `servers`.
    pub(crate) fn find(&self, name: &str) -> Result<Reached, String> {
        if self.hosts.contains_key(name) {
            return self.reached(name);
        }
        if self.groups.contains_key(name) {
            return match self.members(name).as_slice() {
                [host] => self.reached(host),
                [] => Err(format!("its group `{name}` has no host")),
                many => Err(format!(
                    "its group `{name}` has {} hosts: call the lab's hosts `{name}-1`, `{name}-2` …",
                    many.len()
                )),
            };
        }
        let numbered = name.rsplit_once('-').and_then(|(group, number)| {
            let number: usize = number.parse().ok()?;
            self.groups.contains_key(group).then_some((group, number))
        });
        let Some((group, number)) = numbered else {
            let known = self.hosts.keys().chain(self.groups.keys()).map(String::as_str);
            let hint = units::did_you_mean(name, known);
            return Err(format!("it has neither a host nor a group `{name}`{hint}"));
        };
        let members = self.members(group);
        match number.checked_sub(1).and_then(|place| members.get(place)) {
            Some(host) => self.reached(host),
            None => {
                Err(format!("its group `{group}` has {} hosts, and no `{name}`", members.len()))
            }
        }
    }

    /// Finds the host `name`, or all hosts of the group `name`, each with its name.
    pub(crate) fn find_all(&self, name: &str) -> Result<Vec<(String, Reached)>, String> {
        let is_group = self.groups.contains_key(name) && !self.hosts.contains_key(name);
        if !is_group {
            return Ok(vec![(name.to_owned(), self.find(name)?)]);
        }
        let members = self.members(name);
        members.into_iter().map(|host| Ok((host.clone(), self.reached(&host)?))).collect()
    }

    /// Returns all hosts of the group, and of the group's children.
    fn members(&self, group: &str) -> Vec<String> {
        let (mut found, mut seen): (Vec<String>, _) = (Vec::new(), BTreeSet::new());
        let mut open = vec![group.to_owned()];
        while let Some(name) = open.pop() {
            // Visit each group once, because groups may contain one another by mistake.
            if !seen.insert(name.clone()) {
                continue;
            }
            if let Some(group) = self.groups.get(&name) {
                for host in &group.hosts {
                    if !found.contains(host) {
                        found.push(host.clone());
                    }
                }
                open.extend(group.children.iter().rev().cloned());
            }
        }
        match group {
            ALL => self.hosts.keys().cloned().collect(),
            _ => found,
        }
    }

    fn reached(&self, host: &str) -> Result<Reached, String> {
        let variables = self.variables(host);
        let of = |names: &[&str]| {
            let found = names.iter().find_map(|name| variables.get(*name));
            found.filter(|value| !value.is_empty()).cloned()
        };
        if of(&["ansible_connection"])
            .is_some_and(|kind| !["ssh", "smart"].contains(&kind.as_str()))
        {
            return Err(format!("its host `{host}` is not reached by ssh (ansible_connection)"));
        }
        let address = of(&["ansible_host", "ansible_ssh_host"]).unwrap_or_else(|| host.to_owned());
        let user = of(&["ansible_user", "ansible_ssh_user"]);
        let at = user.map(|user| format!("{user}@")).unwrap_or_default();
        let ssh = match of(&["ansible_port", "ansible_ssh_port"]) {
            None => format!("{at}{address}"),
            Some(port) if address.contains(':') => format!("ssh://{at}[{address}]:{port}"),
            Some(port) => format!("ssh://{at}{address}:{port}"),
        };
        let key = of(&["ansible_ssh_private_key_file", "ansible_private_key_file"]);
        let address = of(&["weir_address"]);
        let mut jump = None;
        for name in ["ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args"] {
            let Some(arguments) = of(&[name]) else { continue };
            let named = jump_of(&arguments).map_err(|reason| {
                format!(
                    "its host `{host}` has {name} with {reason}: Weir passes on only a jump host (`-J GATE` or `-o \
                     ProxyJump=GATE`); write the rest into ssh's configuration, and remove the variable"
                )
            })?;
            jump = jump.or(named);
        }
        let sudo = becomes_root(&of).map_err(|reason| format!("its host `{host}` has {reason}"))?;
        let texts = [Some(&ssh), key.as_ref(), address.as_ref(), jump.as_ref()];
        if texts.into_iter().flatten().any(|text| text.contains("{{")) {
            return Err(format!("its host `{host}` has a template, which only Ansible fills in"));
        }
        Ok(Reached { ssh, key, address, jump, sudo })
    }

    /// Merges the variables of a host. The host's own variables take precedence over the variables
    /// of a group, and a group's variables over the variables of the groups around it.
    fn variables(&self, host: &str) -> Variables {
        let depth =
            |name: &str| self.groups.keys().filter(|outer| self.is_around(outer, name)).count();
        let around = self.groups.iter().filter(|(name, _)| {
            name.as_str() == ALL || self.members(name).iter().any(|one| one == host)
        });
        let mut around: Vec<_> = around.collect();
        around.sort_by_key(|(name, _)| (name.as_str() != ALL, depth(name)));
        let mut all = Variables::new();
        for (_, group) in around {
            all.extend(group.variables.clone());
        }
        all.extend(self.hosts.get(host).cloned().unwrap_or_default());
        all
    }

    fn is_around(&self, outer: &str, inner: &str) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![outer]);
        while let Some(name) = open.pop() {
            let children =
                self.groups.get(name).map_or(&[] as &[String], |group| group.children.as_slice());
            for child in children {
                if child == inner && outer != inner {
                    return true;
                }
                if seen.insert(child.as_str()) {
                    open.push(child);
                }
            }
        }
        false
    }

    /// Adds a host, or the hosts of a range, to a group.
    fn add(&mut self, group: &str, name: &str, variables: &Variables) -> Result<(), String> {
        let (name, port) = without_port(name);
        for host in expanded(name)? {
            self.groups.entry(group.to_owned()).or_default().hosts.push(host.clone());
            let known = self.hosts.entry(host).or_default();
            known.extend(port.map(|port| ("ansible_port".to_owned(), port.to_owned())));
            known.extend(variables.clone());
        }
        Ok(())
    }

    fn parse_ini(text: &str) -> Result<Self, String> {
        let mut all = Self::default();
        let (mut group, mut part) = ("ungrouped".to_owned(), "hosts".to_owned());
        for (number, line) in text.lines().enumerate() {
            let wrong = |reason: &str| format!("line {}: {reason}", number + 1);
            let line = line.trim();
            if line.is_empty() || is_comment(line) {
                continue;
            }
            // An IPv6 address with a port begins with `[`, as a section does.
            let first = line.split_whitespace().next().unwrap_or_default();
            let is_host = without_port(first).1.is_some();
            if let Some(section) = line.strip_prefix('[').filter(|_| !is_host) {
                let section = section.split(']').next().unwrap_or_default();
                let (name, of) = section.split_once(':').unwrap_or((section, "hosts"));
                if !["hosts", "vars", "children"].contains(&of) || name.is_empty() {
                    return Err(wrong("a section is [GROUP], [GROUP:vars] or [GROUP:children]"));
                }
                (group, part) = (name.to_owned(), of.to_owned());
                all.groups.entry(group.clone()).or_default();
                continue;
            }
            let own = all.groups.entry(group.clone()).or_default();
            if part == "vars" {
                let (name, value) =
                    line.split_once('=').ok_or_else(|| wrong("a variable is NAME=VALUE"))?;
                own.variables.insert(name.trim().to_owned(), unquoted(value.trim()));
                continue;
            }
            let words = words(line).map_err(|reason| wrong(&reason))?;
            match part.as_str() {
                "children" => own.children.extend(words.into_iter().next()),
                _ => {
                    let (name, variables) = words.split_first().unwrap_or((&group, &[]));
                    let variables: Option<Variables> = variables
                        .iter()
                        .map(|word| word.split_once('='))
                        .map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned())))
                        .collect();
                    let variables = variables.ok_or_else(|| wrong("a variable is NAME=VALUE"))?;
                    all.add(&group, name, &variables).map_err(|reason| wrong(&reason))?;
                }
            }
        }
        Ok(all)
    }
}

/// Returns the jump host in arguments of ssh. The error names the argument that Weir refuses.
fn jump_of(arguments: &str) -> Result<Option<String>, String> {
    let words = words(arguments)?;
    let mut words = words.iter().map(String::as_str);
    let mut jump = None;
    while let Some(word) = words.next() {
        let (option, value) = match word {
            "-J" | "-o" => (word, words.next().unwrap_or_default()),
            _ => word.split_at_checked(2).unwrap_or((word, "")),
        };
        let named = match option {
            "-J" => Some(value),
            "-o" => value
                .split_once(['=', ' '])
                .filter(|(name, _)| name.trim().eq_ignore_ascii_case("ProxyJump"))
                .map(|(_, gate)| gate.trim()),
            _ => None,
        };
        match named.filter(|gate| !gate.is_empty()) {
            Some(gate) => jump = Some(gate.to_owned()),
            None if value.is_empty() => return Err(format!("`{option}`")),
            None => return Err(format!("`{option} {value}`")),
        }
    }
    Ok(jump)
}

/// Whether the variables of a host ask for root by sudo. The error names the variable that Weir
/// refuses.
fn becomes_root(of: &dyn Fn(&[&str]) -> Option<String>) -> Result<bool, String> {
    let wanted = of(&["ansible_become"]).unwrap_or_default().to_lowercase();
    if !["true", "yes", "on", "1"].contains(&wanted.as_str()) {
        return Ok(false);
    }
    for (name, usual) in [("ansible_become_method", "sudo"), ("ansible_become_user", "root")] {
        if let Some(other) = of(&[name]).filter(|value| value != usual) {
            return Err(format!("{name} {other}: Weir becomes root by sudo only"));
        }
    }
    if of(&["ansible_become_password", "ansible_become_pass"]).is_some() {
        let text = "a password for sudo, and Weir passes no password on: let sudo there ask for none (NOPASSWD), and \
                    remove the variable ansible_become_password";
        return Err(text.to_owned());
    }
    Ok(true)
}

fn is_comment(line: &str) -> bool {
    line.starts_with('#') || line.starts_with(';')
}

/// Splits a line into words; quotes keep blanks together, and ` #` begins a comment.
fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') if word.is_empty() => break,
            (None, c) if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            (None, c) => word.push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

fn unquoted(text: &str) -> String {
    let inner = ['"', '\'']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)));
    inner.unwrap_or(text).to_owned()
}

/// Splits the port off a name such as `gate:2222` or `[2001:db8::1]:2222`.
fn without_port(name: &str) -> (&str, Option<&str>) {
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let bracketed = name.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    if let Some((address, rest)) = bracketed
        && address.parse::<Ipv6Addr>().is_ok()
    {
        match rest.strip_prefix(':') {
            Some(port) if is_port(port) => return (address, Some(port)),
            None if rest.is_empty() => return (address, None),
            _ => {}
        }
    }
    match name.rsplit_once(':') {
        Some((host, port)) if is_port(port) && !has_colon(host) => (host, Some(port)),
        _ => (name, None),
    }
}

/// Whether the name has a colon outside of the brackets of its ranges, as an IPv6 address has.
fn has_colon(name: &str) -> bool {
    name.split(']').any(|part| part.split('[').next().is_some_and(|before| before.contains(':')))
}

/// Expands a name with ranges: `web[01:03].example` is three hosts, and `[a:b]-[1:5:2]` six.
fn expanded(name: &str) -> Result<Vec<String>, String> {
    let (mut starts, mut rest) = (vec![String::new()], name);
    while let Some((before, after)) = rest.split_once('[') {
        let wrong = || {
            format!(
                "the range in `{name}` is written [FIRST:LAST] or [FIRST:LAST:STEP], with two numbers or two letters"
            )
        };
        let (range, after) = after.split_once(']').ok_or_else(wrong)?;
        let values = values(range).ok_or_else(wrong)?;
        if values.is_empty() || starts.len() * values.len() > MOST_HOSTS {
            return Err(format!("the range in `{name}` has no host, or more than {MOST_HOSTS}"));
        }
        let with_values = |start: &String| {
            values.iter().map(|value| format!("{start}{before}{value}")).collect::<Vec<_>>()
        };
        starts = starts.iter().flat_map(with_values).collect();
        rest = after;
    }
    Ok(starts.into_iter().map(|start| start + rest).collect())
}

/// Returns the values of a range such as `01:03`, at most one more than [`MOST_HOSTS`]. `None` if
/// the range is not valid.
fn values(range: &str) -> Option<Vec<String>> {
    let mut parts = range.split(':');
    let (first, last, step) = (parts.next()?, parts.next()?, parts.next().unwrap_or("1"));
    let step = step.parse::<usize>().ok().filter(|step| *step > 0)?;
    if parts.next().is_some() {
        return None;
    }
    let first = if first.is_empty() { "0" } else { first };
    let number = |text: &str| {
        let is_number = text.len() <= LONGEST_NUMBER && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<usize>().ok().filter(|_| is_number)
    };
    if let (Some(from), Some(to)) = (number(first), number(last)) {
        let width = first.len();
        let numbers = (from..=to).step_by(step).take(MOST_HOSTS + 1);
        return Some(numbers.map(|number| format!("{number:0width$}")).collect());
    }
    let letter = |text: &str| match text.as_bytes() {
        [letter] if letter.is_ascii_alphabetic() => Some(char::from(*letter)),
        _ => None,
    };
    let (from, to) = (letter(first)?, letter(last)?);
    Some((from..=to).step_by(step).map(String::from).collect())
}

const ALL: &str = "all";
const LONGEST_TEXT: usize = 1 << 20;
const MOST_HOSTS: usize = 10_000;
const LONGEST_NUMBER: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    const INI: &str = "\
# the testbed
lonely ansible_host=10.0.0.9
[clients]
alpha ansible_host=10.0.0.5 ansible_port=2222 weir_address=192.0.2.5  # left
[servers]
web[01:02].example
[servers:vars]
ansible_user = \"admin\"
[machines:children]
clients
servers
[machines:vars]
ansible_user=root
ansible_ssh_private_key_file=~/.ssh/lab
[all:vars]
ansible_user=nobody
";

    const YAML: &str = "\
all:
  hosts:
    lonely: { ansible_host: 10.0.0.9 }
  vars: { ansible_user: nobody }
  children:
    machines:
      vars:
        ansible_user: root
        ansible_ssh_private_key_file: ~/.ssh/lab
      children:
        clients:
          hosts:
            alpha:
              ansible_host: 10.0.0.5
              ansible_port: 2222
              weir_address: 192.0.2.5
        servers:
          vars: { ansible_user: admin }
          hosts:
            web[01:02].example:
";

    #[test]
    fn a_jump_host_and_sudo_are_read_and_other_arguments_are_refused_by_name() {
        let find = |variables: &str| {
            Inventory::parse(&format!("[servers]\nalpha {variables}\n")).unwrap().find("alpha")
        };
        for arguments in ["-J gate", "-Jgate", "-o ProxyJump=gate", "-oproxyjump=gate"] {
            let reached = find(&format!("ansible_ssh_common_args='{arguments}'")).unwrap();
            assert_eq!((reached.jump.as_deref(), reached.sudo), (Some("gate"), false));
        }
        for (value, sudo) in [("yes", true), ("True", true), ("false", false)] {
            assert_eq!(find(&format!("ansible_become={value}")).unwrap().sudo, sudo, "{value}");
        }
        for (variables, reason) in [
            ("ansible_ssh_extra_args='-J gate -C'", "ansible_ssh_extra_args with `-C`"),
            ("ansible_ssh_common_args='-o ProxyCommand=x'", "`-o ProxyCommand=x`"),
            ("ansible_become=yes ansible_become_method=su", "ansible_become_method su"),
            ("ansible_become=yes ansible_become_user=deploy", "ansible_become_user deploy"),
            ("ansible_become=yes ansible_become_password=x", "NOPASSWD"),
        ] {
            let error = find(variables).unwrap_err();
            assert!(error.contains(reason), "{variables}: {error}");
        }
    }

    #[test]
    fn ini_and_yaml_inventories_name_the_same_hosts() {
        for text in [INI, YAML] {
            let inventory = Inventory::parse(text).unwrap();
            let find = |name: &str| inventory.find(name).unwrap();
            let clients = find("clients");
            assert_eq!(clients.ssh, "ssh://root@10.0.0.5:2222");
            assert_eq!(clients.address.as_deref(), Some("192.0.2.5"));
            assert_eq!(clients.key.as_deref(), Some("~/.ssh/lab"));
            assert_eq!(find("alpha"), clients);
            assert_eq!(find("servers-2").ssh, "admin@web02.example");
            assert_eq!(find("machines-1").ssh, clients.ssh);
            assert_eq!(find("lonely").ssh, "nobody@10.0.0.9");
            let refused = |name: &str| inventory.find(name).unwrap_err();
            assert!(refused("servers").contains("has 2 hosts"), "{}", refused("servers"));
            assert!(refused("servers-3").contains("no `servers-3`"));
            assert!(refused("client").contains("did you mean `clients`?"), "{}", refused("client"));
        }
    }

    #[test]
    fn ranges_have_numbers_letters_and_steps() {
        let all = |name: &str| expanded(name).unwrap().join(" ");
        assert_eq!(all("web"), "web");
        assert_eq!(all("web[8:11]"), "web8 web9 web10 web11");
        assert_eq!(all("web[01:05:2].x"), "web01.x web03.x web05.x");
        assert_eq!(all("web[:1]"), "web0 web1");
        assert_eq!(all("db-[a:c]"), "db-a db-b db-c");
        assert_eq!(all("[a:b]-[1:5:2]"), "a-1 a-3 a-5 b-1 b-3 b-5");
        for wrong in ["a[1]", "a[1:2", "a[1:b]", "a[1:2:0]", "a[1:2:3:4]", "a[aa:b]", "a[-1:2]"] {
            assert!(expanded(wrong).unwrap_err().contains("is written [FIRST:LAST]"), "{wrong}");
        }
        for wrong in ["a[2:1]", "a[b:a]", "a[1:10001]", "a[1:999999999]", "a[1:200][1:200]"] {
            assert!(expanded(wrong).unwrap_err().contains("has no host, or more"), "{wrong}");
        }
    }

    #[test]
    fn a_name_may_have_a_port() {
        let ini = "gate:2222 ansible_user=root\nweb[1:2]:22\n[2001:db8::1]:2200\n2001:db8::2\n\
                   other:22 ansible_port=23\n";
        let yaml = "all: # the testbed\n  hosts:\n    gate:2222: { ansible_user: root }\n    web[1:2]:22:\n    \
                    '[2001:db8::1]:2200':\n    '2001:db8::2':\n    other:22: { ansible_port: 23 }\n";
        for text in [ini, yaml] {
            let inventory = Inventory::parse(text).unwrap();
            let find = |name: &str| inventory.find(name).unwrap().ssh;
            assert_eq!(find("gate"), "ssh://root@gate:2222");
            assert_eq!(find("web2"), "ssh://web2:22");
            assert_eq!(find("2001:db8::1"), "ssh://[2001:db8::1]:2200");
            assert_eq!(find("2001:db8::2"), "2001:db8::2");
            assert_eq!(find("other"), "ssh://other:23");
        }
    }

    #[test]
    fn variables_with_quotes_inside_are_read_and_templates_are_refused() {
        let text = "[all:vars]\nmotd=it's here\nansible_user=root\n[a]\nx\n";
        assert_eq!(Inventory::parse(text).unwrap().find("a").unwrap().ssh, "root@x");
        for variable in [
            "ansible_host={{address}}",
            "ansible_ssh_private_key_file={{folder}}/key",
            "weir_address={{address}}",
        ] {
            let inventory = Inventory::parse(&format!("x {variable}\n")).unwrap();
            let error = inventory.find("x").unwrap_err();
            assert!(error.contains("has a template"), "{variable}: {error}");
        }
    }

    #[test]
    fn the_form_of_the_first_line_decides_between_ini_and_yaml() {
        for text in ["--- # hosts\nall:\n  hosts:\n    x:\n", "all: {hosts: {x: {}}}\n", "x\n"] {
            assert_eq!(Inventory::parse(text).unwrap().find("x").unwrap().ssh, "x", "{text}");
        }
        let list = "{\"_meta\": {\"hostvars\": {}}, \"all\": {\"children\": [\"a\"]}}";
        let error = Inventory::parse(list).unwrap_err();
        assert!(error.contains("add --yaml"), "{error}");
    }

    #[test]
    fn a_broken_inventory_is_refused_with_its_line() {
        for (text, reason) in [
            ("[a\nb x", "line 2: a variable is NAME=VALUE"),
            ("[a:many]", "line 1: a section is"),
            ("a[1:]", "line 1: the range"),
            ("a[5:1]", "line 1: the range"),
            ("a x=\"1", "line 1: a quote"),
            ("all:\n  hosts: [a", "line "),
            ("all:\n  hosts:\n    - a\n", "hosts"),
        ] {
            let error = Inventory::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
        let local = Inventory::parse("a ansible_connection=local").unwrap();
        assert!(local.find("a").unwrap_err().contains("not reached by ssh"));
        let circle = Inventory::parse("[a:children]\nb\n[b:children]\na\n[b]\nx\n").unwrap();
        assert_eq!(circle.find("a").unwrap().ssh, "x");
    }
}
