//! The table of actions.

use std::net::Ipv4Addr;

use super::row::{Argument, numbers};
use super::{
    ActionSetPlace, Bundle, Controller, Ct, Instruction, Learn, LearnSpec, Multipath, Numbers, Row,
    Sample, Subfield, Tags, Values,
};
use crate::port_number::PortNumber;
use crate::{Field, Prerequisite};

/// Declares [`Action`] with a variant for each action, and the rows of the variants.
macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident $(($argument:ident: $type:ty))?
        $({ $($field:ident: $field_type:ty),+ })? => $row:expr;)*) => {
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Action {
            $($(#[$doc])* $name $(($type))? $({ $($field: $field_type),+ })?,)*
        }

        /// The variants of [`Action`] without their arguments.
        #[derive(Debug, Clone, Copy)]
        pub(super) enum Kind {
            $($name,)*
        }

        static ROWS: &[Row] = &[$(Row {
            kind: Kind::$name,
            forms: &[$(<$type as Argument>::FORM)? $($(<$field_type as Argument>::FORM),+)?],
            ..$row
        },)*];

        impl Action {
            /// Returns the properties of the action.
            #[inline]
            #[must_use]
            pub fn row(&self) -> &'static Row {
                let kind = match self {
                    $(Action::$name { .. } => Kind::$name,)*
                };
                &ROWS[kind as usize]
            }

            /// Returns the numbers of a plain action.
            #[must_use]
            pub fn numbers(&self) -> Numbers {
                match self {
                    $(Action::$name $(($argument))? $({ $($field),+ })? => {
                        numbers([$($argument.number())? $($($field.number()),+)?])
                    })*
                }
            }
        }

        pub(super) fn make(kind: Kind, numbers: Numbers) -> Option<Action> {
            let mut numbers = numbers.into_iter();
            Some(match kind {
                $(Kind::$name => Action::$name
                    $((<$type as Argument>::of(numbers.next()?)?))?
                    $({ $($field: Argument::of(numbers.next()?)?),+ })?,)*
            })
        }
    };
}

actions! {
    /// `max_len`: maximum number of bytes of the packet that a controller gets. Rules keep this
    /// length for any port, but only the port CONTROLLER uses the length.
    Output { port: PortNumber, max_len: u16 } =>
        Row::own("output").place(ActionSetPlace::Output);
    OutputRegister { source: Subfield, max_len: u16 } => Row::own("output_reg");
    OutputTruncated { port: PortNumber, max_len: u32 } => Row::own("output_trunc");
    Controller(controller: Box<Controller>) =>
        Row::own("controller").place(ActionSetPlace::Output);
    Enqueue { port: PortNumber, queue: u32 } => Row::own("enqueue");
    Group(group: u32) => Row::plain(&["group"])
        .only_in_messages(Values::UpTo(0xffff_ff00)).openflow11(22).nicira(40)
        .place(ActionSetPlace::Group);
    /// `set_field:value/mask->field`
    SetField { field: Field, value: u128, mask: u128 } =>
        Row::own("set_field").place(ActionSetPlace::Changes);
    /// `load:value->field[]`
    Load { destination: Subfield, value: u128 } =>
        Row::own("set_field").place(ActionSetPlace::Changes);
    /// `move:source->destination`
    Move { source: Subfield, destination: Subfield } =>
        Row::own("move").place(ActionSetPlace::Changes);
    StackPush(source: Subfield) => Row::own("push");
    StackPop(destination: Subfield) => Row::own("pop");
    /// `mod_vlan_vid`: adds a tag to an untagged packet.
    SetVlanVid(vid: u16) => Row::plain(&["mod_vlan_vid", "set_vlan_vid"]).called("set_vlan_vid")
        .argument("VLAN VID").only(Values::Bits(0xfff), "VLAN VID").openflow10(1)
        .tags(Tags::VlanAdded).place(ActionSetPlace::Changes);
    SetVlanPcp(pcp: u8) => Row::plain(&["mod_vlan_pcp", "set_vlan_pcp"]).called("set_vlan_pcp")
        .argument("VLAN PCP").only(Values::Bits(7), "VLAN PCP").openflow10(2)
        .tags(Tags::VlanAdded).place(ActionSetPlace::Changes);
    StripVlan => Row::plain(&["strip_vlan", "pop_vlan"]).openflow10(3).openflow11(18)
        .requires(&[Prerequisite::Vlan]).tags(Tags::VlanRemoved).place(ActionSetPlace::PopVlan);
    PushVlan(ethertype: u16) => Row::plain(&["push_vlan"]).hexadecimal(1).argument("ethertype")
        .only(Values::OneOf(&[0x8100, 0x88a8]), "VLAN ethertype").openflow11(17)
        .needs_openflow_11().tags(Tags::VlanAdded).place(ActionSetPlace::PushVlan);
    PushMpls(ethertype: u16) => Row::plain(&["push_mpls"]).hexadecimal(4).argument("push_mpls")
        .only_in_messages(Values::OneOf(&[0x8847, 0x8848])).openflow11(19).nicira(23)
        .tags(Tags::EthTypeChanged).place(ActionSetPlace::PushMpls);
    PopMpls(ethertype: u16) => Row::plain(&["pop_mpls"]).hexadecimal(4).argument("pop_mpls")
        .openflow11(20).nicira(24).requires(&[Prerequisite::Mpls])
        .tags(Tags::EthTypeChanged).place(ActionSetPlace::PopMpls);
    SetMplsLabel(label: u32) => Row::plain(&["set_mpls_label"]).in_parentheses("label")
        .only(Values::Bits(0xf_ffff), "MPLS label").openflow11(13).nicira(30)
        .writes(Field::MplsLabel).mirrored_again().place(ActionSetPlace::Changes);
    SetMplsTc(class: u8) => Row::plain(&["set_mpls_tc"]).in_parentheses("tc").argument("MPLS TC")
        .only(Values::Bits(7), "MPLS TC").openflow11(14).nicira(31)
        .writes(Field::MplsTc).mirrored_again().place(ActionSetPlace::Changes);
    SetMplsTtl(ttl: u8) => Row::plain(&["set_mpls_ttl"]).in_parentheses("ttl")
        .argument("MPLS TTL").openflow11(15).nicira(25)
        .writes(Field::MplsTtl).mirrored_again().place(ActionSetPlace::Changes);
    DecMplsTtl => Row::plain(&["dec_mpls_ttl"]).openflow11(16).nicira(26)
        .writes(Field::MplsTtl).mirrored_again().place(ActionSetPlace::DecMplsTtl);
    SetEthSrc(address: [u8; 6]) => Row::plain(&["mod_dl_src"]).openflow10(4).openflow11(3)
        .writes(Field::EthSrc).place(ActionSetPlace::Changes);
    SetEthDst(address: [u8; 6]) => Row::plain(&["mod_dl_dst"]).openflow10(5).openflow11(4)
        .writes(Field::EthDst).place(ActionSetPlace::Changes);
    SetIpv4Src(address: Ipv4Addr) => Row::plain(&["mod_nw_src"]).openflow10(6).openflow11(5)
        .writes(Field::IpSrc).place(ActionSetPlace::Changes);
    SetIpv4Dst(address: Ipv4Addr) => Row::plain(&["mod_nw_dst"]).openflow10(7).openflow11(6)
        .writes(Field::IpDst).place(ActionSetPlace::Changes);
    /// `mod_nw_tos`: the two ECN bits of the value are 0.
    SetIpTos(tos: u8) => Row::plain(&["mod_nw_tos"]).argument("TOS")
        .only(Values::Bits(0xfc), "TOS").openflow10(8).openflow11(7)
        .writes(Field::IpDscp).place(ActionSetPlace::Changes);
    SetIpEcn(ecn: u8) => Row::plain(&["mod_nw_ecn"]).argument("ECN")
        .only(Values::Bits(3), "ECN").openflow11(8).needs_openflow_11()
        .writes(Field::NwEcn).place(ActionSetPlace::Changes);
    SetIpTtl(ttl: u8) => Row::plain(&["mod_nw_ttl", "set_nw_ttl"]).argument("TTL")
        .openflow11(23).needs_openflow_11()
        .writes(Field::NwTtl).place(ActionSetPlace::Changes);
    SetTpSrc(port: u16) => Row::plain(&["mod_tp_src"]).argument("source port")
        .openflow10(9).openflow11(9)
        .writes(Field::TcpSrc).requires(TRANSPORTS).place(ActionSetPlace::Changes);
    SetTpDst(port: u16) => Row::plain(&["mod_tp_dst"]).argument("destination port")
        .openflow10(10).openflow11(10)
        .writes(Field::TcpDst).requires(TRANSPORTS).place(ActionSetPlace::Changes);
    /// `dec_ttl`: the controllers that get packets with an expired TTL; `[0]` if the rule names no
    /// controllers.
    DecTtl(controllers: Vec<u16>) => Row::own("dec_ttl")
        .writes(Field::NwTtl).mirrored_again().place(ActionSetPlace::DecTtl);
    SetTunnel(id: u64) => Row::own("set_tunnel")
        .writes(Field::TunId).place(ActionSetPlace::Changes);
    SetQueue(queue: u32) => Row::plain(&["set_queue"]).openflow11(21).nicira(4)
        .place(ActionSetPlace::Queue);
    PopQueue => Row::plain(&["pop_queue"]).nicira(5);
    FinTimeout { idle: u16, hard: u16 } => Row::plain(&["fin_timeout"])
        .keys(&["idle_timeout", "hard_timeout"]).nicira(19).requires(&[Prerequisite::Tcp]);
    Resubmit { port: Option<PortNumber>, table: Option<u8>, with_ct: bool } =>
        Row::own("resubmit").place(ActionSetPlace::Resubmit);
    Learn(learn: Box<Learn>) => Row::own("learn");
    Conjunction { id: u32, clause: u8, clauses: u8 } => Row::own("conjunction");
    Multipath(multipath: Box<Multipath>) => Row::own("multipath");
    Bundle(bundle: Box<Bundle>) => Row::own("bundle");
    Note(bytes: Vec<u8>) => Row::own("note");
    Exit => Row::plain(&["exit"]).nicira(17);
    Sample(sample: Box<Sample>) => Row::own("sample");
    Ct(ct: Box<Ct>) => Row::own("ct").place(ActionSetPlace::Track);
    CtClear => Row::plain(&["ct_clear"]).nicira(43);
    /// Recirculates the packet in the datapath, for tests.
    DebugRecirculate => Row::plain(&["debug_recirc"]).nicira(255);
    /// Keeps the packets of the rule out of the datapath's cache, for tests.
    DebugSlow => Row::plain(&["debug_slow"]).nicira(254);
    CheckPacketLarger { destination: Subfield, length: u16 } => Row::own("check_pkt_larger");
    Clone(actions: Vec<Action>) => Row::own("clone");
    Meter(meter: u32) => Row::plain(&["meter"]).needs_openflow_11()
        .instruction(Instruction::Meter);
    ClearActions => Row::plain(&["clear_actions"]).instruction(Instruction::ClearActions);
    WriteActions(actions: Vec<Action>) =>
        Row::own("write_actions").instruction(Instruction::WriteActions);
    WriteMetadata { value: u64, mask: u64 } =>
        Row::own("write_metadata").instruction(Instruction::WriteMetadata);
    GotoTable(table: u8) => Row::own("goto_table").instruction(Instruction::GotoTable);
}

/// The protocols with ports.
const TRANSPORTS: &[Prerequisite] = &[Prerequisite::Tcp, Prerequisite::Udp, Prerequisite::Sctp];

impl Kind {
    pub(super) const FIRST: Self = Self::Output;
}

impl Row {
    /// Returns the rows of all actions.
    #[must_use]
    pub const fn all() -> &'static [Row] {
        ROWS
    }
}

impl Action {
    /// Returns the nested actions: the actions of `clone` and `write_actions`, and the changes of
    /// `ct`.
    #[must_use]
    pub fn nested(&self) -> &[Action] {
        match self {
            Action::Clone(nested) | Action::WriteActions(nested) => nested,
            Action::Ct(ct) => &ct.exec,
            _ => &[],
        }
    }

    /// Whether the action outputs packets to `port`, at once or through the action set.
    #[must_use]
    pub fn sends_to(&self, port: PortNumber) -> bool {
        match self {
            Action::Output { port: to, .. }
            | Action::OutputTruncated { port: to, .. }
            | Action::Enqueue { port: to, .. } => *to == port,
            Action::Controller(_) => port == PortNumber::CONTROLLER,
            _ => false,
        }
    }

    /// Returns the field that the action writes because an argument names the field.
    #[must_use]
    pub fn named_destination(&self) -> Option<Field> {
        match self {
            Action::SetField { field, .. } => Some(*field),
            Action::Load { destination, .. } | Action::Move { destination, .. } => {
                Some(destination.field)
            }
            _ => None,
        }
    }

    /// Returns the heap memory of the action in bytes.
    fn heap_bytes(&self) -> usize {
        match self {
            Action::Clone(nested) | Action::WriteActions(nested) => heap_bytes(nested),
            Action::Ct(ct) => size_of::<Ct>() + heap_bytes(&ct.exec),
            Action::Learn(learn) => {
                size_of::<Learn>() + learn.specs.capacity() * size_of::<LearnSpec>()
            }
            Action::Controller(controller) => {
                size_of::<Controller>() + controller.userdata.capacity()
            }
            Action::Bundle(bundle) => {
                size_of::<Bundle>() + bundle.members.capacity() * size_of::<PortNumber>()
            }
            Action::Multipath(_) => size_of::<Multipath>(),
            Action::Sample(_) => size_of::<Sample>(),
            Action::Note(bytes) => bytes.capacity(),
            Action::DecTtl(controllers) => controllers.capacity() * size_of::<u16>(),
            _ => 0,
        }
    }
}

/// Returns the heap memory of a list of actions in bytes.
#[must_use]
pub fn heap_bytes(actions: &Vec<Action>) -> usize {
    actions.capacity() * size_of::<Action>() + actions.iter().map(Action::heap_bytes).sum::<usize>()
}
