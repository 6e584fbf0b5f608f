//! Tests with descriptions of other kernels' types. Each description has the fields that kernels of
//! that version have, from their sources (net/ipv4/bpf_tcp_ca.c, include/linux/bpf.h,
//! include/net/tcp.h and inet_connection_sock.h).
#![allow(clippy::unwrap_used)]

use accel::AccelError;
use accel::kernel::{Interface, interface_of};
use std::path::PathBuf;
use std::process::Command;

const OPS_TWO: &str = "struct tcp_congestion_ops { unsigned (*min_tso_segs)(void *); \
    void (*cong_control)(void *, const void *); } ops;";
const OPS_FOUR: &str = "struct tcp_congestion_ops { unsigned (*min_tso_segs)(void *); \
    void (*cong_control)(void *, unsigned, int, const void *); } ops;";
const OPS_WHOLE_TRAINS: &str = "struct tcp_congestion_ops { unsigned (*tso_segs)(void *, unsigned); \
    void (*cong_control)(void *, unsigned, int, const void *); } ops;";
const OPS_TX_START: &str = "struct tcp_congestion_ops { unsigned (*min_tso_segs)(void *); \
    void (*cong_control)(void *, unsigned, int, const void *); \
    void (*cwnd_event_tx_start)(void *); } ops;";
const OURS_TO_IMPLEMENT: &str = "struct bpf_struct_ops_tcp_congestion_ops { int refcnt; } wrapped;";
const UNLINKED: &str = "struct bpf_struct_ops { int (*reg)(void *); void (*unreg)(void *); } kind;";
const LINKED: &str = "struct bpf_struct_ops { int (*reg)(void *, void *); int (*update)(void *, void *, void *); } kind;";
const ITERATOR: &str = "struct bpf_iter__tcp { void *meta; } iterator;";
const CGROUP: &str = "struct cgroup { int level; void *ancestors[]; } *group;";
const CGROUP_UNION: &str = "struct cgroup { int level; union { struct { int no; void *ancestors[]; }; \
    struct { void *root; }; }; } *group;";
const OLDER_CGROUP: &str = "struct cgroup { int level; unsigned long ancestor_ids[]; } *group;";
const RTO_FIXED: &str = "struct inet_connection_sock { unsigned icsk_rto; } sock;";
const RACK_OPTIONAL: &str = "struct tcp_sock { void *lost_skb_hint; } *tcp;";
const TCX: &str = "struct tcx_link { int location; } *tcx;";
const RTO_MAX: &str = "struct inet_connection_sock { unsigned icsk_rto, icsk_rto_max; } sock;";

fn described(name: &str, types: &[&str]) -> Result<Interface, AccelError> {
    let path = |end: &str| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{end}"));
    std::fs::write(path("c"), types.join("\n")).unwrap();
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let mut compile = Command::new(clang);
    compile.args(["-target", "bpf", "-g", "-O2", "-c"]).arg(path("c")).arg("-o").arg(path("o"));
    assert!(compile.status().unwrap().success());
    // The kernel's file has the types without an ELF around them.
    let mut extract = Command::new("objcopy");
    extract.args(["-I", "elf64-little", "--dump-section"]);
    extract.arg(format!(".BTF={}", path("btf").display())).arg(path("o")).arg("/dev/null");
    assert!(extract.status().unwrap().success());
    interface_of(&path("btf"))
}

#[test]
fn each_kernel_version_is_detected() {
    for (version, types, expected) in [
        (
            "6.1",
            [OPS_TWO, OURS_TO_IMPLEMENT, UNLINKED, ITERATOR, CGROUP, RTO_FIXED, RACK_OPTIONAL],
            (false, false, true, false),
        ),
        (
            "6.4",
            [OPS_TWO, OURS_TO_IMPLEMENT, LINKED, ITERATOR, CGROUP, RTO_FIXED, ""],
            (false, true, true, false),
        ),
        (
            "6.10",
            [OPS_FOUR, OURS_TO_IMPLEMENT, LINKED, ITERATOR, CGROUP, RTO_FIXED, TCX],
            (true, true, true, false),
        ),
        (
            "6.15",
            [OPS_FOUR, OURS_TO_IMPLEMENT, LINKED, ITERATOR, CGROUP, RTO_MAX, TCX],
            (true, true, true, true),
        ),
        (
            "6.19",
            [OPS_FOUR, OURS_TO_IMPLEMENT, LINKED, ITERATOR, CGROUP_UNION, RTO_MAX, TCX],
            (true, true, true, true),
        ),
        (
            "7.1",
            [OPS_TX_START, OURS_TO_IMPLEMENT, LINKED, ITERATOR, CGROUP_UNION, RTO_MAX, TCX],
            (true, true, true, true),
        ),
        (
            "patched-for-bbr3",
            [OPS_WHOLE_TRAINS, OURS_TO_IMPLEMENT, LINKED, ITERATOR, CGROUP, RTO_MAX, TCX],
            (true, true, true, true),
        ),
        (
            "6.15-without-proc",
            [OPS_FOUR, OURS_TO_IMPLEMENT, LINKED, "", CGROUP, RTO_MAX, TCX],
            (true, true, false, true),
        ),
    ] {
        let (four_arguments, links, open_connections, rto_max) = expected;
        let interface_links = types.contains(&TCX);
        let whole_trains = types.contains(&OPS_WHOLE_TRAINS);
        let expected = Interface {
            four_arguments,
            whole_trains,
            tx_start: types.contains(&OPS_TX_START),
            links,
            open_connections,
            rto_max,
            interface_links,
            rack_is_optional: types.contains(&RACK_OPTIONAL),
        };
        assert_eq!(described(version, &types).unwrap(), expected, "{version}");
    }
}

#[test]
fn an_unsupported_kernel_is_refused_with_a_reason() {
    for (name, types, message) in [
        ("5.5", &[OPS_TWO, OLDER_CGROUP][..], "6.1"),
        ("6.0", &[OPS_TWO, OURS_TO_IMPLEMENT, UNLINKED, ITERATOR, OLDER_CGROUP], "6.1"),
        ("without-tcp", &["struct sock { int family; } sock;"], "struct_ops"),
        (
            "another-control",
            &["struct tcp_congestion_ops { int key; } ops;", OURS_TO_IMPLEMENT],
            "6.1",
        ),
    ] {
        let error = described(name, types).unwrap_err();
        assert!(matches!(error, AccelError::NotSupported { .. }), "{name}: {error}");
        assert!(error.to_string().contains(message), "{name}: {error}");
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("nonsense.btf");
    std::fs::write(&path, b"\x9f\xeb\x01\x00 and then something else").unwrap();
    let error = interface_of(&path).unwrap_err().to_string();
    assert!(error.contains("its types"), "{error}");
}
