/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* More of the kernel's structs, which only CAQM's programs use. CO-RE ignores the part of a name
 * after `___`. */
#ifndef WEIR_ACCEL_CAQM_KERNEL_H
#define WEIR_ACCEL_CAQM_KERNEL_H

#include "kernel.h"
#include "net.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct dst_entry {
	struct net_device *dev;
};

/* NULL if no program has storage on the socket. */
struct sock___kept {
	struct sock_common __sk_common;
	void *sk_bpf_storage;
};

struct sk_buff {
	struct sock___kept *sk;
	struct net_device *dev;
	int skb_iif;
};

struct sock___routed {
	struct dst_entry *sk_dst_cache;
};

struct sock___listening {
	struct sock_cgroup_data sk_cgrp_data;
};

/* The listener of a request socket; with a SYN cookie there is no request socket. */
struct sock_common___request {
	struct sock___listening *skc_listener;
};

struct bpf_sock_ops_kern {
	struct sock *sk;
	struct sk_buff *syn_skb;
	struct sk_buff *skb;
};

struct tcp_sock___limited {
	u32 max_packets_out;
	u8 is_cwnd_limited : 1;
};

struct inet_connection_sock___retrying {
	u8 icsk_retransmits;
};

struct tcp_sock___numbers {
	u32 rcv_nxt;
	u32 rcv_wnd;
	u32 window_clamp;
	u32 snd_una;
	u32 write_seq;
	u32 max_window;
};

/* A handshake that waits for its last packet: rsk_rcv_wnd of include/net/request_sock.h. */
struct sock_common___offering {
	u32 skc_rcv_wnd;
};

struct tcp_request_sock {
	u32 rcv_nxt;
	u32 snt_isn;
};

#pragma clang attribute pop

/* The kernel's function that converts a program's context to the kernel's own (Linux 6.2). */
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

#endif
