// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Turns the inspection of SYN-ACKs on or off for sockets that already listened before CAQM was
 * enabled. Handles one network namespace at a time.
 */
#include "kernel.h"

#define SOL_TCP 6
#define TCP_LISTEN 10
/* Linux 6.12; an older kernel refuses the option, and its sockets stay unchanged. */
#define TCP_BPF_SOCK_OPS_CB_FLAGS 1008

static __always_inline void turn(struct bpf_iter__tcp *ctx, bool on)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp;
	int flags = 0, wanted;

	if (!common || common->skc_state != TCP_LISTEN)
		return;
	tp = bpf_skc_to_tcp_sock(common);
	if (!tp || bpf_getsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags)))
		return;
	wanted = on ? flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG :
		      flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;
	if (wanted != flags)
		bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &wanted, sizeof(wanted));
}

SEC("iter/tcp")
int hear(struct bpf_iter__tcp *ctx)
{
	turn(ctx, true);
	return 0;
}

SEC("iter/tcp")
int ignore(struct bpf_iter__tcp *ctx)
{
	turn(ctx, false);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
