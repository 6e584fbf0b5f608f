//! Rates of packet switches with the rules of the flow-rules report: how the rates change with the
//! number of rules and of five-tuples.

mod answer;
mod case;
mod contention;
mod estimate;
mod machine;
mod place;
mod pushed;
mod rule_set;
mod traffic;

use super::switches::{self, Product};
use super::{CellWorkload, Workload};
use crate::bench::machine::{MachineStep, Measured, Testbed};
use crate::model::file::{Document, Ends, FileError, Key, Loopback, SystemKind, SystemSpec};
use crate::model::{Failure, Plan};
use case::Case;
use results::{Axes, Results};
use units::Span;

pub(super) use traffic::{Packets, profile_text};

#[derive(Debug)]
pub(crate) struct FlowRules;

impl Workload for FlowRules {
    fn kind(&self) -> &'static str {
        "flow-rules"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Switch]
    }

    fn loopback(&self) -> Loopback {
        Err("packet switches have ports of their own, and no `loopback`")
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        METHOD.iter().map(|(term, text)| (*term, (*text).to_owned())).collect()
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        Ok(Box::new(Case::parse(document, axes)?))
    }

    fn inputs(&self, document: &Document, axes: &Axes) -> Vec<(String, String)> {
        let Ok(case) = Case::parse(document, axes) else { return Vec::new() };
        let name = format!("traffic profile of {} flows", case.rules);
        vec![(name, profile_text(case.rules, 1.0))]
    }

    fn keys(&self) -> &'static [Key] {
        case::KEYS
    }

    fn has_hosts(&self) -> bool {
        false
    }

    fn ends(&self, _document: &Document, _axes: &Axes) -> Result<Ends, FileError> {
        Ok(Ends { from: String::new(), to: String::new(), streams: 1 })
    }

    fn check(&self, document: &Document) -> Result<(), FileError> {
        switches::check_systems(document, &[])
    }

    fn refused_by_simulator(&self) -> Option<&'static str> {
        Some("packet switches are programs, and virtual time has none")
    }

    fn programs(&self, system: &SystemSpec) -> &'static [&'static str] {
        Product::of(system.name()).map_or(&[], Product::programs)
    }

    fn keeps_cells(&self) -> bool {
        true
    }

    fn machine_time(
        &self,
        document: &Document,
        system: &SystemSpec,
        axes: &Axes,
        plan: &Plan,
    ) -> Span {
        let Ok(case) = Case::parse(document, axes) else { return plan.duration };
        let of_cell = estimate::of_cell(&case, Product::of(system.name()), plan);
        plan.duration + of_cell / u64::from(plan.repeats.max(1))
    }

    fn answer(&self, results: &Results) -> Vec<String> {
        answer::sentences(results)
    }
}

impl CellWorkload for Case {
    fn measure(&self, step: &MachineStep<'_>, _testbed: &Testbed) -> Result<Measured, Failure> {
        machine::measure(self, step)
    }
}

const METHOD: &[(&str, &str)] = &[
    (
        "rules",
        "the report's four sets. base: one NAT rule. mac: the NAT rule, and behind it a rule for each \
         destination. nat: a NAT rule for each destination. raw: one rule, no connection tracking. In base and \
         raw the number counts five-tuples, in mac and nat also rules. Both switches load the same file",
    ),
    (
        "validity",
        "a window is invalid if other programs took more than 3 % of it from a packet thread, which never sleeps. \
         Several packet threads need one CPU more than they are, and a machine without it does not run their cells",
    ),
    (
        "traffic",
        "the report's profile with `limit` as the number of five-tuples: 64-byte UDP frames. With `order = \
         \"lockstep\"` client and server advance together, as TRex does; with \"destination\" the client stays \
         while the destination runs, as the report writes. The five-tuples are counted before they are sent, and \
         are as many as the limit in both",
    ),
    (
        "capacity",
        "the switch takes frames from a capture in memory, which is played for ever, and sends them to a port \
         that discards them. A source that is pulled shows the capacity (`capacity_pps`), and never a highest \
         rate without loss",
    ),
    (
        "windows",
        "a switch loads the rules of a cell once and sees every flow before the first window. Then all windows of \
         the cell follow one another. They do not alternate with those of the other switch: after a pause, Open \
         vSwitch kept only a part of its flows in its cache. The windows of a cell are one start of the switch, so \
         they have a range and no interval, and comparisons have no verdict",
    ),
    (
        "pushed ports",
        "only in the full form, once in a cell, with a switch of their own that has seen every flow: `weir gen ndr` \
         and a fixed load 10 % above its result. With `ports = \"vhost-user\"` the generator is the driver of two \
         virtio devices of the switch; with \"veth\" both use packet sockets; with \"tap\" the switch has \
         TAP devices, and the generator has packet sockets at the kernel's ends. In the search a packet for which the switch has no \
         room is lost. The sender of the fixed load waits while its port is full; `actual_s` ends when \
         the last packet is accepted; `drops.pushed` are packets that the switch accepted and did not send",
    ),
    (
        "cycles",
        "cycles of the time stamp counter for each packet while the packet thread is busy, by stage where the \
         switch tells stages apart",
    ),
];
