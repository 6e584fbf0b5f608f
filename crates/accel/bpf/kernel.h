/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fields of the kernel's structs that Weir's programs use. The loader finds their offsets, and
 * whether a kernel has them (CO-RE), so order and size do not matter here.
 */
#ifndef WEIR_ACCEL_KERNEL_H
#define WEIR_ACCEL_KERNEL_H

#include "uapi.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	unsigned short skc_family;
	unsigned char skc_state;
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[];
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock {
	struct sock_common __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	u32 sk_pacing_status;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u8 icsk_ca_setsockopt : 1;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u64 tcp_mstamp;
	u32 srtt_us;
	u32 mss_cache;
	u32 snd_cwnd;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 packets_out;
	u32 retrans_out;
	u32 sacked_out;
	u32 lost_out;
	u32 delivered;
	u32 lost;
	u32 data_segs_out;
	u32 write_seq;
	u32 snd_nxt;
	u64 bytes_sent;
	u64 bytes_retrans;
	u32 total_retrans;
	u32 dsack_dups;
	u32 reord_seen;
};

struct rate_sample {
	u64 prior_mstamp;
	u32 prior_delivered;
	long interval_us;
	long rtt_us;
	u32 acked_sacked;
	bool is_app_limited;
};

/* Contexts of iterators. */
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

enum tcp_ca_event {
	CA_EVENT_TX_START,
};

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
	u32 (*min_tso_segs)(struct sock *sk);
	/* Linux 7.1 reports CA_EVENT_TX_START only through this callback. */
	void (*cwnd_event_tx_start)(struct sock *sk);
	/* Kernels with Google's patches for BBRv3 have tso_segs in place of min_tso_segs. */
	u32 (*tso_segs)(struct sock *sk, u32 mss);
	u32 (*sndbuf_expand)(struct sock *sk);
	u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	u32 flags;
	char name[16];
};

#pragma clang attribute pop

/* include/uapi/linux/tcp.h */
#define TCP_CA_Recovery 3
#define TCP_CA_Loss 4
/* include/net/tcp.h */
#define TCP_CONG_NON_RESTRICTED 1
#define TCP_INFINITE_SSTHRESH 0x7fffffff
/* include/net/sock.h, enum sk_pacing */
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1

static __always_inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/* Whether a program, which may be a BPF program, named the algorithm of this socket or of its
 * listener (TCP_CONGESTION). */
static __always_inline bool is_named(const struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD_PROBED(&tp->inet_conn, icsk_ca_setsockopt);
}

/* tcp_packets_in_flight() of include/net/tcp.h */
static __always_inline u32 packets_in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
}

/* Bytes that the application has written and the kernel has never sent. */
static __always_inline u32 unsent(const struct tcp_sock *tp)
{
	return tp->write_seq - tp->snd_nxt;
}

#endif
