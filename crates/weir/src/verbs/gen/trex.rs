//! TRex's options that `weir gen` has no name of its own for. Help does not list these options.
//!
//! An option is accepted without a message where `weir gen` always behaves as the option asks,
//! accepted with a note where the option has no effect on the packets, and refused with a remedy
//! elsewhere.

use crate::output;
use Effect::{Always, Ignored, Refused};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use generator::GenError;

/// TRex's options on the command line, as indexes of `OPTIONS`.
#[derive(Clone, Debug, Default)]
pub(super) struct TrexOptions {
    given: Vec<usize>,
}

struct TrexOption {
    /// A name of a single letter is a short option.
    name: &'static str,
    takes_value: bool,
    effect: Effect,
}

enum Effect {
    /// `weir gen` behaves as the option asks, with and without the option.
    Always,
    /// The option changes nothing; the text gives the reason.
    Ignored(&'static str),
    /// The text says what to use in place of the option.
    Refused(&'static str),
}

const fn flag(name: &'static str, effect: Effect) -> TrexOption {
    TrexOption { name, takes_value: false, effect }
}

const fn value(name: &'static str, effect: Effect) -> TrexOption {
    TrexOption { name, takes_value: true, effect }
}

const NO_CARDS: &str = "weir gen uses the kernel's interfaces and no card of DPDK";
const FIXED_ROLES: &str = "the first port of a pair sends the clients' packets, the second the servers': swap the \
     two --port options to change the direction";
const NO_TCP_STACK: &str = "weir gen reads TRex's stateful profiles in YAML and no profiles in Python: weir perf \
     measures TCP connections, and a YAML profile with one packet a template sends single packets";
const NO_LEARNING: &str = "weir gen does not learn translated addresses: name the translated addresses as \
     `servers_start` and `servers_end` of the profile, or test the device without address translation";

const OPTIONS: &[TrexOption] = &[
    flag("nc", Always),
    flag("no-watchdog", Always),
    flag("no-key", Always),
    flag("checksum-offload", Always),
    flag("close-at-end", Always),
    flag("software", Always),
    flag("no-termio", Always),
    flag("no-ofed-check", Ignored(NO_CARDS)),
    flag("no-hw-flow-stat", Ignored(NO_CARDS)),
    flag("no-flow-control-change", Ignored(NO_CARDS)),
    flag("mlx4-so", Ignored(NO_CARDS)),
    flag("mlx5-so", Ignored(NO_CARDS)),
    flag("ntacc-so", Ignored(NO_CARDS)),
    flag("bnxt-so", Ignored(NO_CARDS)),
    value("prefix", Ignored(NO_CARDS)),
    flag("allow-coredump", Ignored("ulimit -c of the shell decides about core dumps")),
    flag("hdrh", Ignored("-l always reports percentiles")),
    flag("checksum-offload-disable", Ignored("weir gen computes all checksums itself")),
    flag("tso-disable", Ignored("weir gen sends the packets of the profile uncut")),
    flag("lro-disable", Ignored("ethtool -K changes the offloads of an interface")),
    value("v", Ignored("weir gen has no levels of messages")),
    value(
        "arp-refresh-period",
        Ignored(
            "a port answers requests for its address, and announces the address by its request for the gateway",
        ),
    ),
    flag("sleeps", Ignored("weir gen chooses itself when a thread sleeps")),
    value(
        "k",
        Refused(
            "-w waits before the first packet, and a short run with a small -m warms the device up",
        ),
    ),
    flag("e", Refused(FIXED_ROLES)),
    flag("i", Refused(NO_TCP_STACK)),
    flag("stl", Refused(NO_TCP_STACK)),
    flag("astf", Refused(NO_TCP_STACK)),
    flag("astf-server-only", Refused(NO_TCP_STACK)),
    flag("tcp", Refused(NO_TCP_STACK)),
    flag("flip", Refused(FIXED_ROLES)),
    value(
        "rx-check",
        Refused("-l PPS counts lost, reordered and repeated packets in both directions"),
    ),
    value(
        "hops",
        Refused("the packets keep the lifetime (TTL) of the capture: leave the option out"),
    ),
    value(
        "lm",
        Refused("-l measures at every port: leave out the --port options of the other ports"),
    ),
    flag(
        "lo",
        Refused(
            "-l needs a profile beside its packets: lower the profile's rate, for example with -m 0.001",
        ),
    ),
    value(
        "l-pkt-mode",
        Refused("the packets of -l are UDP packets in both directions: leave the option out"),
    ),
    value(
        "active-flows",
        Refused("`cps` of a template times the duration of its flow is the number of open flows"),
    ),
    value("limit-ports", Refused("name as many --port options as there shall be ports")),
    value(
        "client-cfg",
        Refused("--port INTERFACE,ip=ADDRESS,gateway=ADDRESS names the addresses of a port"),
    ),
    flag(
        "mac-spread",
        Refused("`mac_override_by_ip` of the profile changes the MAC addresses by client"),
    ),
    flag("learn", Refused(NO_LEARNING)),
    value("learn-mode", Refused(NO_LEARNING)),
    flag("learn-verify", Refused(NO_LEARNING)),
    flag("queue-drop", Refused("weir gen waits while a port is full: --max-time limits the wait")),
    flag("vlan", Refused("--port INTERFACE,vlan=N and `vlan` of the profile set the tags")),
    flag("dump-interfaces", Refused("`ip link` lists the interfaces that --port takes")),
];

impl TrexOption {
    fn letter(&self) -> Option<char> {
        let mut letters = self.name.chars();
        letters.next().filter(|_| letters.next().is_none())
    }

    /// Returns the option as the user writes it.
    fn written(&self) -> String {
        match self.letter() {
            Some(letter) => format!("-{letter}"),
            None => format!("--{}", self.name),
        }
    }

    fn argument(&self) -> Arg {
        let argument = Arg::new(self.name).hide(true).action(match self.takes_value {
            true => ArgAction::Append,
            false => ArgAction::SetTrue,
        });
        match self.letter() {
            Some(letter) => argument.short(letter),
            None => argument.long(self.name),
        }
    }
}

impl TrexOptions {
    /// Prints a note for each option without effect. Refuses the first option that `weir gen`
    /// cannot serve.
    pub(super) fn check(&self) -> Result<(), GenError> {
        for option in self.given.iter().map(|&index| &OPTIONS[index]) {
            match option.effect {
                Always => {}
                Ignored(reason) => {
                    output::note(format_args!(
                        "note: {} has no effect: {reason}",
                        option.written()
                    ));
                }
                Refused(remedy) => {
                    let written = option.written();
                    return Err(GenError::Usage(format!(
                        "TRex's {written} is not supported: {remedy}"
                    )));
                }
            }
        }
        Ok(())
    }
}

impl Args for TrexOptions {
    fn augment_args(command: Command) -> Command {
        OPTIONS.iter().fold(command, |command, option| command.arg(option.argument()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TrexOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |index: &usize| {
            matches.value_source(OPTIONS[*index].name) == Some(ValueSource::CommandLine)
        };
        Ok(Self { given: (0..OPTIONS.len()).filter(is_given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
