// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reads the storage of the connections with the algorithm, one network namespace at a time. An
 * iterator over the storage map would show all namespaces at once, but hardened kernels refuse that
 * iterator and allow iter/tcp. The kernel may show a connection twice.
 */
#include "kernel.h"
#include "maps.h"
#include "view.h"
#include "work.h"

SEC("iter/tcp")
int look(struct bpf_iter__tcp *ctx)
{
	const struct flow *flow;
	struct view view = {};
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp;

	/* `tp` is NULL for a connection without a full socket: in TIME_WAIT, or not accepted yet by
	 * its listener. */
	tp = common ? bpf_skc_to_tcp_sock(common) : NULL;
	flow = tp ? bpf_sk_storage_get(&flows, tp, NULL, 0) : NULL;
	if (!flow)
		return 0;
	view.cookie = bpf_get_socket_cookie(tp);
	view.rate = tcpa_rate(&flow->tcpa);
	view.min_rtt_us = flow->tcpa.min_rtt;
	view.window = flow->tcpa.window;
	view.floor = tcpa_floor(&flow->tcpa);
	view.rule = flow->rule;
	view.mode = flow->tcpa.mode;
	view.rival = flow->tcpa.rival;
	view.running = flow->running;
	view.resuming = flow->tcpa.mode == TCPA_STARTUP && flow->tcpa.resuming != TCPA_AFRESH;
	__builtin_memcpy(view.before, flow->before, sizeof(view.before));
	work_so_far(tp, flow, &view.work);
	/* If an entry does not fit, the kernel shows it again in the next call. */
	bpf_seq_write(ctx->meta->seq, &view, sizeof(view));
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
