/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The parts of include/uapi/linux/bpf.h that Weir's programs use. These numbers and this layout
 * never change. */
#ifndef WEIR_ACCEL_UAPI_H
#define WEIR_ACCEL_UAPI_H

#include "types.h"

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_MAP_TYPE_SK_STORAGE 24
#define BPF_F_NO_PREALLOC 1
#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_SK_STORAGE_GET_F_CREATE 1
#define BPF_SOCK_OPS_TCP_CONNECT_CB 3
#define BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB 4
#define BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB 5
#define BPF_SOCK_OPS_TCP_LISTEN_CB 11
#define BPF_SOCK_OPS_HDR_OPT_LEN_CB 14
#define BPF_SOCK_OPS_WRITE_HDR_OPT_CB 15
#define BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG (1 << 6)
#define BPF_LOAD_HDR_OPT_TCP_SYN 1
#define BPF_F_CURRENT_NETNS (-1L)
#define TCX_NEXT (-1)

struct bpf_spin_lock {
	__u32 val;
};

struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 mark;
	__u32 priority;
	__u32 src_ip4;
	__u32 src_ip6[4];
	__u32 src_port;
	__be16 dst_port;
	__u16 unused;
	__u32 dst_ip4;
	__u32 dst_ip6[4];
	__u32 state;
	__s32 rx_queue_mapping;
};

_Static_assert(offsetof(struct bpf_sock, state) == 72, "as the kernel has it");

struct bpf_sock_tuple {
	union {
		struct {
			__be32 saddr;
			__be32 daddr;
			__be16 sport;
			__be16 dport;
		} ipv4;
		struct {
			__be32 saddr[4];
			__be32 daddr[4];
			__be16 sport;
			__be16 dport;
		} ipv6;
	};
};

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto; /* network byte order */
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 unused[27];
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	struct bpf_sock *sk;
	__u32 gso_size;
};

_Static_assert(offsetof(struct __sk_buff, gso_segs) == 164, "as the kernel has it");
_Static_assert(offsetof(struct __sk_buff, sk) == 168, "as the kernel has it");

struct bpf_sock_ops {
	__u32 op;
	__u32 args[4];
	__u32 family;
	__u32 remote_ip4; /* network byte order, as all addresses here */
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port; /* network byte order */
	__u32 local_port; /* host byte order */
	__u32 is_fullsock;
	__u32 snd_cwnd;
	__u32 srtt_us;
	__u32 bpf_sock_ops_cb_flags;
	__u32 unused[20];
	__u64 bytes_received;
	__u64 bytes_acked;
	struct bpf_sock *sk;
	void *skb_data;
	void *skb_data_end;
	__u32 skb_len;
	__u32 skb_tcp_flags;
};

_Static_assert(offsetof(struct bpf_sock_ops, sk) == 184, "as the kernel has it");

#endif
