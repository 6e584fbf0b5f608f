//! Random rules over all fields and actions.

use rand::RngExt;
use rand_pcg::Pcg64;

/// Generates a rule with its actions, in a random syntax that ovs-ofctl accepts.
pub(crate) fn rule(random: &mut Pcg64) -> String {
    let (protocol, mut keys) = protocol(random);
    for _ in 0..random.random_range(0..4) {
        keys.push(metadata(random));
    }
    let count = random.random_range(0..5);
    let mut actions: Vec<String> = (0..count).map(|_| action(random, protocol, 0)).collect();
    // The MPLS push must be the last action: after the push, the packet is not an IP packet for
    // later actions.
    if random.random_bool(0.1) {
        actions.push("push_mpls:0x8847".to_owned());
    }
    if actions.is_empty() {
        actions.push("drop".to_owned());
    } else if random.random_bool(0.1) {
        actions.push(format!("write_metadata:{:#x}/0xff", random.random::<u16>()));
        actions.push("goto_table:200".to_owned());
    }
    if random.random_bool(0.03) {
        keys.push("ct_state=+est+trk".to_owned());
        actions = vec!["resubmit(,9,ct)".to_owned()];
    }
    if random.random_bool(0.03) {
        actions = vec!["conjunction(7,1/2)".to_owned(), "conjunction(8,2/3)".to_owned()];
    }
    format!("{} actions={}", keys.join(","), actions.join(","))
}

/// Generates a match that may have fields of a protocol other than the match's own protocol.
pub(crate) fn loose_match(random: &mut Pcg64) -> String {
    let (_, mut keys) = protocol(random);
    let (_, others) = protocol(random);
    keys.extend(others.into_iter().skip(1));
    if random.random_bool(0.5) {
        keys.push(metadata(random));
    }
    // Open vSwitch stores the type of a neighbour discovery option in the memory of TCP's flags.
    let is_discovery = keys.iter().any(|key| key.starts_with("icmpv6"));
    keys.retain(|key| !(is_discovery && key.starts_with("tcp_flags")));
    keys.retain(|key| !key.starts_with("ct_nw") && !key.starts_with("priority"));
    if keys.len() > 1 && random.random_bool(0.2) {
        keys.swap_remove(0);
    }
    if keys.is_empty() {
        keys.push("ip".to_owned());
    }
    keys.join(",")
}

fn pick<'a>(random: &mut Pcg64, texts: &[&'a str]) -> &'a str {
    texts[random.random_range(0..texts.len())]
}

fn ipv4(random: &mut Pcg64) -> String {
    std::net::Ipv4Addr::from(random.random::<u32>()).to_string()
}

fn ipv6(random: &mut Pcg64) -> String {
    let mut address = random.random::<u128>();
    for group in 0..8 {
        if random.random_bool(0.5) {
            address &= !(0xffff << (group * 16));
        }
    }
    std::net::Ipv6Addr::from(address).to_string()
}

fn ipv4_masked(random: &mut Pcg64) -> String {
    let address = ipv4(random);
    match random.random_range(0..4) {
        0 => address,
        1 => format!("{address}/{}", random.random_range(1..=32)),
        2 => format!("{address}/255.255.0.0"),
        _ => format!("{address}/{}", ipv4(random)),
    }
}

fn ipv6_masked(random: &mut Pcg64) -> String {
    let address = ipv6(random);
    match random.random_range(0..3) {
        0 => address,
        1 => format!("{address}/{}", random.random_range(1..=128)),
        _ => format!("{address}/ffff::ffff"),
    }
}

fn ethernet(random: &mut Pcg64) -> String {
    let bytes = random.random::<[u8; 6]>();
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

fn ethernet_masked(random: &mut Pcg64) -> String {
    let address = ethernet(random);
    match random.random_range(0..3) {
        0 => address,
        1 => format!("{address}/01:00:00:00:00:00"),
        _ => format!("{address}/ff:ff:ff:00:00:00"),
    }
}

fn number(random: &mut Pcg64, bits: u32) -> String {
    let value = random.random::<u128>() >> (128 - random.random_range(1..=bits));
    if random.random_bool(0.5) && bits <= 64 { value.to_string() } else { format!("{value:#x}") }
}

fn nonzero(random: &mut Pcg64, bits: u32) -> String {
    format!("{:#x}", 1 | random.random::<u128>() >> (128 - random.random_range(1..=bits)))
}

fn number_masked(random: &mut Pcg64, bits: u32) -> String {
    let value = number(random, bits);
    if random.random_bool(0.6) { value } else { format!("{value}/{}", nonzero(random, bits)) }
}

fn port_masked(random: &mut Pcg64) -> String {
    number_masked(random, 16)
}

fn metadata(random: &mut Pcg64) -> String {
    match random.random_range(0..19) {
        0 => format!("in_port={}", random.random_range(1..0xff00)),
        1 => format!("in_port={}", pick(random, &["LOCAL", "controller", "65534"])),
        2 => format!("reg{}={}", random.random_range(0..15), number_masked(random, 32)),
        3 => format!("xreg{}={}", random.random_range(0..7), number_masked(random, 64)),
        4 => format!("xxreg{}={}", random.random_range(0..3), number_masked(random, 128)),
        5 => format!("metadata={}", number_masked(random, 64)),
        6 => format!("tun_id={}", number_masked(random, 64)),
        7 => format!("pkt_mark={}", number_masked(random, 32)),
        8 => format!("ct_mark={}", number_masked(random, 32)),
        9 => format!("ct_label={}", number_masked(random, 128)),
        10 => format!("ct_zone={}", number(random, 16)),
        11 => format!("ct_state={}", pick(random, CT_STATES)),
        12 => format!("dl_src={}", ethernet_masked(random)),
        13 => format!("eth_dst={}", ethernet_masked(random)),
        14 => format!("dl_vlan={}", random.random_range(0..4096)),
        15 => format!("dl_vlan_pcp={}", random.random_range(0..8)),
        16 => format!("vlan_tci={}", number_masked(random, 16)),
        17 => format!("reg14[{}..30]=0x3", random.random_range(0..29)),
        _ => format!("conj_id={}", number(random, 32)),
    }
}

const CT_STATES: &[&str] = &[
    "+trk",
    "+new+trk",
    "+trk-new+est",
    "-trk",
    "+est+rpl-inv+trk",
    "new|trk",
    "0x21/0x23",
    "+snat-dnat",
    "0",
];

/// Returns the keyword of a random protocol, and the keys that this protocol allows.
fn protocol(random: &mut Pcg64) -> (&'static str, Vec<String>) {
    let protocol = pick(
        random,
        &["", "ip", "tcp", "udp", "icmp", "sctp", "ipv6", "tcp6", "udp6", "icmp6", "arp", "mpls"],
    );
    let mut keys = Vec::new();
    match protocol {
        "" => {
            keys.push(pick(random, &["dl_type=0x88cc", "dl_type=0x1234", "priority=32768"]).into())
        }
        _ => keys.push(protocol.to_owned()),
    }
    let some = |random: &mut Pcg64| random.random_bool(0.4);
    if matches!(protocol, "ip" | "tcp" | "udp" | "icmp" | "sctp") {
        for name in ["nw_src", "ip_dst"] {
            if some(random) {
                keys.push(format!("{name}={}", ipv4_masked(random)));
            }
        }
        if some(random) {
            keys.push(format!("ct_nw_src={}", ipv4_masked(random)));
        }
    }
    if matches!(protocol, "ipv6" | "tcp6" | "udp6" | "icmp6") {
        for name in ["ipv6_src", "ipv6_dst"] {
            if some(random) {
                keys.push(format!("{name}={}", ipv6_masked(random)));
            }
        }
        if some(random) {
            keys.push(format!("ipv6_label={}", number_masked(random, 20)));
        }
    }
    if !matches!(protocol, "" | "arp" | "mpls") {
        match random.random_range(0..8) {
            0 => keys.push(format!("nw_tos={}", random.random_range(0..64) * 4)),
            1 => keys.push(format!("ip_dscp={}", random.random_range(0..64))),
            2 => keys.push(format!("nw_ecn={}", random.random_range(0..4))),
            3 => keys.push(format!("nw_ttl={}", random.random_range(0..256))),
            4 => {
                keys.push(format!("ip_frag={}", pick(random, &["no", "yes", "first", "not_later"])))
            }
            _ => {}
        }
    }
    match protocol {
        "ip" | "ipv6" if some(random) => {
            keys.push(format!("nw_proto={}", pick(random, &["0", "2", "47", "50", "255"])));
        }
        "tcp" | "tcp6" | "udp" | "udp6" | "sctp" => {
            for name in ["tp_src", "tp_dst"] {
                if some(random) {
                    keys.push(format!("{name}={}", port_masked(random)));
                }
            }
            if protocol.starts_with("tcp") && some(random) {
                let flags = ["+syn-ack", "syn|ack", "0x12/0x13", "+ns", "+[200]-fin", "0"];
                keys.push(format!("tcp_flags={}", pick(random, &flags)));
            }
        }
        "icmp" => {
            keys.push(format!("icmp_type={}", random.random_range(0..256)));
            keys.push(format!("icmp_code={}", random.random_range(0..256)));
        }
        "icmp6" if some(random) => {
            keys.push("icmpv6_type=135,icmpv6_code=0".to_owned());
            keys.push(format!("nd_target={}", ipv6_masked(random)));
            keys.push(format!("nd_sll={}", ethernet_masked(random)));
        }
        "arp" => {
            keys.push(format!("arp_op={}", random.random_range(1..5)));
            keys.push(format!("arp_spa={}", ipv4_masked(random)));
            if some(random) {
                keys.push(format!("arp_tpa={}", ipv4_masked(random)));
                keys.push(format!("arp_sha={}", ethernet_masked(random)));
                keys.push(format!("arp_tha={}", ethernet_masked(random)));
            }
        }
        "mpls" => {
            keys.push(format!("mpls_label={}", random.random_range(0..0x10_0000)));
            if some(random) {
                keys.push("mpls_tc=3,mpls_bos=1,mpls_ttl=9".to_owned());
            }
        }
        _ => {}
    }
    (protocol, keys)
}

fn part(random: &mut Pcg64) -> String {
    let register = random.random_range(0..16);
    match random.random_range(0..5) {
        0 => format!("NXM_NX_REG{register}[]"),
        1 => format!("reg{register}[]"),
        2 => format!("NXM_NX_REG{register}[{}..31]", random.random_range(0..32)),
        3 => format!("reg{register}[{}]", random.random_range(0..32)),
        _ => "OXM_OF_METADATA[]".to_owned(),
    }
}

fn action(random: &mut Pcg64, protocol: &str, depth: u32) -> String {
    let is_ip = !matches!(protocol, "" | "arp" | "mpls");
    match random.random_range(0..40) {
        0 => random.random_range(1..0xff00).to_string(),
        1 => format!("output:{}", random.random_range(1..0xff00)),
        2 => pick(random, &["NORMAL", "flood", "ALL", "in_port", "LOCAL", "TABLE"]).to_owned(),
        3 => format!("output:{}", part(random)),
        4 => format!("output(port={},max_len=100)", random.random_range(1..9)),
        5 => pick(
            random,
            &[
                "CONTROLLER",
                "controller:128",
                "controller(reason=no_match,max_len=7,id=3)",
                "controller(userdata=01.02.ff,pause)",
                "controller(meter_id=5)",
            ],
        )
        .to_owned(),
        6 => format!("enqueue:{}:{}", random.random_range(1..9), number(random, 32)),
        7 => format!("group:{}", random.random_range(0..1000)),
        8 => format!("set_field:{}->reg{}", number_masked(random, 32), random.random_range(0..16)),
        9 => format!("set_field:{}->eth_src", ethernet_masked(random)),
        10 => format!("set_field:{}->metadata", number_masked(random, 64)),
        11 => format!("set_field:{}->xxreg1", number(random, 128)),
        12 => format!("load:{}->NXM_NX_REG{}[]", number(random, 32), random.random_range(0..16)),
        13 => format!("load:{}->NXM_OF_ETH_SRC[0..15]", number(random, 16)),
        14 => format!("load:{}->NXM_NX_XXREG0[]", number(random, 64)),
        15 => "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]".to_owned(),
        16 => "move:NXM_OF_IN_PORT[]->reg3[0..15]".to_owned(),
        17 => format!("push:{}", part(random)),
        18 => format!("pop:{}", part(random)),
        19 => format!("mod_vlan_vid:{}", random.random_range(0..4096)),
        20 => format!("mod_vlan_pcp:{}", random.random_range(0..8)),
        21 => pick(random, &["mod_vlan_vid:5,strip_vlan", "push_vlan:0x8100", "ct_clear", "exit"])
            .to_owned(),
        22 => format!("mod_dl_src:{}", ethernet(random)),
        23 => format!("mod_dl_dst:{}", ethernet(random)),
        24 if matches!(protocol, "ip" | "tcp" | "udp" | "icmp") => {
            format!("mod_nw_src:{},mod_nw_dst:{}", ipv4(random), ipv4(random))
        }
        25 if is_ip => format!("mod_nw_tos:{}", random.random_range(0..64) * 4),
        26 if is_ip => pick(random, &["dec_ttl", "dec_ttl(1,2)", "mod_nw_ttl:9"]).to_owned(),
        27 => format!("set_tunnel:{}", number(random, 64)),
        28 => format!("set_queue:{},pop_queue", random.random_range(0..9)),
        29 => pick(random, &["resubmit:5", "resubmit(,7)", "resubmit(3,8)", "resubmit(in_port,1)"])
            .to_owned(),
        30 => learn(random),
        31 => format!(
            "multipath(symmetric_l4,{},modulo_n,16,0,NXM_NX_REG0[0..7])",
            number(random, 16)
        ),
        32 => pick(
            random,
            &[
                "bundle(eth_src,50,active_backup,ofport,members:1,2,LOCAL)",
                "bundle(symmetric_l3l4+udp,0,hrw,ofport,slaves:4)",
                "bundle_load(nw_src,9,hrw,ofport,NXM_NX_REG0[],members:4,8)",
            ],
        )
        .to_owned(),
        33 => "note:00.11.22.33.44.55".to_owned(),
        34 => pick(
            random,
            &[
                "sample(probability=12345,collector_set_id=1,obs_domain_id=2,obs_point_id=3)",
                "sample(probability=1,sampling_port=5,egress)",
            ],
        )
        .to_owned(),
        35 | 36 if is_ip => ct(random, protocol),
        37 if depth < 3 => {
            let inner: Vec<_> =
                (0..random.random_range(1..4)).map(|_| action(random, "", depth + 1)).collect();
            format!("clone({})", inner.join(","))
        }
        38 => "check_pkt_larger(1500)->reg0[3]".to_owned(),
        39 if protocol == "mpls" => {
            "set_mpls_label(5),set_mpls_tc(3),set_mpls_ttl(9),dec_mpls_ttl,pop_mpls:0x0800"
                .to_owned()
        }
        _ => "note:01".to_owned(),
    }
}

fn learn(random: &mut Pcg64) -> String {
    let mut parts = vec![format!("table={}", random.random_range(0..255))];
    for (name, bits) in [
        ("idle_timeout", 16),
        ("hard_timeout", 16),
        ("fin_idle_timeout", 16),
        ("priority", 16),
        ("limit", 31),
    ] {
        if random.random_bool(0.3) {
            parts.push(format!("{name}={}", random.random_range(0..1u64 << bits)));
        }
    }
    let specs = [
        "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]",
        "NXM_OF_VLAN_TCI[0..11]",
        "eth_type=0x800",
        "reg4=0x7",
        "NXM_NX_REG5[0..3]=0x7",
        "load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]",
        "load:0x10->NXM_NX_REG0[5..10]",
        "output:NXM_OF_IN_PORT[]",
        "send_flow_rem",
        "delete_learned",
        "cookie=0x1234",
        "result_dst=reg0[8]",
    ];
    for _ in 0..random.random_range(0..5) {
        parts.push(pick(random, &specs).to_owned());
    }
    format!("learn({})", parts.join(","))
}

fn ct(random: &mut Pcg64, protocol: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    if random.random_bool(0.6) {
        parts.push(pick(random, &["commit", "commit,force"]).to_owned());
    }
    if random.random_bool(0.4) {
        parts.push(format!("table={}", random.random_range(0..255)));
    }
    if random.random_bool(0.4) {
        parts.push(pick(random, &["zone=5", "zone=0", "zone=NXM_NX_REG0[0..15]"]).to_owned());
    }
    if protocol.ends_with('6') && random.random_bool(0.5) {
        let forms = ["nat", "nat(dst=fd00::1-fd00::9)", "nat(dst=[fd00::1]:80)"];
        parts.push(pick(random, &forms).to_owned());
    } else if !protocol.ends_with('6') && random.random_bool(0.5) {
        parts.push(
            pick(
                random,
                &[
                    "nat",
                    "nat(src)",
                    "nat(src=10.0.0.1)",
                    "nat(dst=10.0.0.1-10.0.0.9)",
                    "nat(src=10.0.0.1-10.0.0.9:100-200,random)",
                    "nat(src=10.0.0.1:80,hash,persistent)",
                ],
            )
            .to_owned(),
        );
    }
    if random.random_bool(0.3) {
        parts.push(
            pick(
                random,
                &[
                    "exec(set_field:1->ct_mark)",
                    "exec(set_field:0x5/0xff->ct_mark,set_field:9->ct_label)",
                    "exec(load:7->NXM_NX_CT_MARK[0..7])",
                    "exec(move:NXM_NX_REG0[]->NXM_NX_CT_MARK[])",
                ],
            )
            .to_owned(),
        );
    }
    if random.random_bool(0.1) {
        match protocol {
            "tcp" | "tcp6" => parts.push("alg=ftp".to_owned()),
            "udp" | "udp6" => parts.push("alg=tftp".to_owned()),
            _ => {}
        }
    }
    format!("ct({})", parts.join(","))
}
