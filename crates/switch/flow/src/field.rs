use super::key::word;

/// The position of a field in a [`super::Key`]: `width` bits of `word`, from bit `shift` upwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub word: u8,
    pub shift: u8,
    pub width: u8,
}

impl Place {
    #[inline]
    #[must_use]
    pub fn all_ones(self) -> u128 {
        if self.width == 128 { u128::MAX } else { (1 << self.width) - 1 }
    }
}

/// The packets that have the field: OpenFlow's prerequisite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prerequisite {
    Any,
    Vlan,
    Mpls,
    Arp,
    Ipv4,
    Ipv6,
    Ip,
    Tcp,
    Udp,
    Sctp,
    Icmpv4,
    Icmpv6,
    NeighborDiscovery,
    NeighborSolicitation,
    NeighborAdvertisement,
}

/// The syntax of a field's value in ovs-ofctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Decimal,
    Hexadecimal,
    Ethernet,
    Ipv4,
    Ipv6,
    Port,
    Fragment,
    TcpFlags,
    CtState,
}

/// The masks that a field allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masking {
    /// All bits of the field, or no bit.
    Exact,
    Arbitrary,
}

/// The header of a match entry on the wire: its class, its number, and the bytes of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireField {
    pub class: u16,
    pub number: u8,
    pub bytes: u8,
}

/// The class of OpenFlow 1.0's fields in Nicira's extension (`NXM_OF_*`).
pub const NXM_OF: u16 = 0x0000;
/// The class of Nicira's own fields (`NXM_NX_*`).
pub const NXM_NX: u16 = 0x0001;
/// The class of OpenFlow 1.2's fields (`OXM_OF_*`).
pub const OXM_BASIC: u16 = 0x8000;
/// The class of OpenFlow 1.5's packet registers (`OXM_OF_PKT_REG*`).
pub const OXM_REGISTERS: u16 = 0x8001;

macro_rules! fields {
    ($($name:ident: $text:literal $(| $alias:literal)*, $word:ident $(+ $more:literal)? [$shift:literal; $width:literal],
       $prerequisite:ident, $masking:ident, $format:ident, $access:ident,
       $nxm:expr, $oxm:expr;)*) => {
        /// A field of a packet or of its metadata that rules can match.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Field { $($name),* }

        impl Field {
            /// All fields, in the order in which OpenFlow messages carry them.
            pub const ALL: &[Field] = &[$(Field::$name),*];

            #[inline]
            #[must_use]
            pub const fn place(self) -> Place {
                match self { $(Field::$name => Place {
                    word: (word::$word $(+ $more)?) as u8, shift: $shift, width: $width,
                }),* }
            }

            /// Returns the name in rules, as in `set_field:1->reg0`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Field::$name => $text),* }
            }

            /// Returns further names that rules may use.
            #[must_use]
            pub const fn aliases(self) -> &'static [&'static str] {
                match self { $(Field::$name => &[$($alias),*]),* }
            }

            #[inline]
            #[must_use]
            pub const fn prerequisite(self) -> Prerequisite {
                match self { $(Field::$name => Prerequisite::$prerequisite),* }
            }

            #[inline]
            #[must_use]
            pub const fn masking(self) -> Masking {
                match self { $(Field::$name => Masking::$masking),* }
            }

            #[inline]
            #[must_use]
            pub const fn format(self) -> Format {
                match self { $(Field::$name => Format::$format),* }
            }

            /// Whether actions may change the field.
            #[inline]
            #[must_use]
            pub const fn is_writable(self) -> bool {
                matches!(match self { $(Field::$name => Access::$access),* }, Access::Write)
            }

            /// Returns the header of a match entry and the field's name in Nicira's extension of
            /// OpenFlow 1.0.
            #[must_use]
            pub const fn nxm(self) -> Option<(WireField, &'static str)> {
                match self { $(Field::$name => $nxm),* }
            }

            /// Returns the header of a match entry and the field's name in OpenFlow 1.2 and later.
            #[must_use]
            pub const fn oxm(self) -> Option<(WireField, &'static str)> {
                match self { $(Field::$name => $oxm),* }
            }
        }
    };
}

enum Access {
    Read,
    Write,
}

const fn of(number: u8, bytes: u8, name: &'static str) -> Option<(WireField, &'static str)> {
    Some((WireField { class: NXM_OF, number, bytes }, name))
}

const fn nx(number: u8, bytes: u8, name: &'static str) -> Option<(WireField, &'static str)> {
    Some((WireField { class: NXM_NX, number, bytes }, name))
}

const fn oxm(number: u8, bytes: u8, name: &'static str) -> Option<(WireField, &'static str)> {
    Some((WireField { class: OXM_BASIC, number, bytes }, name))
}

const fn pkt_reg(number: u8, name: &'static str) -> Option<(WireField, &'static str)> {
    Some((WireField { class: OXM_REGISTERS, number, bytes: 8 }, name))
}

fields! {
    DpHash: "dp_hash", PKT_MARK[0; 32], Any, Arbitrary, Hexadecimal, Read, nx(35, 4, "NXM_NX_DP_HASH"), None;
    RecircId: "recirc_id", IN_PORT[0; 32], Any, Exact, Decimal, Read, nx(36, 4, "NXM_NX_RECIRC_ID"), None;
    ConjId: "conj_id", ACTSET_OUTPUT[0; 32], Any, Exact, Decimal, Read, nx(37, 4, "NXM_NX_CONJ_ID"), None;
    TunId: "tun_id" | "tunnel_id", TUN_ID[0; 64], Any, Arbitrary, Hexadecimal, Write, nx(16, 8, "NXM_NX_TUN_ID"), oxm(38, 8, "OXM_OF_TUNNEL_ID");
    Metadata: "metadata", METADATA[0; 64], Any, Arbitrary, Hexadecimal, Write, None, oxm(2, 8, "OXM_OF_METADATA");
    InPort: "in_port", IN_PORT[32; 32], Any, Exact, Port, Write, of(0, 2, "NXM_OF_IN_PORT"), None;
    InPortOxm: "in_port_oxm", IN_PORT[32; 32], Any, Exact, Port, Write, None, oxm(0, 4, "OXM_OF_IN_PORT");
    ActsetOutput: "actset_output", ACTSET_OUTPUT[32; 32], Any, Exact, Port, Read, None, oxm(43, 4, "OXM_OF_ACTSET_OUTPUT");
    PktMark: "pkt_mark", PKT_MARK[32; 32], Any, Arbitrary, Hexadecimal, Write, nx(33, 4, "NXM_NX_PKT_MARK"), None;
    CtState: "ct_state", CT[0; 16], Any, Arbitrary, CtState, Read, nx(105, 4, "NXM_NX_CT_STATE"), None;
    CtZone: "ct_zone", CT[16; 16], Any, Exact, Hexadecimal, Read, nx(106, 2, "NXM_NX_CT_ZONE"), None;
    CtMark: "ct_mark", CT[32; 32], Any, Arbitrary, Hexadecimal, Write, nx(107, 4, "NXM_NX_CT_MARK"), None;
    CtLabel: "ct_label", CT_LABEL[0; 128], Any, Arbitrary, Hexadecimal, Write, nx(108, 16, "NXM_NX_CT_LABEL"), None;
    CtNwProto: "ct_nw_proto", CT_TP[32; 8], Any, Exact, Decimal, Read, nx(119, 1, "NXM_NX_CT_NW_PROTO"), None;
    CtNwSrc: "ct_nw_src", CT_NW[32; 32], Ipv4, Arbitrary, Ipv4, Read, nx(120, 4, "NXM_NX_CT_NW_SRC"), None;
    CtNwDst: "ct_nw_dst", CT_NW[0; 32], Ipv4, Arbitrary, Ipv4, Read, nx(121, 4, "NXM_NX_CT_NW_DST"), None;
    CtIpv6Src: "ct_ipv6_src", CT_IPV6_SRC[0; 128], Ipv6, Arbitrary, Ipv6, Read, nx(122, 16, "NXM_NX_CT_IPV6_SRC"), None;
    CtIpv6Dst: "ct_ipv6_dst", CT_IPV6_DST[0; 128], Ipv6, Arbitrary, Ipv6, Read, nx(123, 16, "NXM_NX_CT_IPV6_DST"), None;
    CtTpSrc: "ct_tp_src", CT_TP[16; 16], Ip, Arbitrary, Decimal, Read, nx(124, 2, "NXM_NX_CT_TP_SRC"), None;
    CtTpDst: "ct_tp_dst", CT_TP[0; 16], Ip, Arbitrary, Decimal, Read, nx(125, 2, "NXM_NX_CT_TP_DST"), None;
    Reg0: "reg0", REGISTERS[32; 32], Any, Arbitrary, Hexadecimal, Write, nx(0, 4, "NXM_NX_REG0"), None;
    Reg1: "reg1", REGISTERS[0; 32], Any, Arbitrary, Hexadecimal, Write, nx(1, 4, "NXM_NX_REG1"), None;
    Reg2: "reg2", REGISTERS + 1[32; 32], Any, Arbitrary, Hexadecimal, Write, nx(2, 4, "NXM_NX_REG2"), None;
    Reg3: "reg3", REGISTERS + 1[0; 32], Any, Arbitrary, Hexadecimal, Write, nx(3, 4, "NXM_NX_REG3"), None;
    Reg4: "reg4", REGISTERS + 2[32; 32], Any, Arbitrary, Hexadecimal, Write, nx(4, 4, "NXM_NX_REG4"), None;
    Reg5: "reg5", REGISTERS + 2[0; 32], Any, Arbitrary, Hexadecimal, Write, nx(5, 4, "NXM_NX_REG5"), None;
    Reg6: "reg6", REGISTERS + 3[32; 32], Any, Arbitrary, Hexadecimal, Write, nx(6, 4, "NXM_NX_REG6"), None;
    Reg7: "reg7", REGISTERS + 3[0; 32], Any, Arbitrary, Hexadecimal, Write, nx(7, 4, "NXM_NX_REG7"), None;
    Reg8: "reg8", REGISTERS + 4[32; 32], Any, Arbitrary, Hexadecimal, Write, nx(8, 4, "NXM_NX_REG8"), None;
    Reg9: "reg9", REGISTERS + 4[0; 32], Any, Arbitrary, Hexadecimal, Write, nx(9, 4, "NXM_NX_REG9"), None;
    Reg10: "reg10", REGISTERS + 5[32; 32], Any, Arbitrary, Hexadecimal, Write, nx(10, 4, "NXM_NX_REG10"), None;
    Reg11: "reg11", REGISTERS + 5[0; 32], Any, Arbitrary, Hexadecimal, Write, nx(11, 4, "NXM_NX_REG11"), None;
    Reg12: "reg12", REGISTERS + 6[32; 32], Any, Arbitrary, Hexadecimal, Write, nx(12, 4, "NXM_NX_REG12"), None;
    Reg13: "reg13", REGISTERS + 6[0; 32], Any, Arbitrary, Hexadecimal, Write, nx(13, 4, "NXM_NX_REG13"), None;
    Reg14: "reg14", REGISTERS + 7[32; 32], Any, Arbitrary, Hexadecimal, Write, nx(14, 4, "NXM_NX_REG14"), None;
    Reg15: "reg15", REGISTERS + 7[0; 32], Any, Arbitrary, Hexadecimal, Write, nx(15, 4, "NXM_NX_REG15"), None;
    Xreg0: "xreg0", REGISTERS[0; 64], Any, Arbitrary, Hexadecimal, Write, None, pkt_reg(0, "OXM_OF_PKT_REG0");
    Xreg1: "xreg1", REGISTERS + 1[0; 64], Any, Arbitrary, Hexadecimal, Write, None, pkt_reg(1, "OXM_OF_PKT_REG1");
    Xreg2: "xreg2", REGISTERS + 2[0; 64], Any, Arbitrary, Hexadecimal, Write, None, pkt_reg(2, "OXM_OF_PKT_REG2");
    Xreg3: "xreg3", REGISTERS + 3[0; 64], Any, Arbitrary, Hexadecimal, Write, None, pkt_reg(3, "OXM_OF_PKT_REG3");
    Xreg4: "xreg4", REGISTERS + 4[0; 64], Any, Arbitrary, Hexadecimal, Write, None, pkt_reg(4, "OXM_OF_PKT_REG4");
    Xreg5: "xreg5", REGISTERS + 5[0; 64], Any, Arbitrary, Hexadecimal, Write, None, pkt_reg(5, "OXM_OF_PKT_REG5");
    Xreg6: "xreg6", REGISTERS + 6[0; 64], Any, Arbitrary, Hexadecimal, Write, None, pkt_reg(6, "OXM_OF_PKT_REG6");
    Xreg7: "xreg7", REGISTERS + 7[0; 64], Any, Arbitrary, Hexadecimal, Write, None, pkt_reg(7, "OXM_OF_PKT_REG7");
    Xxreg0: "xxreg0", REGISTERS[0; 128], Any, Arbitrary, Hexadecimal, Write, nx(111, 16, "NXM_NX_XXREG0"), None;
    Xxreg1: "xxreg1", REGISTERS + 2[0; 128], Any, Arbitrary, Hexadecimal, Write, nx(112, 16, "NXM_NX_XXREG1"), None;
    Xxreg2: "xxreg2", REGISTERS + 4[0; 128], Any, Arbitrary, Hexadecimal, Write, nx(113, 16, "NXM_NX_XXREG2"), None;
    Xxreg3: "xxreg3", REGISTERS + 6[0; 128], Any, Arbitrary, Hexadecimal, Write, nx(114, 16, "NXM_NX_XXREG3"), None;
    EthSrc: "eth_src" | "dl_src", ETH_SRC[16; 48], Any, Arbitrary, Ethernet, Write, of(2, 6, "NXM_OF_ETH_SRC"), oxm(4, 6, "OXM_OF_ETH_SRC");
    EthDst: "eth_dst" | "dl_dst", ETH_DST[16; 48], Any, Arbitrary, Ethernet, Write, of(1, 6, "NXM_OF_ETH_DST"), oxm(3, 6, "OXM_OF_ETH_DST");
    EthType: "eth_type" | "dl_type", ETH_SRC[0; 16], Any, Exact, Hexadecimal, Read, of(3, 2, "NXM_OF_ETH_TYPE"), oxm(5, 2, "OXM_OF_ETH_TYPE");
    VlanTci: "vlan_tci", ETH_DST[0; 16], Any, Arbitrary, Hexadecimal, Write, of(4, 2, "NXM_OF_VLAN_TCI"), None;
    DlVlan: "dl_vlan", ETH_DST[0; 12], Any, Exact, Decimal, Write, None, None;
    DlVlanPcp: "dl_vlan_pcp", ETH_DST[13; 3], Any, Exact, Decimal, Write, None, None;
    VlanVid: "vlan_vid", ETH_DST[0; 13], Any, Arbitrary, Hexadecimal, Write, None, oxm(6, 2, "OXM_OF_VLAN_VID");
    VlanPcp: "vlan_pcp", ETH_DST[13; 3], Vlan, Exact, Decimal, Write, None, oxm(7, 1, "OXM_OF_VLAN_PCP");
    MplsLabel: "mpls_label", MPLS[44; 20], Mpls, Exact, Decimal, Write, None, oxm(34, 4, "OXM_OF_MPLS_LABEL");
    MplsTc: "mpls_tc", MPLS[41; 3], Mpls, Exact, Decimal, Write, None, oxm(35, 1, "OXM_OF_MPLS_TC");
    MplsBos: "mpls_bos", MPLS[40; 1], Mpls, Exact, Decimal, Read, None, oxm(36, 1, "OXM_OF_MPLS_BOS");
    MplsTtl: "mpls_ttl", MPLS[32; 8], Mpls, Exact, Decimal, Write, nx(30, 1, "NXM_NX_MPLS_TTL"), None;
    IpSrc: "ip_src" | "nw_src", IPV4[32; 32], Ipv4, Arbitrary, Ipv4, Write, of(7, 4, "NXM_OF_IP_SRC"), oxm(11, 4, "OXM_OF_IPV4_SRC");
    IpDst: "ip_dst" | "nw_dst", IPV4[0; 32], Ipv4, Arbitrary, Ipv4, Write, of(8, 4, "NXM_OF_IP_DST"), oxm(12, 4, "OXM_OF_IPV4_DST");
    Ipv6Src: "ipv6_src", IPV6_SRC[0; 128], Ipv6, Arbitrary, Ipv6, Write, nx(19, 16, "NXM_NX_IPV6_SRC"), oxm(26, 16, "OXM_OF_IPV6_SRC");
    Ipv6Dst: "ipv6_dst", IPV6_DST[0; 128], Ipv6, Arbitrary, Ipv6, Write, nx(20, 16, "NXM_NX_IPV6_DST"), oxm(27, 16, "OXM_OF_IPV6_DST");
    Ipv6Label: "ipv6_label", MPLS[0; 20], Ipv6, Arbitrary, Hexadecimal, Write, nx(27, 4, "NXM_NX_IPV6_LABEL"), oxm(28, 4, "OXM_OF_IPV6_FLABEL");
    NwProto: "nw_proto" | "ip_proto", NW[48; 8], Ip, Exact, Decimal, Read, of(6, 1, "NXM_OF_IP_PROTO"), oxm(10, 1, "OXM_OF_IP_PROTO");
    NwTos: "nw_tos", NW[42; 6], Ip, Exact, Decimal, Write, of(5, 1, "NXM_OF_IP_TOS"), None;
    IpDscp: "ip_dscp", NW[42; 6], Ip, Exact, Decimal, Write, None, oxm(8, 1, "OXM_OF_IP_DSCP");
    NwEcn: "nw_ecn" | "ip_ecn", NW[40; 2], Ip, Exact, Decimal, Write, nx(28, 1, "NXM_NX_IP_ECN"), oxm(9, 1, "OXM_OF_IP_ECN");
    NwTtl: "nw_ttl", NW[32; 8], Ip, Exact, Decimal, Write, nx(29, 1, "NXM_NX_IP_TTL"), None;
    IpFrag: "ip_frag" | "nw_frag", NW[24; 2], Ip, Arbitrary, Fragment, Read, nx(26, 1, "NXM_NX_IP_FRAG"), None;
    ArpOp: "arp_op", NW[48; 16], Arp, Exact, Decimal, Write, of(15, 2, "NXM_OF_ARP_OP"), oxm(21, 2, "OXM_OF_ARP_OP");
    ArpSpa: "arp_spa", IPV4[32; 32], Arp, Arbitrary, Ipv4, Write, of(16, 4, "NXM_OF_ARP_SPA"), oxm(22, 4, "OXM_OF_ARP_SPA");
    ArpTpa: "arp_tpa", IPV4[0; 32], Arp, Arbitrary, Ipv4, Write, of(17, 4, "NXM_OF_ARP_TPA"), oxm(23, 4, "OXM_OF_ARP_TPA");
    ArpSha: "arp_sha", ARP_SHA[16; 48], Arp, Arbitrary, Ethernet, Write, nx(17, 6, "NXM_NX_ARP_SHA"), oxm(24, 6, "OXM_OF_ARP_SHA");
    ArpTha: "arp_tha", ARP_THA[16; 48], Arp, Arbitrary, Ethernet, Write, nx(18, 6, "NXM_NX_ARP_THA"), oxm(25, 6, "OXM_OF_ARP_THA");
    TcpSrc: "tcp_src" | "tp_src", TP[48; 16], Tcp, Arbitrary, Decimal, Write, of(9, 2, "NXM_OF_TCP_SRC"), oxm(13, 2, "OXM_OF_TCP_SRC");
    TcpDst: "tcp_dst" | "tp_dst", TP[32; 16], Tcp, Arbitrary, Decimal, Write, of(10, 2, "NXM_OF_TCP_DST"), oxm(14, 2, "OXM_OF_TCP_DST");
    TcpFlags: "tcp_flags", NW[0; 12], Tcp, Arbitrary, TcpFlags, Read, nx(34, 2, "NXM_NX_TCP_FLAGS"), oxm(42, 2, "OXM_OF_TCP_FLAGS");
    UdpSrc: "udp_src", TP[48; 16], Udp, Arbitrary, Decimal, Write, of(11, 2, "NXM_OF_UDP_SRC"), oxm(15, 2, "OXM_OF_UDP_SRC");
    UdpDst: "udp_dst", TP[32; 16], Udp, Arbitrary, Decimal, Write, of(12, 2, "NXM_OF_UDP_DST"), oxm(16, 2, "OXM_OF_UDP_DST");
    SctpSrc: "sctp_src", TP[48; 16], Sctp, Arbitrary, Decimal, Write, None, oxm(17, 2, "OXM_OF_SCTP_SRC");
    SctpDst: "sctp_dst", TP[32; 16], Sctp, Arbitrary, Decimal, Write, None, oxm(18, 2, "OXM_OF_SCTP_DST");
    IcmpType: "icmp_type", TP[48; 8], Icmpv4, Exact, Decimal, Write, of(13, 1, "NXM_OF_ICMP_TYPE"), oxm(19, 1, "OXM_OF_ICMPV4_TYPE");
    IcmpCode: "icmp_code", TP[32; 8], Icmpv4, Exact, Decimal, Write, of(14, 1, "NXM_OF_ICMP_CODE"), oxm(20, 1, "OXM_OF_ICMPV4_CODE");
    Icmpv6Type: "icmpv6_type", TP[48; 8], Icmpv6, Exact, Decimal, Write, nx(21, 1, "NXM_NX_ICMPV6_TYPE"), oxm(29, 1, "OXM_OF_ICMPV6_TYPE");
    Icmpv6Code: "icmpv6_code", TP[32; 8], Icmpv6, Exact, Decimal, Write, nx(22, 1, "NXM_NX_ICMPV6_CODE"), oxm(30, 1, "OXM_OF_ICMPV6_CODE");
    NdTarget: "nd_target", ND_TARGET[0; 128], NeighborDiscovery, Arbitrary, Ipv6, Write, nx(23, 16, "NXM_NX_ND_TARGET"), oxm(31, 16, "OXM_OF_IPV6_ND_TARGET");
    NdSll: "nd_sll", ARP_SHA[16; 48], NeighborSolicitation, Arbitrary, Ethernet, Write, nx(24, 6, "NXM_NX_ND_SLL"), oxm(32, 6, "OXM_OF_IPV6_ND_SLL");
    NdTll: "nd_tll", ARP_THA[16; 48], NeighborAdvertisement, Arbitrary, Ethernet, Write, nx(25, 6, "NXM_NX_ND_TLL"), oxm(33, 6, "OXM_OF_IPV6_ND_TLL");
}

impl Field {
    /// Returns the field with this name in a rule: a name of ovs-ofctl, an alias, or an NXM or OXM
    /// name.
    #[must_use]
    pub fn named(name: &str) -> Option<Field> {
        let is_named =
            |entry: Option<(WireField, &str)>| entry.is_some_and(|(_, text)| text == name);
        Field::ALL.iter().copied().find(|field| {
            field.name() == name
                || field.aliases().contains(&name)
                || is_named(field.nxm())
                || is_named(field.oxm())
        })
    }
}
