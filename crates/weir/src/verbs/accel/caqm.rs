use super::{Selector, StatusAfterwards};
use crate::output::note;
use accel::caqm::{InterfaceName, Network, installation};
use accel::installation::Change;
use accel::{Tunables, rules};
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct EnableCaqm {
    #[command(flatten)]
    selector: Selector,
    /// Interface where tags are added and removed: eth0, or NAMESPACE:eth0; may be repeated
    /// [default: all Ethernet interfaces of this network namespace]
    #[arg(long, value_name = "IF", help_heading = None::<&str>)]
    interface: Vec<String>,
    #[command(flatten)]
    network: Values,
    #[command(flatten)]
    pub(super) after: StatusAfterwards,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Network parameters, the same for all hosts and ports")]
struct Values {
    /// Window increase requested in a round trip, in eighths of --mtu-unit, 1 to 32767 [default: 8]
    #[arg(long, value_name = "N")]
    alpha: Option<String>,
    /// Increase by the square root of the window in segments, if that is more than --alpha, 0 to
    /// 64; 0 is as the reference [default: 28]
    #[arg(long, value_name = "N")]
    alpha_root: Option<String>,
    /// Decrease of the window by a refusal, in bytes, 1 to 65536 [default: 512]
    #[arg(long, value_name = "BYTES")]
    beta: Option<String>,
    /// The least window in segments, 1 to 1024 [default: 1]
    #[arg(long, value_name = "N")]
    min_cwnd: Option<String>,
    /// The largest window in segments [default: 1048576]
    #[arg(long, value_name = "N")]
    max_cwnd: Option<String>,
    /// Bytes granted or refused that move the window by one segment, 64 to 9000 [default: 1024]
    #[arg(long, value_name = "BYTES")]
    mtu_unit: Option<String>,
    /// Bytes per unit of a hint on data, 1 to 1024 [default: 8]
    #[arg(long, value_name = "BYTES")]
    data_hint_unit: Option<String>,
    /// Bytes per unit of a hint on an acknowledgement, 1 to 1024 [default: 64]
    #[arg(long, value_name = "BYTES")]
    ack_hint_unit: Option<String>,
    /// The round trip of the network at rest, 1us to 1s [default: 200us]
    #[arg(long, value_name = "TIME")]
    rtt_standard: Option<String>,
    /// Round trips without a refusal, after which the window may double again, 0 to 1000; 0 is
    /// never, as in the reference [default: 10]
    #[arg(long, value_name = "N")]
    theta: Option<String>,
    /// The effect of a loss: announced leaves the window as it is if a port refused a request just
    /// before; reference always halves the window [default: announced]
    #[arg(long, value_name = "LAW")]
    loss: Option<String>,
    /// How both ends learn that they use CAQM: by a TCP option, which asks the ports; by bits of
    /// TCP's header, as openEuler's kernel does (implies --trusts-path for these connections); or
    /// by both [default: option]
    #[arg(long, value_name = "option|bits|both")]
    negotiation: Option<String>,
    /// Type of the tags, 0 to 7; tags of another type are ignored [default: 0]
    #[arg(long, value_name = "N")]
    cc_type: Option<String>,
    /// TPID of a tag: 0x88a8 or 0x8100 [default: 0x88a8]
    #[arg(long, value_name = "HEX")]
    tpid: Option<String>,
    /// The ports on all ways are known to do CAQM: do not ask the ports, as ports of other makers
    /// do not answer
    #[arg(long)]
    trusts_path: bool,
}

pub(super) fn enable(arguments: EnableCaqm) -> anyhow::Result<()> {
    let EnableCaqm { selector, interface, network, after: _ } = arguments;
    let rule = selector.rule(Tunables::default())?;
    let description = rule.whose();
    let interfaces = interface
        .iter()
        .map(|text| text.parse::<InterfaceName>())
        .collect::<Result<Vec<_>, _>>()?;
    let (change, at) = installation::change(&interfaces, |plan| {
        rules::insert(&mut plan.rules, rule);
        network.write(&mut plan.network)
    })?;
    if change == Change::Repaired {
        note("removed the incomplete installation of a killed command");
    }
    let at: Vec<_> = at.iter().map(InterfaceName::to_string).collect();
    let at = if at.is_empty() { String::new() } else { format!(" at {}", at.join(", ")) };
    note(format_args!("caqm is on ({description}){at}; `weir accel disable caqm` turns it off"));
    Ok(())
}

impl Values {
    /// Changes only the parameters that the user gave.
    fn write(&self, network: &mut Network) -> Result<(), accel::AccelError> {
        let values = [
            ("alpha", &self.alpha),
            ("alpha_root", &self.alpha_root),
            ("beta", &self.beta),
            ("min_cwnd", &self.min_cwnd),
            ("max_cwnd", &self.max_cwnd),
            ("mtu_unit", &self.mtu_unit),
            ("data_hint_unit", &self.data_hint_unit),
            ("ack_hint_unit", &self.ack_hint_unit),
            ("rtt_standard", &self.rtt_standard),
            ("theta", &self.theta),
            ("loss", &self.loss),
            ("negotiation", &self.negotiation),
            ("cc_type", &self.cc_type),
            ("tpid", &self.tpid),
        ];
        network.trusts_path |= self.trusts_path;
        values.into_iter().try_for_each(|(name, value)| match value {
            Some(value) => network.set(&format!("{name}={value}")),
            None => Ok(()),
        })
    }
}

pub(super) const USAGE: &str =
    "weir accel enable caqm [OPTIONS] <--cgroup PATH|--to CIDR|--port N|--all>";
pub(super) const EXAMPLES: &str = "\
Enable it at both ends. A connection to an end without it uses Reno and carries no tags.

Examples:
  weir accel enable caqm --all --interface eth0 --rtt-standard 1ms
  weir accel enable caqm --to 10.0.0.0/8 --interface eth0 --interface eth1
  weir accel enable caqm --all --interface left:eth0 --interface right:eth0
  # as openEuler's kernel:
  weir accel enable caqm --all --negotiation bits --loss reference \\
      --alpha-root 0 --theta 0
  weir accel set alpha=4
  weir accel status
  weir accel disable caqm";
