//! The counters of IP, TCP and UDP in the calling thread's network namespace: `snmp`, `snmp6` and
//! `netstat` of `/proc/net`, under `nstat`'s names (`TcpRetransSegs`, `TcpExtListenOverflows`,
//! `Ip6InReceives`).

use std::collections::{BTreeMap, BTreeSet};

use units::{Span, Time};

use crate::ProbeError;
use crate::clock;
use crate::error::read_text;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnmpSnapshot {
    pub taken: Time,
    values: BTreeMap<String, u64>,
}

impl SnmpSnapshot {
    pub fn read() -> Result<Self, ProbeError> {
        // Read /proc/thread-self/net, because /proc/net shows the namespace of the process's main
        // thread.
        let snmp = read_text("/proc/thread-self/net/snmp")?;
        let netstat = read_text("/proc/thread-self/net/netstat")?;
        let snmp6 = match read_text("/proc/thread-self/net/snmp6") {
            // A kernel without IPv6 lacks the file.
            Err(ProbeError::Read { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                String::new()
            }
            text => text?,
        };
        Ok(Self { taken: clock::now(), ..Self::parse(&snmp, &netstat, &snmp6)? })
    }

    /// Parses the three files, any of which may be empty.
    pub fn parse(snmp: &str, netstat: &str, snmp6: &str) -> Result<Self, ProbeError> {
        Self::of_files([snmp, netstat, snmp6], None)
    }

    /// Parses as [`Self::parse`], and keeps only the counters of these names. An observer that
    /// reads a few of several hundred counters again and again saves most of the work.
    pub fn parse_only(
        names: &BTreeSet<&str>,
        snmp: &str,
        netstat: &str,
        snmp6: &str,
    ) -> Result<Self, ProbeError> {
        Self::of_files([snmp, netstat, snmp6], Some(names))
    }

    fn of_files(
        [snmp, netstat, snmp6]: [&str; 3],
        wanted: Option<&BTreeSet<&str>>,
    ) -> Result<Self, ProbeError> {
        let mut reader = Reader { wanted, ..Reader::default() };
        reader.add_paired("snmp", snmp)?;
        reader.add_paired("netstat", netstat)?;
        reader.add_listed("snmp6", snmp6)?;
        Ok(Self { taken: Time::ZERO, values: reader.values })
    }

    /// Returns the counter of that name; `None` if this kernel lacks it.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.values.get(name).copied()
    }

    pub fn values(&self) -> impl Iterator<Item = (&str, u64)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }

    pub fn into_values(self) -> BTreeMap<String, u64> {
        self.values
    }

    pub fn since(&self, earlier: &Self) -> SnmpUse {
        SnmpUse {
            elapsed: self.taken.since(earlier.taken),
            counts: self
                .values
                .iter()
                .filter_map(|(name, now)| {
                    // Gauges such as TcpCurrEstab may fall.
                    Some((name.clone(), now.saturating_sub(earlier.value(name)?)))
                })
                .collect(),
        }
    }
}

/// The counters read so far.
#[derive(Debug, Default)]
struct Reader<'a> {
    values: BTreeMap<String, u64>,
    /// The names of the counters to keep; `None` for all.
    wanted: Option<&'a BTreeSet<&'a str>>,
    name: String,
}

impl Reader<'_> {
    /// Parses pairs of lines: the names, then the values, both after the group's name.
    fn add_paired(&mut self, origin: &str, text: &str) -> Result<(), ProbeError> {
        let mut lines = text.lines();
        while let Some(names) = lines.next() {
            let malformed = || ProbeError::malformed(origin, format!("at {names:?}"));
            let (group, names) = names.split_once(':').ok_or_else(malformed)?;
            let values = lines
                .next()
                .and_then(|line| line.strip_prefix(group)?.strip_prefix(':'))
                .ok_or_else(malformed)?;
            let names: Vec<_> = names.split_ascii_whitespace().collect();
            let values: Vec<_> = values.split_ascii_whitespace().collect();
            if names.len() != values.len() {
                return Err(malformed());
            }
            for (name, value) in names.into_iter().zip(values) {
                self.add(group, name, value).ok_or_else(malformed)?;
            }
        }
        Ok(())
    }

    fn add_listed(&mut self, origin: &str, text: &str) -> Result<(), ProbeError> {
        for line in text.lines() {
            line.split_once(|letter: char| letter.is_ascii_whitespace())
                .and_then(|(name, value)| self.add("", name, value.trim()))
                .ok_or_else(|| ProbeError::malformed(origin, format!("{line:?}")))?;
        }
        Ok(())
    }

    fn add(&mut self, group: &str, name: &str, value: &str) -> Option<()> {
        self.name.clear();
        self.name.push_str(group);
        self.name.push_str(name);
        if self.wanted.is_some_and(|wanted| !wanted.contains(self.name.as_str())) {
            return Some(());
        }
        // TcpMaxConn is -1, "no fixed limit" (RFC 4022). The value is not a count, so the value is
        // left out.
        if value.parse::<i64>().is_ok_and(|value| value < 0) {
            return Some(());
        }
        self.values.insert(self.name.clone(), value.parse().ok()?);
        Some(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnmpUse {
    pub elapsed: Span,
    counts: BTreeMap<String, u64>,
}

impl SnmpUse {
    /// Returns the increment of a counter; `None` if this kernel lacks it.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.counts.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn recorded_counter_files_are_parsed() {
        let snapshot = SnmpSnapshot::parse(SNMP, NETSTAT, SNMP6).unwrap();
        for name in ["TcpRetransSegs", "TcpExtListenOverflows", "IpExtInOctets", "Ip6InReceives"] {
            assert!(snapshot.value(name).is_some(), "{name}");
        }
        assert_eq!(snapshot.value("TcpRtoMin"), Some(200));
        assert_eq!(snapshot.value("TcpMaxConn"), None);
    }

    #[test]
    fn only_the_counters_asked_for_are_kept() {
        let wanted = BTreeSet::from(["TcpRetransSegs", "Ip6InReceives", "TcpMaxConn", "TcpNone"]);
        let some = SnmpSnapshot::parse_only(&wanted, SNMP, NETSTAT, SNMP6).unwrap();
        let all = SnmpSnapshot::parse(SNMP, NETSTAT, SNMP6).unwrap();
        let kept: Vec<_> = some.values().collect();
        assert_eq!(
            kept.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["Ip6InReceives", "TcpRetransSegs"]
        );
        assert!(kept.into_iter().all(|(name, value)| all.value(name) == Some(value)));
    }

    #[test]
    fn snmp_counters_are_subtracted() {
        let earlier = SnmpSnapshot::parse("Tcp: A B\nTcp: 5 9\n", "", "").unwrap();
        let later = SnmpSnapshot::parse("Tcp: A B C\nTcp: 7 3 1\n", "", "").unwrap();
        let spent = later.since(&earlier);
        assert_eq!((spent.count("TcpA"), spent.count("TcpB")), (Some(2), Some(0)));
        assert_eq!(spent.count("TcpC"), None);
    }

    #[test]
    fn malformed_counter_files_are_refused() {
        for text in ["x", "Tcp: A\n", "Tcp: A\nUdp: 1\n", "Tcp: A B\nTcp: 1\n", "Tcp: A\nTcp: x\n"]
        {
            assert!(SnmpSnapshot::parse(text, "", "").is_err(), "{text:?}");
        }
        assert!(SnmpSnapshot::parse("", "", "Ip6InReceives\n").is_err());
    }

    proptest! {
        #[test]
        fn the_parser_of_counter_files_never_panics(text in "(([A-Z][a-z]{0,5}:?)?( -?[0-9a-z]{1,21}){0,3}\n){0,6}") {
            let _ = SnmpSnapshot::parse(&text, &text, "");
            let _ = SnmpSnapshot::parse("", "", &text);
        }
    }

    const SNMP: &str = include_str!("../tests/fixtures/snmp");
    const NETSTAT: &str = include_str!("../tests/fixtures/netstat");
    const SNMP6: &str = include_str!("../tests/fixtures/snmp6");
}
