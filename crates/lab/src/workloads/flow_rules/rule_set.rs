//! The rules of the flow-rules report, in the syntax of ovs-ofctl, for any number of rules.

use std::io::{self, Write};
use std::net::Ipv4Addr;

/// The rule sets, named as in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleSet {
    /// A single NAT rule; the number of rules counts five-tuples.
    Base,
    /// A single NAT rule, and in a later table one rule for each destination.
    Mac,
    /// A NAT rule for each destination.
    Nat,
    /// A single rule that forwards without tracking; the number of rules counts five-tuples.
    Raw,
}

pub(super) const RULE_SETS: [(&str, RuleSet); 4] =
    [("base", RuleSet::Base), ("mac", RuleSet::Mac), ("nat", RuleSet::Nat), ("raw", RuleSet::Raw)];

impl RuleSet {
    /// Writes the rules, each on a line. Destination number `k`, from 0 on, is the `k`-th server of
    /// the traffic.
    pub(super) fn write(self, number: u32, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{RESPONDER}")?;
        match self {
            Self::Base => {
                writeln!(out, "{TRANSLATE_ALL}")?;
                writeln!(out, "table=1,ip,nw_src={TRANSLATED},nw_dst=48.0.0.0/8 actions={FORWARD}")
            }
            Self::Mac => {
                writeln!(out, "{TRANSLATE_ALL}")?;
                (0..number).try_for_each(|place| {
                    let to = destination(place);
                    writeln!(out, "table=1,ip,nw_src={TRANSLATED},nw_dst={to} actions={FORWARD}")
                })
            }
            Self::Nat => {
                (0..number).try_for_each(|place| {
                    let (to, source) = (destination(place), translated(place));
                    writeln!(
                        out,
                        "table=0,ip,priority=10,in_port=1,nw_dst={to} \
                         actions=ct(commit,table=1,nat(src={source}))"
                    )
                })?;
                // The report's prefix of 16 bits covers 65,536 translated addresses, too few for
                // more rules.
                let prefix = if number < 1 << 16 { 16 } else { 13 };
                writeln!(
                    out,
                    "table=1,ip,nw_src=48.128.0.0/{prefix},nw_dst=48.0.0.0/8 actions={FORWARD}"
                )
            }
            Self::Raw => {
                let matched = "nw_src=16.0.0.0/8,nw_dst=48.0.0.0/8";
                writeln!(out, "table=0,ip,{matched} actions={FORWARD}")
            }
        }
    }
}

/// Returns a server's address. The first server of the traffic is 48.0.0.1.
fn destination(place: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_SERVER.wrapping_add(place))
}

fn translated(place: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_TRANSLATED.wrapping_add(place))
}

pub(super) const FIRST_SERVER: u32 = 0x3000_0001;
const FIRST_TRANSLATED: u32 = 0x3080_0001;
/// The address to which the single NAT rule translates all sources.
const TRANSLATED: &str = "48.128.0.10";
const TRANSLATE_ALL: &str = "table=0,ip,priority=10,in_port=1,nw_dst=48.0.0.0/8 \
     actions=ct(commit,table=1,nat(src=48.128.0.10))";
const FORWARD: &str = "mod_dl_src:02:ac:10:ff:01:01,mod_dl_dst:de:75:cc:e1:c6:85,output:2";
const RESPONDER: &str = "table=0,arp,in_port=1,arp_op=1,arp_tpa=192.168.10.1 \
     actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],mod_dl_src:02:ac:10:ff:01:01,\
     load:0x2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],\
     load:0x02ac10ff0101->NXM_NX_ARP_SHA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],\
     load:0xc0a80a01->NXM_OF_ARP_SPA[],IN_PORT";

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(set: RuleSet, number: u32) -> Vec<String> {
        let mut text = Vec::new();
        set.write(number, &mut text).unwrap();
        String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_rule_set_has_the_reports_number_of_rules() {
        for (set, others, counted) in [
            (RuleSet::Base, 3, 0),
            (RuleSet::Mac, 2, 1),
            (RuleSet::Nat, 2, 1),
            (RuleSet::Raw, 2, 0),
        ] {
            for number in [1, 256, 65_536] {
                let all = rules(set, number);
                assert_eq!(all.len() as u32, others + counted * number, "{set:?} {number}");
            }
        }
    }

    #[test]
    fn weir_switch_parses_every_rule() {
        for (_, set) in RULE_SETS {
            for rule in rules(set, 3) {
                let names = text::PortNames::none();
                let parsed = text::parse_flow_line(&rule, &names);
                assert!(parsed.is_ok(), "{rule}: {parsed:?}");
            }
        }
    }

    #[test]
    fn the_second_table_matches_every_translated_address() {
        let all = rules(RuleSet::Nat, 262_144);
        assert!(all[262_144].ends_with("nat(src=48.132.0.0))"), "{}", all[262_144]);
        assert!(all[262_145].contains("nw_src=48.128.0.0/13"), "{}", all[262_145]);
    }
}
